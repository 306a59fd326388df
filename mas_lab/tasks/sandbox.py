"""Programs that a model wrote, run where they reach nothing: `run(source, entry, inputs)` and what came of it.

Two tiers, each a library's sandbox in worker processes that may crash alone: `pyeryx` (CPython in WebAssembly, Python
3.12 and later) where it is installed, else `pydantic-monty` (a subset of Python). Expected answers never enter: values
come out as plain data and are compared out here. Leaves out: what is right, and what it pays (the tasks).
"""

import datetime
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mas_lab.tasks.shared import harness, wasm
from mas_lab.tasks.shared.child import Child, ChildEnded

FUEL = 24_000_000_000
"""Instructions of a run that pyeryx counts: about a second of CPython's own, which takes three in WebAssembly."""
RECURSION = 500
"""Calls within each other that monty allows; pyeryx keeps CPython's own limit."""
MOST_PRINTED = 16 << 20
"""Bytes that a program may print on monty; on pyeryx they lie in its own memory."""
MOST_KEPT = 1 << 16
"""Characters of `stdout` and `stderr` that are kept."""
GRACE = 0.5
"""Seconds beyond the wall clock's limit at which a worker that did not end its program is ended itself."""
HOW = 'pip install "pydantic-monty>=1.4", or on Python 3.12 and later pip install pyeryx==0.11.0'
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
    _check(source, entry, inputs, {"timeout_s": timeout_s, "memory_mb": memory_mb, "fuel": fuel or FUEL})
    text = harness.program(source, entry, inputs)
    if problem := harness.unreadable(source):
        told = Told(error=problem)
    else:
        told = _engine(tier())(text, float(timeout_s), int(memory_mb), int(fuel or FUEL))
    return outcome(told, len(inputs))


def _check(source: Any, entry: Any, inputs: Sequence, limits: dict[str, Any]) -> None:
    if not isinstance(source, str):
        raise ValueError(f"sandbox.run: source is {source!r}; give a program as text")
    if entry is not None and not (isinstance(entry, str) and entry.isidentifier()):
        raise ValueError(f"sandbox.run: entry={entry!r}; give the name of a function of the program, or None")
    if entry is None and len(inputs):
        raise ValueError("sandbox.run: inputs need an entry, the function they are given to")
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf:
            raise ValueError(f"sandbox.run: {name}={limit!r}; give a number above 0")


@dataclass(frozen=True)
class Told:
    """What an engine says: `text`, the harness's answer; or `error`, what ended the program without one (empty where
    its interpreter ended)."""

    text: str | None = None
    error: str = ""
    said: str = ""
    backstop: bool = False
    late: bool = False


def outcome(told: Told, count: int) -> Outcome:
    """`told` as the outcome of `count` calls."""
    nothing, said = {"values": (None,) * count, "failed": (True,) * count}, told.said[:MOST_KEPT]
    if told.text is None:
        status = "timeout" if told.late else harness.status_of(told.error) if told.error else "killed"
        error = told.error or "the program ended its interpreter before it answered"
        return Outcome(status, stderr=error[:MOST_KEPT], stdout=said, backstop=told.backstop, **nothing)
    try:
        answers = harness.answers(told.text, count)
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


# The engines: a program, seconds, megabytes and fuel -> Told.
Engine = Callable[[str, float, int, int], Told]


class Monty:
    """The library's own pool of worker processes."""

    def __init__(self):
        import pydantic_monty

        self.library = pydantic_monty
        graces = {"feed_duration_limit_grace": GRACE, "turn_duration_limit_grace": GRACE}
        self.pool = pydantic_monty.Monty(max_processes=cores(), **graces).__enter__()
        midnight = datetime.datetime(2000, 1, 1)
        self.policy = {"datetime": midnight, "sleep": "zero", "process_time": "zero", "random_start": {"seed": 0}}

    def __call__(self, source: str, seconds: float, megabytes: int, fuel: int) -> Told:
        limits = {"max_feed_duration_secs": seconds, "max_memory": megabytes << 20, "max_recursion_depth": RECURSION}
        printed = self.library.CollectStreams(max_bytes=MOST_PRINTED)
        text, error, late = None, "", False
        try:
            with self.pool.checkout(limits=limits, os_policy=self.policy) as session:
                text = session.feed_run(source, print_callback=printed)
        except self.library.MontyCrashedError as crash:
            error, late = str(crash) if crash.timed_out else "", crash.timed_out
        except self.library.MontyError as failure:
            raised = failure.exception()
            error = f"{type(raised).__name__}: {raised}"
            late = isinstance(raised, TimeoutError) and "time limit exceeded" in error
        said = "".join(text for stream, text in printed.output if stream == "stdout")
        return Told(text if isinstance(text, str) else None, error, said, backstop=late, late=late)


class Pyeryx:
    """A child for each core; one that died is replaced at the next program."""

    def __init__(self):
        self.free, self.idle = threading.BoundedSemaphore(cores()), []

    def __call__(self, source: str, seconds: float, megabytes: int, fuel: int) -> Told:
        with self.free:
            child = self.idle.pop() if self.idle else Child(wasm.__file__)
            try:
                told = Told(**child.ask([harness.steady(source), seconds, megabytes, fuel], seconds + GRACE))
            except ChildEnded as ended:
                late = ended.late
                return Told(error=f"TimeoutError: no answer in {seconds:g} s" if late else "", backstop=late, late=late)
            self.idle.append(child)
            return told


def cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_engines: dict[str, Engine] = {}
_parents: list[Engine] = []
"""Those of the process that this one was forked from: kept, since one that is forgotten ends its workers."""
_starting = threading.Lock()


def _engine(name: str) -> Engine:
    with _starting:
        if name not in _engines:
            _engines[name] = {"pyeryx": Pyeryx, "monty": Monty}[name]()
        return _engines[name]


def _after_a_fork() -> None:
    global _starting
    _starting = threading.Lock()
    _parents.extend(_engines.values())
    _engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_a_fork)
