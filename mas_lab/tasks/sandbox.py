"""Run programs that a model wrote, in a sandbox that reaches nothing outside.

`run(source, entry, inputs)` returns an `Outcome`. There are two tiers. Each is a library's sandbox in worker processes
that may crash alone. `pyeryx` (CPython in WebAssembly, Python 3.12 and later) is used if it is installed, else
`pydantic-monty` (a subset of Python). Expected answers never enter the sandbox: values come out as plain data and are
compared outside. The tasks decide what is right, and what it pays.

The calls are written after the program, with their arguments as literals. Each answer comes out as JSON of plain data,
and only this process takes it apart. So no object of the program is ever compared with anything. The worker processes
are in `child`.
"""

import builtins
import importlib.util
import json
import math
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from mas_lab.arguments import check_arguments
from mas_lab.child import RESULT, ChildEnded, reply, workers
from mas_lab.env import unwritable

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

HARNESS = """
import json as _mas_lab_json
def _mas_lab_plain(v, n=200, most=10 ** 4300):
    t = type(v)
    if n == 0 or t is int and not -most < v < most:
        raise NotImplementedError("a result this deep or this long is not supported in this environment")
    if v is None or t is bool or t is int or t is float or t is str:
        return v
    for name, kinds in (("list", list), ("tuple", tuple), ("set", (set, frozenset)), ("dict", dict)):
        if isinstance(v, kinds):
            return [name, [_mas_lab_plain(p, n - 1) for p in (v.items() if name == "dict" else v)]]
    raise TypeError("returned a " + t.__name__ + ", which is no plain data")
def _mas_lab_call(f, a):
    try:
        return _mas_lab_json.dumps([_mas_lab_plain(f(*a)), None])
    except BaseException as e:
        return _mas_lab_json.dumps([None, type(e).__name__ + ": " + str(e)])
"""
MAIN = re.compile(r"""(['"])__main__\1""")
"""The name of a script, with which `__name__` is compared."""
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "dict": dict}
FORGED = (ValueError, TypeError, KeyError, RecursionError)
"""Errors of reading an answer that the harness did not write."""
MOST_BITS = 14_000
"""Most bits of an int: Python writes and reads 4300 digits."""


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
    text = program(source, entry, inputs, mark)
    if problem := unreadable(source):
        return outcome(len(inputs), mark, reply(error=problem))
    name = tier()
    text = steady(text) if name == "pyeryx" else text  # monty does this itself
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
    found = [(None, error)] * count
    if text is None:
        status = "timeout" if replied["late"] else status_of(error) if error else "killed"
        error = error or "the program ended its interpreter before it answered"
    else:
        try:
            found = answers(text, count, mark)
            error = next((error for _, error in found if error is not None), None)
            status = "ok" if error is None else status_of(error)
        except FORGED as why:
            error, status = f"no answer of the harness: {why}", "killed"
    values, failed = tuple(value for value, _ in found), tuple(error is not None for _, error in found)
    stderr, stdout = (error or "")[:LONGEST_OUTPUT], replied["stdout"][:LONGEST_OUTPUT]
    return Outcome(status, values, stderr, stdout, failed, replied["backstop"])


def program(source: str, entry: str | None, inputs: Sequence[Sequence[Any]], mark: str) -> str:
    """Return `source` followed by the calls of `entry`; its last expression is `mark` and their answers.

    The mark is a secret of the run. So a program that returns early from its module (which monty allows) gives no
    answer. What stands under `if __name__ == "__main__":` does not run before calls, as in a module that is imported.
    """
    source = MAIN.sub(r"\1_mas_lab_main\1", source) if entry else source
    literals = [literal(list(arguments), f"inputs[{i}]") for i, arguments in enumerate(inputs)]
    calls = ", ".join(f"_mas_lab_call({entry}, {arguments})" for arguments in literals)
    return f"{source}\n{HARNESS}\n{RESULT} = '{mark}[' + ', '.join([{calls}]) + ']'\n{RESULT}"


def steady(source: str) -> str:
    """Return `source` after a line that makes random numbers and sleep the same in every run, if it uses them."""
    chance = "import random as _mas_lab_r; _mas_lab_r.seed(0)\n" if "random" in source else ""
    sleep = "import time as _mas_lab_t; _mas_lab_t.sleep = lambda seconds: None\n" if "sleep" in source else ""
    return after(chance + sleep, source)


FUTURE = re.compile(r"(?m)^from __future__ import .*\n")


def after(before: str, source: str) -> str:
    """Return `source` after the lines `before`; imports from `__future__` must come first."""
    return f"{''.join(FUTURE.findall(source))}{before}{FUTURE.sub('', source)}" if before else source


def unreadable(source: str) -> str:
    """Return a syntax error as one line if no Python can read `source`, else an empty text."""
    problem = unwritable(source) or ("source code cannot contain null bytes" if "\0" in source else "")
    return problem and f"SyntaxError: {problem}"


def literal(value: Any, name: str) -> str:
    """Return `value` as a Python literal; raise ValueError with its place if it is not plain data."""
    kind = type(value)
    if kind is int and value.bit_length() > MOST_BITS:
        raise ValueError(f"sandbox.run: {name} has {value.bit_length()} bits; give at most {MOST_BITS}")
    if value is None or kind in (bool, int, str):
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if kind is dict:
        pairs = (f"{literal(k, f'{name}, a key')}: {literal(v, f'{name}[{k!r}]')}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if kind not in (list, tuple, set):
        plain = "None, numbers, text, and lists, tuples, sets, dicts of them"
        raise ValueError(f"sandbox.run: {name} is {value!r:.80} ({kind.__name__}); give {plain}")
    parts = [literal(part, f"{name}[{i}]") for i, part in enumerate(value)]
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return f"{{{', '.join(parts)}}}" if parts else "set()"


def answers(text: str, count: int, begin: str) -> list[tuple[Any, str | None]]:
    """Return the answers of `count` calls, (value, None) or (None, error); raise one of `FORGED` for any other text."""
    if not text.startswith(begin):
        raise ValueError("the program gave one of its own")
    results = [(_plain(value), error) for value, error in json.loads(text.removeprefix(begin))]
    if len(results) != count or not all(error is None or isinstance(error, str) for _, error in results):
        raise ValueError(f"{len(results)} parts for {count} calls")
    return results


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        raise TypeError("the harness writes no objects")
    if not isinstance(value, list):
        return value
    kind, parts = value
    return CONTAINERS[kind](map(_plain, parts))


def status_of(error: str) -> str:
    """Return the status of an error from its last line, `Name: text`."""
    name = error.split(":")[0]
    if name == "MemoryError":
        return "memory"
    if name == "PermissionError" or "not-permitted" in error or "wasi does not support processes" in error:
        return "refused"
    return "unsupported" if is_lacking(error) else "error"


def is_lacking(error: str) -> bool:
    """Return whether CPython has what a sandbox lacks by this error: syntax, a standard module, a name, or a size."""
    missing = MISSING.match(error)
    known = missing and (missing[1] in sys.stdlib_module_names or hasattr(builtins, missing[2] or ""))
    if part := ABSENT.match(error):
        owner, name = filter(None, part.groups()[:: -1 if part[3] else 1])
        known = hasattr(getattr(builtins, owner, owner in sys.stdlib_module_names and sys.modules.get(owner)), name)
    return bool(known or LACKING.match(error))


MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)|NameError: name '(\w+)' is not defined")
ABSENT = re.compile(
    r"AttributeError: (?:module |type object )?'(\w+)' (?:object )?has no attribute '(\w+)'"
    r"|ImportError: cannot import name '(\w+)' from '(\w+)'"
)
LACKING = re.compile(
    r"(?s)(NotImplementedError|RuntimeError).*monty|NotImplementedError: Wildcard|TypeError: callable replacement"
    r"|.*is not supported in this environment"
    r"|RuntimeError: can't start new thread$|AttributeError: 'module' object"
    r"|(Syntax|Pattern)Error: .*(too (deeply nested|large|many (?!st|nested p))|more than 255|NFA|executing regex)"
    r"|OverflowError: Python int too large to convert to C ssize_t|ValueError: pow\(\) 2nd argument cannot be negative"
)
"""Errors that CPython does not raise in such a place: what monty leaves out, and its limits for code and patterns."""
