"""A run in a zip that somebody else made: read where it lies, never unpacked to disk, and never beyond a limit.

All that the zip lists is looked at before anything of it is read, and a table is weighed before it is unpacked. Leaves
out: what the tables must hold (`forms`). Folders are not limited: a run in a folder is one's own, however long.
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
from mas_lab.runs.forms import LISTS, check_table
from mas_lab.runs.weighing import text_bytes, weigh
from mas_lab.table import TableError

LIMIT = "MAS_LAB_ZIP_GIB"
"""The variable that sets how many GiB a zip may unpack to, and its tables take in memory."""
GIB, USUAL = 2**30, 2.0
ROWS = 10_000_000
"""Rows for each GiB."""
JSON = 32
"""A JSON file, or the manifest, may take this part of the limit: in memory it is many times as long as on disk."""
LISTED = 2**24
"""Bytes that the list of members may take: some 200,000 of them."""
AT_ONCE = 2**20
UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, ValueError)
"""What reading a member raises that is damaged, or packed in a way that Python cannot unpack."""


@dataclass
class Account:
    """What has been read of a zip, and how much may be."""

    limit: float
    rows: int = 0
    bytes: int = 0
    passed: set[str] = field(default_factory=set)
    """Tables that were weighed and looked at."""


class Zipped(zipfile.Path):
    """A place in a zip, for reading; `open_zip` gives the top."""

    def open(self, mode: str = "r", *_, **__) -> io.BytesIO | io.StringIO:
        return io.BytesIO(self.read_bytes()) if "b" in mode else io.StringIO(self.read_text(encoding="utf-8"))

    def read_text(self, encoding: str = "utf-8", *_, **__) -> str:
        return self.read_bytes().decode(encoding)

    def read_bytes(self) -> bytes:
        """RunError where it is damaged or holds too much."""
        account: Account = self.root.account
        if self.name.endswith((".json", ".txt")):
            size = self.root.getinfo(self.at).file_size
            _refuse_beyond(size, account.limit / JSON, f"{self} unpacks to", "as JSON")
        data = self._unpacked()
        if self.name.endswith(".parquet") and self.at not in account.passed:
            self._pass(data, account)
        return data

    def _unpacked(self) -> bytes:
        """At most the bytes that the zip's list says: it may lie, and then the checksum differs."""
        data, size = bytearray(), self.root.getinfo(self.at).file_size
        with _named(str(self), "was damaged or edited"), self.root.open(self.at) as member:
            while piece := member.read(AT_ONCE):
                data += piece
        if len(data) != size:
            raise RunError(f"{self} is {len(data)} bytes, and the zip's list says {size}; it was damaged or edited")
        return bytes(data)

    def _pass(self, data: bytes, account: Account) -> None:
        """A table enters the account, by its weight, before it is read; then it is looked at, once."""
        with _named(str(self), "is not a whole table, or none that train() wrote"):
            weight = weigh(data)
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
    """A member that is unpacked already, to be read as one."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    def read_bytes(self) -> bytes:
        return self.data


def open_zip(path: Path) -> Zipped:
    """The top of an exported run's zip. RunError names the member that makes it another thing."""
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
    """A zip file whose list of members is not read where it is longer than any run's."""

    def read(self, size: int = -1) -> bytes:
        if size > LISTED:
            raise zipfile.BadZipFile(f"its list of members takes {size:,} bytes, more than {LISTED:,}")
        return super().read(size)

    def __del__(self):
        self.close()


def _why_not(member: zipfile.ZipInfo, seen: set[str]) -> str:
    """What no zip made by export() has; empty if it is well."""
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
    """In bytes."""
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
    """Whatever reading a member raises is the member's matter, and says so."""
    try:
        yield
    except (RunError, TableError):
        raise
    except Exception as error:
        raise RunError(f"{path} {what} ({type(error).__name__}: {error!s:.300})") from error
