"""Let one process at a time train in a folder: by a lock, or by a file if the drive has no locks.

The file names the process. Leaves out: several trainings in one process, where the later takes the folder over
(`recorder`).
"""

import errno
import json
import os
import platform
import warnings
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mas_lab.runs.disk import RunError

LOCK = "training.lock"
"""Locked by the process that trains in the folder; the file stays after it has ended."""
HOLDER = "training.holder"
"""Used on a drive without locks. It exists while somebody trains, and after a process or machine that died."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


class Claim:
    """A folder that belongs to this process alone until `release()`."""

    def __init__(self, folder: Path, lock: Any = None, said: Mapping[str, Any] | None = None):
        self.folder, self._lock, self._said = folder, lock, said

    @classmethod
    def of(cls, folder: Path) -> "Claim":
        """Claim the folder; raise RunError, which names the holder, if another process has it."""
        from filelock import FileLock, SoftFileLock, Timeout

        lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
        try:
            with warnings.catch_warnings(action="ignore"):  # filelock warns of its fallback; we use another
                lock.acquire()
        except Timeout:
            if not isinstance(lock, SoftFileLock):
                raise RunError(
                    f"{folder}: another process is training in this folder; end it first, or choose another folder"
                ) from None
        except NotImplementedError:
            return cls._without_locks(folder)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return cls._without_locks(folder)
        if isinstance(lock, SoftFileLock):  # filelock's fallback, which names nobody
            lock.release(force=True)
            return cls._without_locks(folder)
        return cls(folder, lock)

    @classmethod
    def _without_locks(cls, folder: Path) -> "Claim":
        """Create the holder file, which only one process can do; the file of a dead local process is deleted."""
        path, own = folder / HOLDER, _this_process()
        for _ in range(2):
            try:
                with path.open("x", encoding="utf-8") as file:
                    json.dump(own, file)
                break
            except FileExistsError:
                if not _is_gone(_holder(path)):
                    break
                path.unlink(missing_ok=True)
        if _holder(path) != own:
            raise RunError(f"{folder}: {_told(path)}")
        return cls(folder, said=own)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release(force=True)
        elif _holder(self.folder / HOLDER) == self._said:
            (self.folder / HOLDER).unlink(missing_ok=True)


def _this_process() -> dict[str, Any]:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return {"process": os.getpid(), "host": platform.node(), "machine": _machine(), "since": now}


def _machine() -> str:
    """Return an id shared by processes that see each other's process numbers; empty if unknown."""
    try:
        space = os.stat("/proc/self/ns/pid").st_ino
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text(encoding='ascii').strip()} {space}"
    except OSError:
        return ""


def _holder(path: Path) -> dict[str, Any]:
    """Return the process that trains, as the file describes it."""
    try:
        holder = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _is_gone(holder: dict[str, Any]) -> bool:
    """Return whether the process died on this machine; on another machine this is unknown (`False`)."""
    number = holder.get("process")
    if not holder.get("machine") or holder["machine"] != _machine() or type(number) is not int or number <= 0:
        return False
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _told(path: Path) -> str:
    holder = _holder(path)
    who = f"process {holder['process']} on {holder.get('host')}" if "process" in holder else "another process"
    since = f" since {holder['since']}" if "since" in holder else ""
    return (
        f"{who} trains in this folder{since}, says {path}. This drive has no locks, so the file stays where a process "
        "or its machine dies: if that happened, delete the file and start again; else end that training, or choose "
        "another folder"
    )
