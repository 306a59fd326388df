"""Write files atomically: beside their place, flushed to disk, then renamed into it.

A file is complete or absent. Leaves out: the content of files (`run`, `checkpoint`) and their digests (`manifest`).
"""

import errno
import hashlib
import io
import json
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from pandas.api.types import is_object_dtype

if TYPE_CHECKING:
    import pyarrow

Files = Path | zipfile.Path
"""A run's folder, or an exported run's zip."""
INFO = "info"
"""The column that holds plain data of any form."""
LITTER = {".ds_store", "desktop.ini", "thumbs.db", ".ipynb_checkpoints", "__macosx"}
"""Names of files that systems and notebooks leave in folders, in lower case."""


HELD = (5, 32, 145)
"""Windows error codes for a file that somebody has open: access denied, sharing violation, directory not empty."""


class RunError(RuntimeError):
    """A run folder that cannot be written, read or resumed; the message names the file and what to do."""


class Unwritten(RunError):
    """A file that could not be written, because the disk is full or writing is not allowed."""


class Readable(Protocol):
    """A path, or a part of a run that knows its sha256."""

    def read_bytes(self) -> bytes: ...


def read_table(path: Readable, columns: list[str] | None = None) -> pd.DataFrame:
    with _reading(path):
        return with_lists(pd.read_parquet(io.BytesIO(path.read_bytes()), columns=columns))


def read_tables(paths: Sequence[Readable], columns: list[str] | None = None) -> pd.DataFrame:
    """Return the parts of one table, or only `columns`, as one; joining before pandas saves seconds on a long run."""
    parts = read_arrow(paths, columns)
    return with_lists(pd.concat([part.to_pandas() for part in parts], ignore_index=True))


def read_arrow(paths: Sequence[Readable], columns: list[str] | None = None) -> "list[pyarrow.Table]":
    """Return the parts as one Arrow table with flat lists, or each alone if a column mixes lists and numbers."""
    import pyarrow
    from pyarrow import parquet

    parts = []
    for path in paths:
        with _reading(path):
            # parquet.read_table hands every small file to threads, which takes longer than reading it.
            held = parquet.ParquetFile(pyarrow.BufferReader(path.read_bytes()), pre_buffer=False)
            parts.append(held.read(columns, use_threads=False))
    if len(parts) == 1 or _unlike([part.schema for part in parts]):
        return parts
    try:
        return [pyarrow.concat_tables(parts, promote_options="permissive").combine_chunks()]
    except pyarrow.ArrowException as error:
        raise RunError(f"{paths[0]} and those beside it are not parts of one table ({error})") from None


@contextmanager
def _reading(path: Readable) -> Iterator[None]:
    """Turn any error of a reader of damaged bytes into RunError with the file's name."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        raise RunError(f"{path} is not a whole table ({error}); the file was damaged or edited") from None


def _unlike(schemas: Sequence[Any]) -> bool:
    """Return whether a column holds lists in one part and numbers in another, as an advantage may."""
    from pyarrow import types

    if all(schema.equals(schemas[0]) for schema in schemas):
        return False
    seen: dict[str, set[bool]] = {}
    for schema in schemas:
        for field in schema:
            if not types.is_null(field.type):
                seen.setdefault(field.name, set()).add(types.is_list(field.type))
    return any(len(kinds) > 1 for kinds in seen.values())


def with_lists(table: pd.DataFrame, but: Collection[str] = ()) -> pd.DataFrame:
    """Turn parquet's arrays back into lists, except in columns `but`, and parse `info`, which is JSON text or empty."""
    if INFO in table.columns:
        table[INFO] = pd.Series(map(read_info, table[INFO]), index=table.index, dtype=object)
    objects = [name for name, kind in zip(table.columns, table.dtypes, strict=True) if is_object_dtype(kind)]
    for name in (name for name in objects if name not in but):
        table[name] = [value.tolist() if isinstance(value, np.ndarray) else value for value in table[name]]
    return table


def read_info(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else {}


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


def write_table(path: Path, table: pd.DataFrame, notes: Mapping[str, Any] | None = None) -> bytes:
    """Write a table as parquet, atomically, with `notes` (plain data) in the file; return its bytes."""
    data = packed(path, table, notes)
    write_bytes(path, data)
    return data


def packed(path: Path, table: pd.DataFrame, notes: Mapping[str, Any] | None = None) -> bytes:
    """Return the bytes that `write_table` writes."""
    import pyarrow
    from pyarrow import parquet

    if INFO in table.columns:  # as text, since every step may have other keys
        table = table.assign(**{INFO: table[INFO].map(json.dumps)})
    held, file = pyarrow.Table.from_pandas(table, preserve_index=False), io.BytesIO()
    written = {name: dumps(note, path) for name, note in (notes or {}).items()}
    parquet.write_table(held.replace_schema_metadata({**held.schema.metadata, **written}), file)
    return file.getvalue()


def read_note(path: Readable, name: str) -> Any:
    """Return a note of `write_table` without reading the table, or `None`, as after pandas rewrote the file."""
    import pyarrow
    from pyarrow import parquet

    with _reading(path):
        notes = parquet.read_metadata(pyarrow.BufferReader(path.read_bytes())).metadata or {}
        return json.loads(notes.get(name.encode(), "null"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write the bytes atomically."""
    with whole(path) as staged:
        staged.write_bytes(data)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a file beside `path` to write to; it is then flushed and renamed, or deleted if anything fails."""
    staged = path.with_name(path.name + ".tmp")
    with writing(path):
        try:
            yield staged
            flush(staged)
            patiently(lambda: staged.replace(path))
            flush(path.parent)
        except BaseException:
            with suppress(OSError):
                staged.unlink(missing_ok=True)
            raise


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to fill, then flush and rename it to `folder` (absent or empty), or delete it on failure."""
    staged = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")  # a name that no user's folder has
    with writing(folder):
        try:
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir(parents=True)
            yield staged
            for path in sorted(staged.rglob("*"), reverse=True):
                flush(path)
            if folder.exists():
                folder.rmdir()
            patiently(lambda: staged.rename(folder))
            flush(folder.parent)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)  # it may have filled the disk
            raise


def append(path: Path, data: bytes) -> None:
    """Append to a file and flush it; cut the file off again if anything fails."""
    with writing(path), path.open("ab", buffering=0) as file:
        before = file.tell()
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(before)
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


def patiently(change: Callable[[], Any], seconds: float = 5.0) -> None:
    """Run `change`, and retry for `seconds` if Windows refuses because a virus scanner or a page reads the file."""
    end = time.monotonic() + seconds
    while True:
        try:
            change()
            return
        except OSError as error:
            if getattr(error, "winerror", None) not in HELD or time.monotonic() > end:
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


def is_litter(name: str) -> bool:
    """Return whether a system or a notebook put the file there; `name` is its path within a folder."""
    return any(part.lower() in LITTER or part.startswith("._") for part in name.split("/"))


def _sha256(path: Path) -> str:
    """Return the sha256, reading in pieces, since weights may be larger than free memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
