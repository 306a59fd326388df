"""Programs in answers: finding one in a text, running it on cases, and reading cases that somebody wrote as asserts.

A case is `[arguments, expected]`, plain data. What is expected never enters the sandbox: it is compared out here.
Leaves out: how programs are run (`sandbox`), and what passing is worth (the tasks).
"""

import ast
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mas_lab.tasks import sandbox
from mas_lab.tasks.shared.harness import literal

Case = Sequence[Any]
"""`[arguments, expected]`."""
LIMITS = {"timeout_s": 20, "memory_mb": 256, "fuel": 8_000_000_000}
"""Of all cases of a program together: a second in WebAssembly. The clock is far off, so that it decides nothing."""
CLOSE = 1e-6
"""Relative and absolute tolerance between two floats."""
FENCED = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", flags=re.DOTALL | re.IGNORECASE)


def read_code(text: str) -> str | None:
    """The program in an answer: its last fenced block, else all of it if it parses. None: none that can be read."""
    blocks = FENCED.findall(text)
    source = (blocks[-1] if blocks else text).strip()
    return source if source and parsed(source) else None


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None where there is none."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def function(source: str, name: str) -> ast.FunctionDef | None:
    """The last top-level function of that name."""
    body = getattr(parsed(source), "body", [])
    return next((part for part in reversed(body) if isinstance(part, ast.FunctionDef) and part.name == name), None)


@dataclass(frozen=True)
class Graded:
    """A program's answers to cases."""

    passed: tuple[bool, ...]
    """One per case."""
    outcome: sandbox.Outcome

    @property
    def share(self) -> float:
        """Of the cases, 0 to 1; 0 where there are none."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0

    @property
    def unknown(self) -> bool:
        """The tier could not run it: neither right nor wrong."""
        return self.outcome.status == "unsupported"

    @property
    def error(self) -> str:
        return readable(self.outcome.stderr)

    @property
    def info(self) -> dict[str, Any]:
        """For `Step.info`: how it ended, and what ended it if not the last case."""
        told = {"status": self.outcome.status, "passed": sum(self.passed), "cases": len(self.passed)}
        error = {"error": self.error} if self.error else {}
        return told | error | ({"backstop": True} if self.outcome.backstop else {})


LONGEST_ERROR = 200
"""Characters of what a program raised that are kept."""
LONGEST_LINE = 300
"""Characters of a printed line that are kept. One that has as many is no answer."""


def readable(text: str, longest: int = LONGEST_ERROR) -> str:
    """The first characters of what a program said, as a file holds them."""
    return text[:longest].encode(errors="replace").decode()


@dataclass(frozen=True)
class Printed:
    """A program that prints its answer: `status` and `backstop` of its `Outcome`, the last line that it printed but for
    blank ones, and in a line what went wrong."""

    status: str
    line: str = ""
    error: str = ""
    backstop: bool = False

    @property
    def unknown(self) -> bool:
        """The tier could not run it: neither right nor wrong."""
        return self.status == "unsupported"

    @property
    def info(self) -> dict[str, Any]:
        """For `Step.info`."""
        error = {"error": self.error} if self.error else {}
        return {"status": self.status, "printed": self.line} | error | ({"backstop": True} if self.backstop else {})


_warned: set[str] = set()
"""Envs that have told of a program which could not be judged: each does so once."""


def unjudged(judged: Graded | Printed, env: str, task: str, agent: str, turn: int) -> list[dict[str, Any]]:
    """Whose program the tier could not run, `[{"agent", "turn", "error"}]`, for `unknown` of `Step.info`; [] if it
    could. Warns of the first in a process, and says what to install."""
    if not judged.unknown:
        return []
    if env not in _warned:
        _warned.add(env)
        tier = sandbox.tier()
        more = "pyeryx runs all of CPython: pip install pyeryx==0.11.0, on Python 3.12 and later"
        warnings.warn(
            f"{env}: task {task}, agent {agent!r}, turn {turn}: a program uses what {tier} lacks ({judged.error}), and "
            f"is counted neither right nor wrong. {more if tier == 'monty' else 'No tier has it'}. Said once.",
            stacklevel=2,
        )
    return [{"agent": agent, "turn": turn, "error": judged.error}]


_known: dict[tuple[str, str, str], sandbox.Outcome] = {}
MOST_KNOWN = 8192


def grade(source: str, entry: str, cases: Sequence[Case], alike: Callable[[Any, Any], bool] | None = None) -> Graded:
    """Runs `entry` of `source` on the arguments of each case. A sandbox is asked the same thing once. `alike(value,
    expected)` says what passes: by default `same`."""
    inputs = [list(arguments) for arguments, _ in cases]
    key = (source, entry, literal(inputs, "cases"))
    if key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[key] = sandbox.run(source, entry, inputs, **LIMITS)
    outcome = _known[key]
    answers = zip(outcome.values, outcome.failed, cases, strict=True)
    alike = alike or same
    return Graded(tuple(not failed and alike(value, expected) for value, failed, (_, expected) in answers), outcome)


@lru_cache(maxsize=MOST_KNOWN)
def printed(source: str) -> Printed:
    """Runs `source` for what it prints. A sandbox is asked the same thing once."""
    outcome = sandbox.run(source, **LIMITS)
    lines = [line.strip() for line in outcome.stdout.split("\n") if line.strip()]
    line = readable(lines[-1], LONGEST_LINE) if lines else ""
    return Printed(outcome.status, line, readable(outcome.stderr), outcome.backstop)


def same(value: Any, expected: Any) -> bool:
    """Equal as Python has it, but for floats, which may differ by `CLOSE`, and tuples, which lists may stand for: data
    sets write both the same."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key]) for key in expected)
    if isinstance(value, float) and isinstance(expected, int | float):
        return math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE) or (value != value and expected != expected)
    if isinstance(expected, float) and isinstance(value, int):
        return math.isclose(value, expected, rel_tol=CLOSE, abs_tol=CLOSE)
    return type(value) is type(expected) and value == expected


def printed_alike(value: Any, expected: Any) -> bool:
    """The same words in the same order: what judges of programs that print agree on."""
    return isinstance(value, str) and isinstance(expected, str) and value.split() == expected.split()


def read_cases(text: str, entry: str) -> list[Case]:
    """The cases that a text asserts: `assert entry(<plain data>, ...) == <plain data>`, wherever it stands in the
    program of the text. Other statements are passed over; a text that is no program has none."""
    tree = parsed(read_code(text) or "")
    found = [_case(part.test, entry) for part in ast.walk(tree) if isinstance(part, ast.Assert)]
    return [case for case in found if case is not None]


def _case(test: ast.expr, entry: str) -> Case | None:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    call, (expected,) = test.left, test.comparators
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry) or call.keywords:
        return None
    try:
        case = [[ast.literal_eval(argument) for argument in call.args], ast.literal_eval(expected)]
        literal(case, "case")  # no bytes, no complex numbers, which a sandbox does not take
        return case
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def as_text(cases: Sequence[Case], entry: str) -> str:
    """Cases as the asserts that `read_cases` reads, one per line."""
    lines = (f"assert {entry}({', '.join(map(repr, arguments))}) == {expected!r}" for arguments, expected in cases)
    return "\n".join(lines)
