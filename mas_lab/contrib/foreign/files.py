"""Load files of other trainers as records, each labelled `FILE, line N`, so that an error names its place.

No code in a file is executed. Leaves out: what the records mean (`formats`), and which files make a run (`reading`).
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from itertools import islice
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.table import TableError

PACKED = (".gz", ".zst", ".bz2")
"""Endings of packed files, behind the ending of the format."""
DATABASE = ".db"
"""Ending of a project of trackio, which may hold several runs: `project.db/NAME` is the path of one."""


def load(path: Path, only_first: bool = False) -> pd.DataFrame:
    """Return the records of a file as Python values; lines and rows count from 1.

    Args:
        path: The file, or a run in trackio's file.
        only_first: Of a JSONL file, return the first record alone.

    Raises:
        TableError: The file cannot be read. The message names it, and the line of a JSONL file.
    """
    ending = (
        DATABASE if path.parent.suffix == DATABASE else [one for one in ("", *path.suffixes) if one not in PACKED][-1]
    )
    readers = {".csv": _cells, ".parquet": pd.read_parquet, ".pt": _samples, DATABASE: _logged}
    if ending == ".jsonl":
        with _unpacked(path) as lines:
            records = dict(islice(_objects(lines, path), 1 if only_first else None))
        return pd.DataFrame(list(records.values()), index=list(records), dtype=object)
    if ending not in readers:
        raise TableError(f"read: {path} ends in none of .jsonl, {', '.join(readers)}; convert it to one of them")
    try:
        table = readers[ending](path)
    except TableError:
        raise
    except UnpicklingError as error:
        raise TableError(
            f"read: {path} is no file of torch, or it holds more than numbers, texts and tensors. To load it could run "
            "code that it holds, so it is not read; save it again without such objects, a NumPy array as a list"
        ) from error
    except Exception as error:  # a damaged file may raise anything
        raise TableError(f"read: {path} is not a readable {ending[1:]} file: {str(error) or repr(error)}") from error
    return table.astype(object).set_axis([f"{path}, row {number}" for number in range(1, len(table) + 1)])


def _unpacked(path: Path) -> BufferedReader:
    from pyarrow import input_stream

    return BufferedReader(input_stream(str(path), compression="detect"))


def _objects(lines: BufferedReader, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the value of each line that is not blank."""
    number = 0
    try:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield f"{path}, line {number}", dict(json.loads(line))
    except (ValueError, TypeError) as error:
        raise TableError(
            f"read: {path}, line {number} is not a JSON object ({error}); if the training was stopped there, remove "
            "this line"
        ) from error
    except OSError as error:
        raise TableError(f"read: {path} cannot be unpacked behind line {number}: {error}") from error


def _cells(path: Path) -> pd.DataFrame:
    with _unpacked(path) as file:
        table = pd.read_csv(file, keep_default_na=False, na_values=[""])  # a completion may be "None"
    return table.fillna(dict.fromkeys(table.select_dtypes(exclude="number"), ""))


def _samples(path: Path) -> pd.DataFrame:
    """Return the samples that slime saved, with the number of their rollout."""
    import torch

    saved = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(saved, dict) or not {"rollout_id", "samples"} <= set(saved):
        raise ValueError("it does not hold rollout_id and samples, as slime's --save-debug-rollout-data writes them")
    return pd.DataFrame([{"rollout": saved["rollout_id"], **sample} for sample in saved["samples"]], dtype=object)


def _logged(path: Path) -> pd.DataFrame:
    """Return the completions that TRL logged to trackio: of each step the last table, as in the files of TRL."""
    file, run = (path, None) if path.suffix == DATABASE else (path.parent, path.name)
    mode = "mode=ro" if Path(f"{file}-wal").exists() else "immutable=1"  # SQLite would leave files beside it
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?{mode}", uri=True)) as database:
        rows = database.execute("SELECT run_id, run_name, metrics FROM metrics ORDER BY id").fetchall()
    tables = {}
    for run_id, name, metrics in rows:
        logged = json.loads(metrics).get("completions")
        if isinstance(logged, dict) and logged.get("_value"):
            tables[run_id, name, logged["_value"][0]["step"]] = logged["_value"]
    runs = dict.fromkeys((run_id, name) for run_id, name, _ in tables)
    wanted = [one for one in runs if run is None or run in one]
    if len(wanted) != 1:
        known = ", ".join(f"{name} ({run_id})" for run_id, name in runs)
        one = f"name one of them, by its name or id: lab.read('{file}/NAME')" if runs else "train with log_completions"
        raise TableError(f"read: {path} has the completions of {len(runs)} runs{known and ': '}{known}; {one}")
    found = [row for (run_id, name, _), rows in tables.items() if (run_id, name) == wanted[0] for row in rows]
    table = pd.DataFrame(found, dtype=object)
    floats = [name for name in table if table[name].map(type).eq(float).any()]  # JSON has no such numbers
    return table.replace({name: {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf} for name in floats})
