"""Read a run in a zip that somebody else made: in place, never unpacked to disk, and within a limit.

The whole list of members is checked before any of them is read, and a table is weighed before it is unpacked. Folders
are not limited, since a run in a folder is the user's own. Leaves out: the content of tables (`forms`).
"""

import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from stat import S_IFMT, S_ISLNK

from mas_lab.runs.disk import RunError, is_litter, read_arrow, with_lists
from mas_lab.runs.estimate_memory import estimate_memory, text_bytes
from mas_lab.runs.forms import LISTS, check_table
from mas_lab.table import TableError

LIMIT = "MAS_LAB_ZIP_GIB"
"""Environment variable: how many GiB a zip may unpack to, and its tables may take in memory."""
GIB, USUAL = 2**30, 2.0
ROWS = 10_000_000
"""Rows per GiB of the limit."""
JSON = 32
"""A JSON file or the manifest may take this fraction (1/32) of the limit, since it is far larger in memory."""
LISTED = 2**24
"""Bytes that the list of members may take: about 200,000 members."""
AT_ONCE = 2**20
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
"""Errors of reading a member that is damaged, or packed in a way that Python cannot unpack."""


@dataclass
class Account:
    """The amounts that were read of a zip, and their limit."""

    limit: float
    rows: int = 0
    bytes: int = 0
    passed: set[str] = field(default_factory=set)
    """Tables that were weighed and checked."""


class Zipped(zipfile.Path):
    """A path in a zip, for reading; `open_zip` returns the top."""

    def open(self, mode: str = "r", *_, **__) -> io.BytesIO | io.StringIO:
        return io.BytesIO(self.read_bytes()) if "b" in mode else io.StringIO(self.read_text(encoding="utf-8"))

    def read_text(self, encoding: str = "utf-8", *_, **__) -> str:
        return self.read_bytes().decode(encoding)

    def read_bytes(self) -> bytes:
        """Return the bytes; raise RunError if the member is damaged or holds too much."""
        account: Account = self.root.account
        if self.name.endswith((".json", ".txt")):
            size = self.root.getinfo(self.at).file_size
            _refuse_beyond(size, account.limit / JSON, f"{self} unpacks to", "as JSON")
        data = self._unpacked()
        if self.name.endswith(".parquet") and self.at not in account.passed:
            self._pass(data, account)
        return data

    def _unpacked(self) -> bytes:
        """Return the unpacked bytes, at most as many as the zip's list states; if it is wrong, the checksum differs."""
        data, size = bytearray(), self.root.getinfo(self.at).file_size
        with _named(str(self), "was damaged or edited"), self.root.open(self.at) as member:
            while piece := member.read(AT_ONCE):
                data += piece
        if len(data) != size:
            raise RunError(f"{self} is {len(data)} bytes, and the zip's list says {size}; it was damaged or edited")
        return bytes(data)

    def _pass(self, data: bytes, account: Account) -> None:
        """Weigh a table and compare it with the limit before it is read, then check it once."""
        with _named(str(self), "is not a whole table, or none that train() wrote"):
            weight = estimate_memory(data)
        _refuse_more_rows(account.rows + weight.rows, account.limit, str(self))
        told, left = f"{self}: the tables read so far take", account.limit - account.bytes
        _refuse_beyond(account.bytes + max(weight.bytes, weight.pages), account.limit, told, "in memory")
        with _named(str(self), "is not a whole table, or none that train() wrote"):
            text = weight.text if weight.text < min(left, AT_ONCE) else text_bytes(data)
        _refuse_beyond(account.bytes + weight.bytes + text, account.limit, told, "in memory")
        with _named(str(self), "is not a whole table, or none that train() wrote"):
            [held] = read_arrow([_Held(str(self), data)])
            check_table(with_lists(held.to_pandas(), but=LISTS), self.parent.name, str(self))
        account.passed.add(self.at)
        account.rows, account.bytes = account.rows + weight.rows, account.bytes + weight.bytes + text


@dataclass(frozen=True)
class _Held:
    """A member that is already unpacked, readable like a path."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    def read_bytes(self) -> bytes:
        return self.data


def open_zip(path: Path) -> Zipped:
    """Return the top of an exported run's zip; raise RunError naming a member that does not belong in one."""
    limit = _limit()
    _refuse_beyond(path.stat().st_size, limit, f"{path} takes", "on disk")
    try:
        archive = zipfile.ZipFile(_Reader(path))
    except UNREADABLE as error:
        raise RunError(f"{path} is neither a run's folder nor a zip made by export() ({error})") from None
    archive.filename = str(path)
    seen: set[str] = set()
    for member in archive.infolist():
        if why := _why_not(member, seen):
            raise RunError(f"{path}: its member {member.filename!r:.200} {why}; let it be made again by export()")
        seen.add(member.filename)
    _refuse_beyond(sum(member.file_size for member in archive.infolist()), limit, f"{path} unpacks to", "of files")
    archive.account = Account(limit)
    return Zipped(archive)


class _Reader(io.FileIO):
    """A zip file that refuses a list of members longer than any run has."""

    def read(self, size: int = -1) -> bytes:
        if size > LISTED:
            raise zipfile.BadZipFile(f"its list of members takes {size:,} bytes, more than {LISTED:,}")
        return super().read(size)

    def __del__(self):
        self.close()


def _why_not(member: zipfile.ZipInfo, seen: set[str]) -> str:
    """Return why export() would not write this member; empty if it would."""
    name, kind = member.filename, S_IFMT(member.external_attr >> 16)
    if name in seen:
        return "is there twice"
    if not name or PurePosixPath(name).is_absolute() or PureWindowsPath(name).anchor or "\\" in name:
        return "is not named by its place in a run's folder"
    if {"..", "."} & set(name.split("/")) or not name.isprintable():
        return "is not named by its place in a run's folder"
    if S_ISLNK(kind):
        return "is a link"
    if is_litter(name):
        return ""
    if member.flag_bits & 1:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed in a way that export() does not use"
    return ""


def _limit() -> float:
    """Return the limit in bytes."""
    text = os.environ.get(LIMIT, str(USUAL))
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < 2**20:
        raise RunError(f"{LIMIT}={text!r} is not a number of GiB above 0; set another, or unset it for {USUAL:g}")
    return size * GIB


def _refuse_beyond(size: float, limit: float, told: str, what: str) -> None:
    if size > limit:
        raise RunError(f"{told} {size / GIB:,.2f} GiB {what}, more than {limit / GIB:.3g}; {_how_to_raise()}")


def _refuse_more_rows(rows: int, limit: float, told: str) -> None:
    most = int(limit / GIB * ROWS)
    if rows > most:
        raise RunError(f"{told}: the tables read so far hold {rows:,} rows, more than {most:,}; {_how_to_raise()}")


def _how_to_raise() -> str:
    now = _limit() / GIB
    return (
        f"a zip from others may hold {now:g} GiB and {now * ROWS:,.0f} rows. If you trust it, raise both: "
        f'os.environ["{LIMIT}"] = "{4 * now:g}"'
    )


@contextmanager
def _named(path: str, what: str) -> Iterator[None]:
    """Turn any error of reading a member into RunError with its name."""
    try:
        yield
    except (RunError, TableError):
        raise
    except Exception as error:
        raise RunError(f"{path} {what} ({type(error).__name__}: {error!s:.300})") from error
