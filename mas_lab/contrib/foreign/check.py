"""Read and check all of a run that somebody else made, in the child process of `child`.

Leaves out: the form of each file (`forms`), and the limits of the process (`child`).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.contrib.foreign import forms
from mas_lab.contrib.foreign.child import refuse_large
from mas_lab.contrib.foreign.forms import checked_table, require_form
from mas_lab.runs.disk import RunError, read_arrow, read_json, reading
from mas_lab.runs.manifest import SCORES, TABLES, Part, steps_of
from mas_lab.runs.run import TOKENS, UPHILL, WATCH, open_run

BLOCK = 16 * 2**20
"""Most bytes of tables that are checked together; a larger one is checked alone."""


def check_run(path: str | Path, at: Callable[[Any], None] = lambda file: None) -> None:
    """Read a run of somebody else as a whole; raise RunError naming a file that is not as training writes it.

    `at` gets each file before it is read.
    """
    at(path := Path(path))
    with reading(path):
        if path.is_dir():
            files = {file for file in path.rglob("*") if file.is_file()} - set(path.glob("checkpoints/**/*"))
            refuse_large(path, sum(file.stat().st_size for file in files))
        run = open_run(path)
        require_form(run.config, forms.Config, run.folder / "run.json")
        if UPHILL in run.manifest.files:
            require_form(read_json(run.manifest.part(UPHILL)), forms.Uphill, run.folder / UPHILL)
        watched = run.watched()
        if isinstance(watched, dict) and {"rule", "spikes"} <= set(watched):
            require_form(watched, forms.Watched, run.folder / WATCH)
        if run.is_exported:
            require_form(run.token_texts(), forms.Tokens, run.folder / TOKENS)
        tables = [table for name in (*TABLES, SCORES) for table in _checked(run.parts(name), name, at)]
        if run.steps != sum(len(part.steps) for part in run.parts("stats")):
            raise RunError(f"{path}: its turns and stats are not of the same steps; export it again")
        del tables  # until here, all tables were in memory together, as they may be later


def _checked(parts: Sequence[Part], name: str, at: Callable[[Any], None]) -> Iterator[pd.DataFrame]:
    """Yield the tables of some files, checked; neighbours are checked together, since each check has a fixed cost."""
    block, size = [], 0
    for part in parts:
        at(part)
        [table] = read_arrow([part])
        same_schema = block and table.schema.equals(block[-1][1].schema, check_metadata=True)
        if block and not (same_schema and size + table.nbytes <= BLOCK):
            yield _checked_block(block, name)
            block, size = [], 0
        block.append((part, table))
        size += table.nbytes
    if block:
        yield _checked_block(block, name)


def _checked_block(block: Sequence[tuple[Part, Any]], name: str) -> pd.DataFrame:
    from pyarrow import concat_tables

    try:
        with reading(block[0][0]):
            table = concat_tables([table for _, table in block]).combine_chunks()
            return checked_table(table, name, block[0][0], [step for part, _ in block for step in steps_of(part.name)])
    except RunError:
        for one in block if len(block) > 1 else ():  # each file alone says which one it is
            _checked_block([one], name)
        raise
