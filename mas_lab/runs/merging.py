"""Join the tables of a long run into files of a hundred steps, instead of thousands of small files.

Leaves out: when files are joined, and when those that were joined are deleted (`recorder`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from mas_lab.runs.disk import RunError, write_table
from mas_lab.runs.manifest import TABLES, Manifest, Part, digest

if TYPE_CHECKING:
    import pyarrow

STEPS, BYTES = 100, 16 * 2**20
"""A file is full when it holds so many steps, or when the next step would make it larger than so many bytes."""


def merge(manifest: Manifest, until: int, sweep: Callable[[], None]) -> None:
    """Join the tables of steps before `until`, as far as they fill a file.

    The files that were joined stay until the next time, when `sweep` deletes them: somebody may be reading them.
    """
    blocks = []
    for folder in TABLES:
        blocks += _full([part for part in manifest.parts(folder) if len(part.steps) == 1 and part.step < until])
    if blocks:
        sweep()
    for block in blocks:
        if (table := _joined(block)) is not None:
            name = block[0].name.replace(".parquet", f"-{block[-1].step:06d}.parquet")
            sha256 = digest(write_table(manifest.root / name, table))
            manifest.add({name: sha256}, drop=[part.name for part in block])


def _full(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield lists of neighbours that fill a file; always the same ones, as only the newest parts fill none."""
    block, held = [], 0
    for part in parts:
        size = part.path.stat().st_size
        if block and (held + size > BYTES or part.step != block[-1].step + 1):
            yield block
            block, held = [], 0
        block, held = [*block, part], held + size
        if len(block) == STEPS:
            yield block
            block, held = [], 0


def _joined(block: Sequence[Part]) -> "pyarrow.Table | None":
    """Return one table; None for a single part, a damaged one, or a column of lists here and of numbers there."""
    import pyarrow
    from pyarrow import parquet

    try:
        tables = [parquet.read_table(pyarrow.BufferReader(part.read_bytes()), use_threads=False) for part in block]
        return pyarrow.concat_tables(tables, promote_options="default").combine_chunks() if len(block) > 1 else None
    except (RunError, pyarrow.ArrowException):
        return None
