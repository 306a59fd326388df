"""Write files atomically: beside their place, flushed to disk, then renamed into it.

A file is complete or absent. Tables are parquet. Leaves out: the content of files (`run`, `recorder`) and their
digests (`manifest`).
"""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import pyarrow

Files = Path | zipfile.Path
"""A run's folder, or an exported run's zip."""
Readable = Any
"""A path, or a file of a run that knows its sha256 and its steps (`manifest.Part`)."""
INFO = "info"
"""The column that holds plain data of any form."""
TEXTS = {"task", "episode", "node", "parent", "agent", "policy", "action", "prompt", "completion", "finish", "group"}
"""Columns that hold text in every row."""
LITTER = {".ds_store", "desktop.ini", "thumbs.db", ".ipynb_checkpoints", "__macosx"}
"""Names of files that systems and notebooks leave in folders, in lower case."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a disk without space."""
IN_USE = (5, 32, 145)
"""Windows error codes for a file that somebody has open: access denied, sharing violation, directory not empty."""


class RunError(RuntimeError):
    """A run folder that cannot be written, read or resumed; the message names the file and what to do."""


class Unwritten(RunError):
    """A file that could not be written, because the disk is full or writing is not allowed."""


def read_table(path: Readable, columns: list[str] | None = None) -> pd.DataFrame:
    return read_tables([path], columns)


def read_tables(paths: Sequence[Readable], columns: list[str] | None = None) -> pd.DataFrame:
    """Return files of one table, or only `columns` of them, as one table."""
    tables = list(map(to_pandas, read_arrow(paths, columns)))
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


def read_arrow(paths: Sequence[Readable], columns: list[str] | None = None) -> "list[pyarrow.Table]":
    """Return files of one table as one Arrow table, or each alone if a column mixes lists and numbers."""
    import pyarrow

    tables = list(_read(paths, columns))
    try:
        return [pyarrow.concat_tables(tables, promote_options="permissive").combine_chunks()]
    except pyarrow.ArrowException:
        return tables


def _read(paths: Sequence[Readable], columns: list[str] | None) -> "Iterator[pyarrow.Table]":
    """Yield a table for each path; neighbours in one file are read together."""
    import pyarrow
    from pyarrow import parquet

    last = None
    for path in paths:
        steps, file = getattr(path, "steps", None), getattr(path, "path", path)
        with reading(path):
            if file != last:
                # parquet.read_table hands every small file to threads, which takes longer than reading it.
                reader = parquet.ParquetFile(pyarrow.BufferReader(path.read_bytes()), pre_buffer=False)
                table = reader.read(columns and list(dict.fromkeys([*columns, "step"])), use_threads=False)
                last = file
            own = table if steps is None else _of_steps(table, steps)
            yield own if columns is None else own.select([name for name in columns if name in own.column_names])


def _of_steps(table: "pyarrow.Table", steps: range) -> "pyarrow.Table":
    from pyarrow import compute

    first, last = compute.min_max(table["step"]).as_py().values()
    if first is None or (first >= steps.start and last < steps.stop):
        return table
    return table.filter((compute.field("step") >= steps.start) & (compute.field("step") < steps.stop))


@contextmanager
def reading(path: Readable) -> Iterator[None]:
    """Turn any error of a reader of damaged bytes into RunError with the file's name."""
    try:
        yield
    except (RunError, MemoryError):
        raise
    except Exception as error:
        raise RunError(f"{path} is not a whole table ({error!s:.500}); the file was damaged or edited") from None


def to_pandas(table: "pyarrow.Table") -> pd.DataFrame:
    """Return an Arrow table with Python lists, and with `info`, which is JSON text, parsed."""
    from pyarrow import types

    readers = {field.name: _lists for field in table.schema if types.is_list(field.type)}
    if INFO in table.column_names:
        readers[INFO] = lambda column: list(map(read_info, column.to_pylist()))
    frame = table.drop_columns(list(readers)).to_pandas()
    lists = {name: pd.Series(read(table[name]), frame.index, dtype=object) for name, read in readers.items()}
    return frame.assign(**lists)[table.column_names]


def _lists(column: "pyarrow.ChunkedArray") -> list[list[Any]]:
    """Return a column of lists; cutting one long list is much faster than making a list of each row."""
    array = column.combine_chunks()
    values = array.flatten()
    if array.null_count or values.null_count:
        return array.to_pylist()
    flat, ends = values.to_numpy(zero_copy_only=False).tolist(), np.cumsum(array.value_lengths()).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def read_info(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) and text != "{}" else {}


def read_json(path: Readable) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise RunError(f"{path} is missing; the folder is not a whole run") from None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} is not JSON ({error}); the file was damaged or edited") from None
    if not isinstance(data, dict):
        raise RunError(f"{path} holds {type(data).__name__}, not an object; it was not written by mas_lab")
    return data


def dumps(data: Any, path: Path) -> str:
    try:
        return json.dumps(data, indent=2) + "\n"
    except (TypeError, ValueError) as error:
        raise RunError(f"{path} cannot hold it: {error}; only plain data (JSON types) is kept") from None


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, atomically."""
    write_bytes(path, dumps(data, path).encode())


def write_table(path: Path, table: pd.DataFrame) -> bytes:
    """Write a table as parquet, atomically, and return its bytes."""
    data = packed(table)
    write_bytes(path, data)
    return data


def packed(table: "pd.DataFrame | pyarrow.Table") -> bytes:
    """Return a table as parquet."""
    import pyarrow
    from pyarrow import parquet

    if isinstance(table, pd.DataFrame):
        if INFO in table.columns:  # as text, since every step may have other keys
            table = table.assign(**{INFO: table[INFO].map(json.dumps)})
        table = pyarrow.Table.from_pandas(table, preserve_index=False)
    file = io.BytesIO()
    parquet.write_table(table, file)
    return file.getvalue()


def write_bytes(path: Path, data: bytes) -> None:
    """Write the bytes atomically."""
    with atomic(path) as staged:
        staged.write_bytes(data)


@contextmanager
def atomic(path: Path, is_folder: bool = False) -> Iterator[Path]:
    """Yield a file beside `path` to write to, or a folder to fill; then flush and rename it, or delete it on failure.

    A folder at `path` must be absent or empty.
    """
    own = f".{os.getpid()}" if is_folder else ""  # a name that no user's folder has
    staged = path.with_name(f"{path.name}{own}.tmp")
    with writing(path):
        try:
            if is_folder:
                shutil.rmtree(staged, ignore_errors=True)
                staged.mkdir(parents=True)
            yield staged
            for each in (*sorted(staged.rglob("*"), reverse=True), staged):
                flush(each)
            if is_folder and path.exists():
                path.rmdir()
            patiently(lambda: staged.replace(path))
            flush(path.parent)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(staged) if is_folder else staged.unlink()  # it may have filled the disk
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into `Unwritten`; errors of Rust libraries are known by the text "os error"."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) or "(os error " in str(error):
            raise Unwritten(f"{path} cannot be written ({error})") from error
        raise


def remedy(error: Exception) -> str:
    """Return what to do about an error of `writing`."""
    cause = error.__cause__ or error
    found = re.search(r"\(os error (\d+)\)", str(cause))
    number = int(found[1]) if found else getattr(cause, "errno", None)
    return "free space" if number in FULL else "make it writable"


def patiently(change: Callable[[], Any], seconds: float = 5.0) -> None:
    """Run `change`, and retry for `seconds` if Windows refuses because a virus scanner or a page reads the file."""
    end = time.monotonic() + seconds
    while True:
        try:
            change()
            return
        except OSError as error:
            if getattr(error, "winerror", None) not in IN_USE or time.monotonic() > end:
                raise
            time.sleep(0.05)


def flush(path: Path) -> None:
    """Flush to the disk; Windows and some mounted drives cannot flush a folder, so a rename there is less safe."""
    is_dir = path.is_dir()
    if os.name == "nt" and is_dir:
        return
    handle = os.open(path, os.O_RDONLY if is_dir else os.O_RDWR)  # Windows flushes only what is open for writing
    try:
        os.fsync(handle)
    except OSError as error:
        if not is_dir or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def hashes(folder: Path, called: str = "*") -> dict[str, str]:
    """Return the sha256 of each file below `folder` that matches `called`, by path, without litter and hashes.json."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob(called)) if path.is_file()}
    return {name: _sha256(path) for name, path in files.items() if path.name != "hashes.json" and not is_litter(name)}


def changed_file(recorded: dict[str, str], found: dict[str, str]) -> str:
    """Return which file is missing, not recorded or changed, by two results of `hashes`; empty if none is."""
    for name in sorted(recorded.keys() | found.keys()):
        if recorded.get(name) != found.get(name):
            what = "missing" if name not in found else "not recorded" if name not in recorded else "changed"
            return f"{name} is {what}"
    return ""


def is_litter(name: str) -> bool:
    """Return whether a system, a notebook or a killed process put it there; `name` is its path within a folder."""
    return any(part.lower() in LITTER or part.startswith("._") or part.endswith(".tmp") for part in name.split("/"))


def _sha256(path: Path) -> str:
    """Return the sha256, reading in pieces, since weights may be larger than free memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
