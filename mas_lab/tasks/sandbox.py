"""Run programs that a model wrote, in a sandbox that reaches nothing outside.

`run(source, entry, inputs)` returns an `Outcome`. There are two tiers. Each is a library's sandbox in worker processes
that may crash alone. `pyeryx` (CPython in WebAssembly, Python 3.12 and later) is used if it is installed, else
`pydantic-monty` (a subset of Python). Expected answers never enter the sandbox: values come out as plain data and are
compared outside. The tasks decide what is right, and what it pays.
"""

import importlib.util
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from mas_lab.arguments import check_arguments
from mas_lab.child import ChildEnded, reply, workers
from mas_lab.tasks.shared import harness

FUEL = 24_000_000_000
"""Default limit of a run, in instructions that pyeryx counts: about one second of CPython itself, three in
WebAssembly."""
LONGEST_OUTPUT = 1 << 16
"""Characters of `stdout` and `stderr` that are kept."""
GRACE = 0.5
"""Seconds after the wall-clock limit at which a worker that did not end its program is ended."""
HOW = 'pip install "pydantic-monty>=1.4", or on Python 3.12 and later pip install pyeryx==0.11.0'
STATUSES = ("ok", "error", "timeout", "memory", "killed", "unsupported", "refused")
TIERS = {"pyeryx": "eryx", "monty": "pydantic_monty"}


@dataclass(frozen=True)
class Outcome:
    """Result of a program.

    `status` belongs to the first call that failed:

    - "ok": every call returned plain data
    - "error": the program raised, does not parse, has no such function, or returned something else than plain data
    - "timeout": out of fuel, or over the wall-clock limit (`backstop`)
    - "memory": out of memory
    - "killed": it ended its interpreter or its worker before it answered
    - "unsupported": this tier lacks something that it uses; CPython might run it, so it is neither right nor wrong
    - "refused": it reached for something that the sandbox does not give: files, a network, processes
    """

    status: str
    """One of the words above (`STATUSES`)."""
    values: tuple[Any, ...] = ()
    """One value per input, `None` where that call failed: None, a bool, int, float or str, or a list, tuple, set or
    dict."""
    stderr: str = ""
    """First error, in one line."""
    stdout: str = ""
    """Printed text."""
    failed: tuple[bool, ...] = ()
    """One entry per input: whether that call failed. Where it is False, a value of `None` is the answer."""
    backstop: bool = False
    """Whether the wall clock ended the program. A slower machine may then see this where a faster one does not."""


def tier() -> str:
    """Return the name of the sandbox in use.

    Returns:
        "pyeryx" if it is installed, else "monty".

    Raises:
        ModuleNotFoundError: If neither is installed. The message says what to install.
    """
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
    """Run `source`, then call its function `entry` on each of `inputs`.

    With an `entry`, what stands under `if __name__ == "__main__":` does not run, as in a module that is imported.

    All calls share the limits. `fuel` decides on pyeryx, allocations and recursion decide on monty. So a program ends
    in the same way on any machine, and `timeout_s` is only a backstop. On monty, `timeout_s` alone ends a loop that
    allocates nothing. `random` starts at the same seed in every run, and sleeping takes no time. Several threads may
    call this function: there is a worker for each core.

    Args:
        source: Program as text.
        entry: Name of a function of the program. `None` (default) calls no function.
        inputs: One list of arguments (plain data) for each call, by default no calls.
        timeout_s: Limit of wall time in seconds, by default 5.
        memory_mb: Limit of memory in MiB, by default 256.
        fuel: Limit of instructions on pyeryx. `None` (default) means `FUEL`.

    Returns:
        The `Outcome`, with one value per input.

    Raises:
        ValueError: If an argument is not plain data or is out of range. The message names the place.
        ModuleNotFoundError: If no sandbox is installed.
    """
    check_arguments(run, locals(), "sandbox.run", timeout_s=0.001, memory_mb=1, fuel=1)
    if (inputs or entry is not None) and (not str(entry).isidentifier() or iskeyword(str(entry))):
        raise ValueError(f"sandbox.run: entry={entry!r}; give the name of a function of the program")
    mark = secrets.token_hex(8)
    text = harness.program(source, entry, inputs, mark)
    if problem := harness.unreadable(source):
        return outcome(len(inputs), mark, reply(error=problem))
    name = tier()
    text = harness.steady(text) if name == "pyeryx" else text  # monty does this itself
    request = [text, float(timeout_s), int(memory_mb), int(fuel or FUEL)]
    try:
        replied = workers(name).ask(request, timeout_s + GRACE)
    except ChildEnded as ended:
        error = f"TimeoutError: no answer in {float(timeout_s):g} s" if ended.late else ""
        replied = reply(error=error, backstop=ended.late, late=ended.late)
    return outcome(len(inputs), mark, replied)


def outcome(count: int, mark: str, replied: Mapping[str, Any]) -> Outcome:
    """Return the outcome of `count` calls from a worker's reply (`child.reply`), whose text must start with `mark`."""
    text, error = replied["text"], replied["error"]
    answers = [(None, error)] * count
    if text is None:
        status = "timeout" if replied["late"] else harness.status_of(error) if error else "killed"
        error = error or "the program ended its interpreter before it answered"
    else:
        try:
            answers = harness.answers(text, count, mark)
            error = next((error for _, error in answers if error is not None), None)
            status = "ok" if error is None else harness.status_of(error)
        except harness.FORGED as why:
            error, status = f"no answer of the harness: {why}", "killed"
    values, failed = tuple(value for value, _ in answers), tuple(error is not None for _, error in answers)
    stderr, stdout = (error or "")[:LONGEST_OUTPUT], replied["stdout"][:LONGEST_OUTPUT]
    return Outcome(status, values, stderr, stdout, failed, replied["backstop"])
