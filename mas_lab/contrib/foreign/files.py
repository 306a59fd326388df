"""Load files of other trainers as records, each labelled `FILE, line N`, so that an error names its place.

No code in a file is executed. Leaves out: what the records mean (`formats`), and which files make a run (`reading`).
"""

import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial
from io import BufferedReader
from itertools import islice
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pandas as pd

from mas_lab.table import TableError

PACKED = (".gz", ".zst", ".bz2")
"""Endings of packed files, behind the ending of the format."""
DATABASE = ".db"
"""Ending of a project of trackio, which may hold several runs: `project.db/NAME` is the path of one."""
REFUSED = "it holds more than numbers, texts and tensors, so that to load it could run code; save it again without that"
"""Why a file of torch is not read."""


def load(path: Path, only_first: bool = False, texts: Collection[Any] = ()) -> pd.DataFrame:
    """Return the records of a file as Python values, those of a CSV file as texts; lines and rows count from 1.

    Args:
        path: The file, or a run in trackio's file.
        only_first: Of a JSONL file, return the first record alone.
        texts: Columns of a CSV file in which an empty cell is an empty text. In the others it is missing.

    Raises:
        TableError: The file cannot be read. The message names it, and the line of a JSONL file.
    """
    suffixes = [one for one in path.suffixes if one not in PACKED] or [""]
    ending = DATABASE if path.parent.suffix == DATABASE else suffixes[-1]
    if ending == ".jsonl":
        with _unpacked(path) as lines:
            records = dict(islice(_objects(lines, path), 1 if only_first else None))
        return pd.DataFrame(list(records.values()), index=list(records), dtype=object)
    readers = {".csv": partial(_cells, texts=texts), ".parquet": pd.read_parquet, ".pt": _samples, DATABASE: _logged}
    if ending not in readers:
        raise TableError(f"read: {path} ends in none of .jsonl, {', '.join(readers)}; convert it to one of them")
    try:
        table = readers[ending](path)
    except Exception as error:  # a damaged file may raise anything
        why = REFUSED if isinstance(error, UnpicklingError) else str(error) or repr(error)
        raise TableError(f"read: {path} is not a readable {ending[1:]} file: {why}") from error
    return table.astype(object).set_axis([f"{path}, row {number}" for number in range(1, len(table) + 1)])


def _unpacked(path: Path) -> BufferedReader:
    from pyarrow import input_stream

    return BufferedReader(input_stream(str(path), compression="detect"))


def _objects(lines: BufferedReader, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the value of each line that is not blank."""
    place = f"{path}, line 1"
    try:
        for number, line in enumerate(lines, 1):
            place = f"{path}, line {number}"
            if line.strip():
                yield place, dict(json.loads(line))
    except (ValueError, TypeError, OSError) as error:  # OSError: the packed file is damaged behind this line
        remedy = "if the training was stopped there, remove this line"
        raise TableError(f"read: {place} is not a JSON object ({error}); {remedy}") from error


def _cells(path: Path, texts: Collection[Any]) -> pd.DataFrame:
    with _unpacked(path) as file:  # a completion may be "None" or "1.50", and a task "007"
        table = pd.read_csv(file, dtype=str, keep_default_na=False, na_values=[""])
    return table.fillna({name: "" for name in table if name in texts})


def _samples(path: Path) -> pd.DataFrame:
    """Return the samples that slime saved, with the number of their rollout."""
    import torch

    saved = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or not {"rollout_id", "samples"} <= set(saved):
        raise ValueError("it lacks rollout_id and samples, which slime's --save-debug-rollout-data writes")
    return pd.DataFrame([{"rollout": saved["rollout_id"], **sample} for sample in saved["samples"]], dtype=object)


def _logged(path: Path) -> pd.DataFrame:
    """Return the completions that TRL logged to trackio: of each step the last table, as in the files of TRL."""
    file, run = (path, None) if path.suffix == DATABASE else (path.parent, path.name)
    mode = "mode=ro" if Path(f"{file}-wal").exists() else "immutable=1"  # SQLite would leave files beside it
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?{mode}", uri=True)) as database:
        rows = database.execute("SELECT run_id, run_name, metrics FROM metrics ORDER BY id").fetchall()
    runs: dict[tuple[str, str], dict[int, list[dict[str, Any]]]] = {}
    for run_id, name, metrics in rows:
        table = json.loads(metrics).get("completions")
        if isinstance(table, dict) and table.get("_value"):
            runs.setdefault((run_id, name), {})[table["_value"][0]["step"]] = table["_value"]
    wanted = [steps for names, steps in runs.items() if run is None or run in names]
    if len(wanted) != 1:
        known = ", ".join(f"{name} ({run_id})" for run_id, name in runs) or "train with log_completions=True"
        raise ValueError(f"name one run, as in lab.read('{file}/NAME'), of those with completions: {known}")
    found = pd.DataFrame([row for table in wanted[0].values() for row in table], dtype=object)
    return found.astype({name: float for name in found if found[name].map(type).eq(float).any()})  # NaN is a text there
