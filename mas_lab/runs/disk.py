"""Read and write the files of a run: parquet, and JSON. A file is complete or absent, and a changed bit is an error.

A file is written beside its place, flushed to disk, and renamed. The name of a step's table ends in the first 16 hex
digits of its sha256 (`000007-1f2e3d4c5b6a7988.parquet`), and JSON may hold its own sha256. Leaves out: which files a
run has (`run`, `recorder`).
"""

import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    import pyarrow

Files = Path | zipfile.Path
"""A run's folder or an exported run's zip, or a file in it."""
TABLE = re.compile(r"(\d{6,9})-([0-9a-f]{16})\.parquet")
"""Names of tables: the step, and the beginning of the sha256."""
INFO = "info"
"""The column that holds plain data of any form."""
TEXTS = {"task", "episode", "node", "parent", "agent", "policy", "action", "prompt", "completion", "finish", "group"}
"""Columns that hold text in every row."""
LITTER = {".ds_store", "desktop.ini", "thumbs.db", ".ipynb_checkpoints", "__macosx"}
"""Names of files that systems and notebooks leave in folders, in lower case."""


class RunError(RuntimeError):
    """A run folder that cannot be written, read or resumed; the message names the file and what to do."""


class Unwritten(RunError):
    """A file that could not be written, because the disk is full or writing is not allowed."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_bytes(path: Files) -> bytes:
    """Return the bytes of a file; raise `RunError` if it is missing, or if its name has another sha256."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, KeyError):
        raise RunError(f"{path} is missing; put it back, or start again in another folder") from None
    except Exception as error:  # a damaged zip may raise anything
        raise RunError(f"{path} cannot be read ({error!s:.300}); the file was damaged or edited") from None
    if (named := TABLE.fullmatch(path.name)) and not digest(data).startswith(named[2]):
        raise RunError(f"{path} is changed: its sha256 is not the one in its name; put the file back as it was")
    return data


def step_of(path: Files) -> int:
    """Return the step in the name of a table."""
    return int(path.name.partition("-")[0])


def read_table(path: Files, columns: list[str] | None = None) -> pd.DataFrame:
    return read_tables([path], columns)


def read_tables(paths: Sequence[Files], columns: list[str] | None = None) -> pd.DataFrame:
    """Return files of one table, or only `columns` of them, as one table."""
    tables = list(map(to_pandas, read_arrow(paths, columns)))
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


def read_arrow(paths: Sequence[Files], columns: list[str] | None = None) -> "list[pyarrow.Table]":
    """Return files of one table as one Arrow table, or each alone if a column mixes lists and numbers."""
    import pyarrow

    tables = [_read(path, columns) for path in paths]
    try:
        return [pyarrow.concat_tables(tables, promote_options="permissive").combine_chunks()]
    except pyarrow.ArrowException:
        return tables


def _read(path: Files, columns: list[str] | None) -> "pyarrow.Table":
    import pyarrow
    from pyarrow import parquet

    # parquet.read_table hands every small file to threads, which takes longer than reading it.
    file = parquet.ParquetFile(pyarrow.BufferReader(read_bytes(path)), pre_buffer=False)
    table = file.read(columns, use_threads=False)
    return table if columns is None else table.select([name for name in columns if name in table.column_names])


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


def read_json(path: Files) -> dict[str, Any]:
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); the file was damaged or edited") from None


def read_hashed(path: Files) -> dict[str, Any]:
    """Return the data of `hashed`; raise `RunError` if it is changed."""
    data = read_json(path)
    if data.pop("sha256", None) != digest(dumps(data, path, indent=None).encode()):
        raise RunError(
            f"{path} is changed: it holds another sha256; put the file back as it was. If an earlier version of "
            "mas_lab wrote it, open it with that version"
        )
    return data


def dumps(data: Any, path: Path, indent: int | None = 2) -> str:
    try:
        return json.dumps(data, indent=indent) + "\n"
    except (TypeError, ValueError) as error:
        raise RunError(f"{path} cannot hold it: {error}; only plain data (JSON types) is kept") from None


def write_json(path: Path, data: Any) -> None:
    """Write plain data as JSON, atomically."""
    write_bytes(path, dumps(data, path).encode())


def hashed(data: dict[str, Any], path: Path) -> bytes:
    """Return plain data as JSON that holds its own sha256, for the file `path`."""
    return dumps({**data, "sha256": digest(dumps(data, path, indent=None).encode())}, path).encode()


def write_hashed(path: Path, data: dict[str, Any]) -> None:
    """Write plain data as JSON that holds its own sha256, atomically."""
    write_bytes(path, hashed(data, path))


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as parquet, atomically."""
    write_bytes(path, packed(table))


def write_step(folder: Path, step: int, table: pd.DataFrame) -> Path:
    """Write the table of a step as parquet, atomically, and return its path, which holds the step and the sha256."""
    data = packed(table)
    path = folder / f"{step:06d}-{digest(data)[:16]}.parquet"
    write_bytes(path, data)
    return path


def packed(table: pd.DataFrame) -> bytes:
    """Return a table as parquet."""
    import pyarrow
    from pyarrow import parquet

    if INFO in table.columns:  # as text, since every step may have other keys
        table = table.assign(**{INFO: table[INFO].map(json.dumps)})
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pandas(table, preserve_index=False), file)
    return file.getvalue()


def write_bytes(path: Path, data: bytes) -> None:
    """Write the bytes atomically."""
    with atomic(path) as staged:
        staged.write_bytes(data)


@contextmanager
def atomic(path: Path, is_folder: bool = False) -> Iterator[Path]:
    """Yield a file beside `path` to write to, or a folder to fill; then flush and rename it, or delete it on failure.

    A folder at `path` must be absent or empty. Raises `Unwritten` for errors of the file system.
    """
    staged = path.with_name(f"{path.name}.tmp")
    with writing(path):
        try:
            staged.parent.mkdir(parents=True, exist_ok=True)
            if is_folder:
                shutil.rmtree(staged, ignore_errors=True)
                staged.mkdir()
            yield staged
            for each in (*sorted(staged.rglob("*"), reverse=True), staged):
                flush(each)
            if is_folder and path.exists():
                path.rmdir()
            staged.replace(path)
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
            raise Unwritten(f"{path} cannot be written ({error}); free space or make it writable") from error
        raise


def flush(path: Path) -> None:
    """Flush a file or folder to the disk; Windows cannot flush a folder."""
    if (is_dir := path.is_dir()) and os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY if is_dir else os.O_RDWR)  # Windows flushes only what is open for writing
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_litter(name: str) -> bool:
    """Return whether a system, a notebook or a killed process put it there; `name` is its path within a folder."""
    return any(part.lower() in LITTER or part.startswith("._") or part.endswith(".tmp") for part in name.split("/"))
