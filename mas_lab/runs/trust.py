"""Whether this computer wrote a run. What somebody else made is checked by `contrib.foreign` before it is read.

A folder counts as one's own if this computer wrote its run.json: `mark_own` notes the inode and the time of that file,
which no copy keeps.
"""

from importlib import import_module
from pathlib import Path
from types import ModuleType

from mas_lab.runs.disk import RunError, write_bytes

OWN = "own.txt"


def mark_own(folder: Path) -> None:
    write_bytes(folder / OWN, _mark(folder))


def is_own(folder: Path) -> bool:
    try:
        return (folder / OWN).read_bytes() == _mark(folder)
    except OSError:
        return False


def _mark(folder: Path) -> bytes:
    there = (folder / "run.json").stat()
    return f"{there.st_ino} {there.st_ctime_ns}\n".encode()


def refuse_untrusted(path: Path) -> None:
    """Raise RunError if a run holds links, devices or pipes, or if it is somebody else's and cannot be read."""
    for file in path.rglob("*"):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            raise RunError(f"{file} is a link, a device or a pipe; a run holds files alone: put the file in its place")
    if not is_own(path):
        foreign().refuse_unreadable(path)


def foreign() -> ModuleType:
    """Import the module that reads what somebody else made; one's own runs do without it."""
    return import_module("mas_lab.contrib.foreign.child")
