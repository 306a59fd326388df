"""Read a run that somebody else made in a child process first, which may take so much memory and time.

A few thousand bytes may hold gigabytes. If the child cannot read and check the whole run within its limits, nothing of
it is read here. Leaves out: the checks themselves (`check`, `forms`), and which runs are one's own (`runs.trust`).
"""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from mas_lab.paths import PACKAGE
from mas_lab.runs.disk import RunError

LIMIT, USUAL = "MAS_LAB_ZIP_GIB", 2.0
"""Environment variable: how many GiB a run of somebody else may unpack to and take in memory, and the default."""
GIB, SECONDS = 2**30, 120
"""Bytes of a GiB, and seconds that the child may take for each GiB of the limit, or for a part of one."""
CHILD = (
    "import gc; gc.disable(); "  # it would walk through the lists of all tables, again and again
    "from mas_lab.contrib.foreign.check import check_run; from mas_lab.contrib.foreign.child import limited; "
    "limited(check_run)"
)
CHATS = (
    "import sys; sys.modules['torch'] = None; "  # tokenizers do without, and its import takes seconds
    "from mas_lab.contrib.foreign.chats import try_chats; from mas_lab.contrib.foreign.child import limited; "
    "limited(try_chats, seconds={})"
)
CHAT_SECONDS = 60
"""Seconds of computing that the trial of a team's tokenizers may take."""
ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1",
               "OPENBLAS_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8:surrogateescape"}  # fmt: skip
"""Settings with which a process reserves no memory that it does not use."""


def refuse_unreadable(path: Path) -> None:
    """Raise RunError unless a child process could check the run; without limits or processes, check it here."""
    if os.name != "posix" or sys.platform == "emscripten":
        return import_module("mas_lab.contrib.foreign.check").check_run(path)
    limit = size_limit()
    failed, read = in_child(CHILD, path, seconds=SECONDS * max(1, limit / GIB))
    if failed:
        *_, last = [str(path), *read.splitlines()]
        raise RunError(f"{last} takes more than {limit / GIB:.3g} GiB in memory to be read, or minutes; {_remedy()}")


def refuse_chats(tokenizers: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise RunError unless a child process could write and encode chats with tokenizers of somebody else.

    Args:
        tokenizers: The folder of each, and its arguments of the chat template.
    """
    if not tokenizers:
        return
    failed, tried = in_child(CHATS.format(CHAT_SECONDS), json.dumps(tokenizers), seconds=10 * CHAT_SECONDS)
    if failed:
        *_, last = ["a tokenizer", *tried.splitlines()]
        raise RunError(
            f"{last} crashes in a chat as of a run, or takes {CHAT_SECONDS} s or {size_limit() / GIB:.3g} GiB for it; "
            "its chat template, template arguments or tokenizer.json are at fault: ask its maker"
        )


def in_child(code: str, *arguments: str | Path, seconds: float, **environment: str) -> tuple[bool, str]:
    """Run code that calls `limited` in a child process; return whether it failed, and what it printed.

    Raises RunError if the child refused the run.
    """
    # -P: modules in the working folder may be a stranger's
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    environment = os.environ | ENVIRONMENT | environment
    environment["PYTHONPATH"] = os.pathsep.join([str(PACKAGE.parent), *filter(None, sys.path)])
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            timeout=seconds,
        )  # fmt: skip
        failed, output = done.returncode != 0, done.stdout
    except subprocess.TimeoutExpired as error:
        failed, output = True, error.stdout or b""
    read, _, refusal = output.decode("utf-8", "surrogateescape").partition("\0")
    if refusal:
        raise RunError(refusal)
    return failed, read


def limited(use: Callable[..., Any], errors: type[Exception] = RunError, seconds: int | None = None) -> None:
    """Call `use` on the command line's texts, as the child; print each place before it is used, and a refusal."""
    import psutil
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401 - both before the limit

    if sys.platform == "linux":  # macOS lets a process have what it wants
        process = psutil.Process()
        most = process.memory_info().vms + int(size_limit())
        process.rlimit(psutil.RLIMIT_AS, (most, most))
        if seconds:
            end = int(sum(process.cpu_times()[:2])) + seconds
            process.rlimit(psutil.RLIMIT_CPU, (end, end))
    try:
        use(*sys.argv[1:], lambda name: print(name, flush=True))
    except MemoryError:
        raise  # the parent says it
    except errors as error:
        print(f"\0{error or type(error).__name__}", end="")


def refuse_large(path: Path | str, size: int, variable: str = LIMIT, usual: float = USUAL) -> None:
    """Raise RunError if what somebody else made takes more bytes than an environment variable allows."""
    if size > (limit := size_limit(variable, usual)):
        remedy = _remedy(variable, usual)
        raise RunError(f"{path} takes {size / GIB:,.2f} GiB, more than {limit / GIB:.3g}; {remedy}")


def size_limit(variable: str = LIMIT, usual: float = USUAL) -> float:
    """Return the limit in bytes."""
    text = os.environ.get(variable, str(usual))
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < 2**20:
        raise RunError(f"{variable}={text!r} is not a number of GiB above 0; set another, or unset it for {usual:g}")
    return size * GIB


def _remedy(variable: str = LIMIT, usual: float = USUAL) -> str:
    return f'if you trust it, allow more: os.environ["{variable}"] = "{4 * size_limit(variable, usual) / GIB:g}"'


def open_zip(path: Path) -> zipfile.Path:
    """Return the top of an exported run's zip. Nothing is unpacked: a member is read if the manifest names it."""
    try:
        archive = zipfile.ZipFile(path)
    except Exception as error:  # a damaged zip may raise anything
        raise RunError(f"{path} is neither a run's folder nor a zip made by export() ({error})") from None
    refuse_large(path, sum(member.file_size for member in archive.infolist()))
    if "run.json" not in archive.namelist():
        raise RunError(f"{path} holds no run.json, so it was not made by export()")
    return zipfile.Path(archive)
