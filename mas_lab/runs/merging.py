"""Merge the tables of a long run into files of a hundred steps, instead of thousands of small files.

Such a file is a plain zip of the parts, byte for byte and not compressed. Each part can be read without the others.
Leaves out: when files are merged (`recorder`) and how a part is found in one (`manifest`).
"""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mas_lab.runs.disk import patiently, whole
from mas_lab.runs.manifest import Manifest, Part

STEPS, BYTES = 100, 64 * 2**20
"""A file is full when it holds so many steps, or when the next step would make it larger than so many bytes."""


def merge(manifest: Manifest, tables: Sequence[str], until: int) -> None:
    """Move the parts of steps before `until` into merged files, as far as they fill one.

    Old files are deleted once the new ones and the manifest are on disk. So a run that is killed at any moment reads as
    before.
    """
    alone = [part for name, part in sorted(manifest.parts.items()) if not part.file]
    blocks = [
        block
        for table in tables
        for block in _full([part for part in alone if part.name.startswith(f"{table}/") and part.step < until])
    ]
    if not blocks:
        return
    moved = {part.name: part for block in blocks for part in _together(block)}
    manifest.write_anew({**manifest.parts, **moved})
    for block in blocks:
        for part in block:
            patiently(part.path.unlink)


def _full(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield lists of neighbours that fill a file; always the same ones, as only the newest parts fill none."""
    block, held = [], 0
    for part in parts:
        size = part.path.stat().st_size
        if block and held + size > BYTES:
            yield block
            block, held = [], 0
        block, held = [*block, part], held + size
        if len(block) == STEPS:
            yield block
            block, held = [], 0


def _together(parts: Sequence[Part]) -> Iterator[Part]:
    """Write the parts into one file and yield their new places; a damaged part moves as it is, and fails on reading."""
    root, table = parts[0].root, Path(parts[0].name).parent
    file = (table / f"{parts[0].step:06d}-{parts[-1].step:06d}.zip").as_posix()
    with whole(root / file) as staged, zipfile.ZipFile(staged, "w") as archive:
        for part in parts:
            data, info = part.stored(), zipfile.ZipInfo(Path(part.name).name)
            archive.writestr(info, data)
            start = info.header_offset + len(info.FileHeader())
            yield replace(part, file=file, start=start, size=len(data))
