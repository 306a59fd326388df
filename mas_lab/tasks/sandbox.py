"""Programs that a model wrote, run where they reach nothing: `run(source, entry, inputs)` and what came of it.

Two tiers, each a library's sandbox in worker processes that may crash alone: `pyeryx` (CPython in WebAssembly, Python
3.12 and later) where it is installed, else `pydantic-monty` (a subset of Python). Expected answers never enter: values
come out as plain data and are compared out here. Leaves out: what is right, and what it pays (the tasks).
"""

import importlib.util
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mas_lab.backends.workers import usable_cores
from mas_lab.tasks.shared import harness, monty, wasm
from mas_lab.tasks.shared.child import Child, ChildEnded

FUEL = 24_000_000_000
"""Instructions of a run that pyeryx counts: about a second of CPython's own, which takes three in WebAssembly."""
MOST_KEPT = 1 << 16
"""Characters of `stdout` and `stderr` that are kept."""
GRACE = 0.5
"""Seconds beyond the wall clock's limit at which a worker that did not end its program is ended itself."""
HOW = 'pip install "pydantic-monty>=1.4", or on Python 3.12 and later pip install pyeryx==0.11.0'
STATUSES = ("ok", "error", "timeout", "memory", "killed", "unsupported", "refused")
TIERS = {"pyeryx": "eryx", "monty": "pydantic_monty"}


@dataclass(frozen=True)
class Outcome:
    """What came of a program.

    `status`, that of the first call that failed:
    - "ok": every call returned plain data;
    - "error": it raised, does not parse, has no such function, or returned what is no plain data;
    - "timeout": out of fuel, or over the wall clock's limit (`backstop`);
    - "memory": out of memory; "killed": it ended its interpreter or its worker before it answered;
    - "unsupported": this tier lacks what it uses; CPython might run it. It is neither right nor wrong;
    - "refused": it reached for what the sandbox does not give: files, a network, processes.
    """

    status: str
    values: tuple[Any, ...] = ()
    """One per input, None where that call failed: None, a bool, int, float or str, or a list, tuple, set or dict."""
    stderr: str = ""
    """What went wrong first, in a line."""
    stdout: str = ""
    failed: tuple[bool, ...] = ()
    """One per input: a value of None is an answer where this is False."""
    backstop: bool = False
    """Whether the wall clock ended it, so that a slower machine may see this where a quick one does not."""


def tier() -> str:
    """ "pyeryx" or "monty", whichever is installed, in this order. Raises ModuleNotFoundError with what to install."""
    for name, module in TIERS.items():
        if importlib.util.find_spec(module):
            return name
    raise ModuleNotFoundError(f"programs that a model wrote need a sandbox, and none is installed: {HOW}")


def run(
    source: str,
    entry: str | None = None,
    inputs: Sequence[Sequence[Any]] = (),
    timeout_s: float = 5,
    memory_mb: int = 256,
    fuel: int | None = None,
) -> Outcome:
    """Runs `source`, then calls its function `entry` on each of `inputs` (lists of arguments, plain data).

    All calls share the limits. `fuel` (instructions, `FUEL` by default) decides on pyeryx, allocations and recursion on
    monty, so that a program ends alike on any machine; `timeout_s` is wall time, the backstop. On monty a loop that
    allocates nothing is ended by it alone. `random` begins at the same seed, and sleeping takes no time.

    May be called from several threads: there is a worker for each core. Raises ValueError for arguments that are no
    plain data or out of range, naming the place.
    """
    fuel = FUEL if fuel is None else fuel
    _check(source, entry, inputs, {"timeout_s": timeout_s, "memory_mb": memory_mb, "fuel": fuel})
    text = harness.program(source, entry, inputs)
    if problem := harness.unreadable(source):
        told = Told(error=problem)
    else:
        name = tier()
        text = harness.steady(text) if name == "pyeryx" else text  # monty has it of its own
        told = _engine(name)(text, float(timeout_s), int(memory_mb), int(fuel))
    return outcome(told, len(inputs), harness.mark(source))


def _check(source: Any, entry: Any, inputs: Sequence, limits: dict[str, Any]) -> None:
    if not isinstance(source, str):
        raise ValueError(f"sandbox.run: source is {source!r}; give a program as text")
    if entry is not None and not harness.is_name(entry):
        raise ValueError(f"sandbox.run: entry={entry!r}; give the name of a function of the program, or None")
    if not isinstance(inputs, list | tuple):
        raise ValueError(f"sandbox.run: inputs is {inputs!r:.80}; give a list with a list of arguments for each call")
    if entry is None and inputs:
        raise ValueError("sandbox.run: inputs need an entry, the function they are given to")
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
            raise ValueError(f"sandbox.run: {name}={limit!r}; give a number above 0")
        if name != "timeout_s" and limit < 1:
            raise ValueError(f"sandbox.run: {name}={limit!r}; give at least 1")


@dataclass(frozen=True)
class Told:
    """What an engine says: `text`, the harness's answer; or `error`, what ended the program without one (empty where
    its interpreter ended)."""

    text: str | None = None
    error: str = ""
    said: str = ""
    backstop: bool = False
    late: bool = False


def outcome(told: Told, count: int, mark: str) -> Outcome:
    """`told` as the outcome of `count` calls, where an answer begins with `mark`."""
    nothing, said = {"values": (None,) * count, "failed": (True,) * count}, told.said[:MOST_KEPT]
    if told.text is None:
        status = "timeout" if told.late else harness.status_of(told.error) if told.error else "killed"
        error = told.error or "the program ended its interpreter before it answered"
        return Outcome(status, stderr=error[:MOST_KEPT], stdout=said, backstop=told.backstop, **nothing)
    try:
        answers = harness.answers(told.text, count, mark)
    except ValueError as error:
        return Outcome("killed", stderr=str(error), stdout=said, **nothing)
    first = next((error for _, error in answers if error is not None), None)
    return Outcome(
        "ok" if first is None else harness.status_of(first),
        tuple(value for value, _ in answers),
        (first or "")[:MOST_KEPT],
        said,
        tuple(error is not None for _, error in answers),
    )


class Workers:
    """A child for each core, each running `file`; one that died is replaced at the next program."""

    def __init__(self, file: str):
        self.file, self.free, self.idle = file, threading.BoundedSemaphore(usable_cores()), []

    def __call__(self, source: str, seconds: float, megabytes: int, fuel: int) -> Told:
        with self.free:
            child = self._living() or Child(self.file)
            try:
                told = Told(**child.ask([source, seconds, megabytes, fuel], seconds + GRACE))
            except ChildEnded as ended:
                late = ended.late
                return Told(error=f"TimeoutError: no answer in {seconds:g} s" if late else "", backstop=late, late=late)
            self.idle.append(child)
            return told

    def _living(self) -> Child | None:
        while self.idle:
            if (child := self.idle.pop()).lives:
                return child
        return None


_engines: dict[tuple[int, str], Workers] = {}
"""By process and tier: a process that was forked starts workers of its own, and leaves its parent's alone."""


def _engine(name: str) -> Workers:
    return _engines.setdefault((os.getpid(), name), Workers({"pyeryx": wasm, "monty": monty}[name].__file__))
