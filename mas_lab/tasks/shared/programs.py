"""Find programs in answers, run them on cases, and read cases that are written as asserts; describe a problem.

A case is `[arguments, expected]`, plain data. The expected value never enters the sandbox: it is compared outside.
Running programs is in `sandbox`, data sets of problems in `problem_sets`. The tasks decide what passing is worth.
"""

import ast
import marshal
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mas_lab.tasks import sandbox
from mas_lab.tasks.sandbox import after, literal

Case = Sequence[Any]
"""`[arguments, expected]`."""
LIMITS = {"timeout_s": 20, "memory_mb": 256, "fuel": 8_000_000_000}
"""Limits for all cases of a program together: about one second in WebAssembly. The wall-clock limit is far away, so
that it decides nothing."""
CLOSE = 1e-6
"""Relative and absolute tolerance between two floats."""
FENCED = r"(?m)(?<!\S)(`{3,}|~{3,})([^\n`]*)\n(%s)(?:^[ \t]*\1|\1[ \t]*$|\Z)"
"""Fenced block: its fence, its language and its text. A block without an end goes on to the end of the answer."""
BODIES = (r"(?s:\'\'\'.*?\'\'\'|\"\"\".*?\"\"\"|#[^\n]*|.)*?", r"(?s:.*?)")
"""Text of a block: up to the first fence that stands in no docstring or comment, and up to the first fence."""

PYTHON = re.compile(r"(?i)\s*(?:[{.]*py(?:thon)?[\d.]*(?![a-z]).*)?")
"""What stands behind the opening of a fence: nothing, or the name of Python."""


def code_in(text: str, marker: str) -> str:
    """Return the text of the program in an answer.

    It is the last fenced block with the words `marker`, such as "def f", or without such a block the last one. A block
    in another language is none. An answer without a block is the program itself, and so is an answer that parses. If
    nothing parses, a fence in a docstring or a comment ends a block. If nothing parses then, a first fence is added.
    """
    text = text.replace("\r\n", "\n")
    readings = [text.strip(), *(_block(t, marker, FENCED % body) for t in (text, f"```\n{text}") for body in BODIES)]
    return next((one for one in readings if one and parsed(one)), readings[2])


def _block(text: str, marker: str, fenced: str) -> str:
    blocks = [code for _, language, code in re.findall(fenced, text) if PYTHON.fullmatch(language)] or [text]
    fits = [code for code in blocks if re.search(rf"\b{marker}\b", code)]
    return textwrap.dedent((fits or blocks)[-1]).strip()


def read_code(text: str, marker: str) -> str | None:
    """Return the program in an answer (`code_in`); `None` if that does not parse."""
    source = code_in(text, marker)
    return with_function(source, marker) if source and parsed(source) else None


def with_function(source: str, marker: str) -> str:
    """Return a program with the function of `marker`, if that is a method of `class Solution`, as in LeetCode."""
    entry = marker.removeprefix("def ")
    if function(source, entry) or not re.search(rf"\nclass Solution\b[\s\S]*\bdef {entry}\(self\b", f"\n{source}"):
        return source
    return f"{source}\n\ndef {entry}(*given):\n    return Solution().{entry}(*given)"


DEEPEST = 100
"""Most levels of a syntax tree. Python's own functions recurse up to 6 times for each level and stop at 1000."""


def tree_of(source: str) -> ast.Module:
    """Return the syntax tree; raise an error of `ast.parse`, or ValueError if the tree is too deep."""
    tree = ast.parse(source)
    level: list[ast.AST] = [tree]
    for _ in range(DEEPEST):
        level = [part for above in level for part in ast.iter_child_nodes(above)]
    if level:
        raise ValueError(f"nested more than {DEEPEST} levels deep")
    return tree


def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree, or `None` if there is none (`tree_of`)."""
    try:
        return tree_of(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def function(source: str, name: str) -> ast.FunctionDef | None:
    """Return the last top-level function called `name`, or `None`."""
    body = getattr(parsed(source), "body", [])
    return next((part for part in reversed(body) if isinstance(part, ast.FunctionDef) and part.name == name), None)


LONGEST_ERROR = 200
"""Characters of an error that are kept."""
LONGEST_LINE = 300
"""Characters of a printed line that are kept. A line of that length is no answer."""


def readable(text: str, longest: int = LONGEST_ERROR) -> str:
    """Return the first characters of a program's output; characters that no file can hold are replaced."""
    return text[:longest].encode(errors="replace").decode()


@dataclass(frozen=True)
class Result:
    """Results of a program on cases, or (`passed` is `None`) of a program that prints its answer."""

    outcome: sandbox.Outcome
    passed: tuple[bool, ...] | None = None
    """One entry per case."""

    @property
    def unknown(self) -> bool:
        """Return whether the sandbox lacks something that it uses. It then fails, although CPython might pass it."""
        return self.outcome.status == "unsupported"

    @property
    def error(self) -> str:
        return readable(self.outcome.stderr)

    @property
    def line(self) -> str:
        """Return the last printed line that is not blank."""
        lines = [line.strip() for line in self.outcome.stdout.split("\n") if line.strip()]
        return readable(lines[-1], LONGEST_LINE) if lines else ""

    @property
    def share(self) -> float:
        """Return the share of passed cases, 0 to 1; 0 if there are no cases."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0

    @property
    def info(self) -> dict[str, Any]:
        """Return the entries of `Step.info`: the status, what was passed or printed, and any error and `backstop`."""
        cases = self.passed is not None
        entries = {"passed": sum(self.passed), "cases": len(self.passed)} if cases else {"printed": self.line}
        entries |= {"error": self.error} if self.error else {}
        return {"status": self.outcome.status} | entries | ({"backstop": True} if self.outcome.backstop else {})


MOST_KNOWN = 8192


def printed(source: str) -> Result:
    """Run `source` and return what it prints; equal programs run once."""
    return Result(_run(source, None, marshal.dumps([], 2)))


_known: dict[tuple[str, str | None, bytes], sandbox.Outcome] = {}


def _run(source: str, entry: str | None, inputs: bytes) -> sandbox.Outcome:
    """Run a program on marshalled inputs, or return its known outcome; marshal 2 writes equal inputs the same way.

    What the clock or somebody outside ended is not remembered: the program itself may be right.
    """
    if (request := (source, entry, inputs)) in _known:
        return _known[request]
    outcome = sandbox.run(source, entry, marshal.loads(inputs), **LIMITS)
    if outcome.status != "killed" and not outcome.backstop:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[request] = outcome
    return outcome


def same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal in Python, except for small differences of floats, and for lists and tuples.

    Floats may differ by `CLOSE`, and from a whole number by no more. A list may stand for a tuple, because data sets
    write both the same.
    """
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, list | tuple) and isinstance(expected, list | tuple):
        return len(value) == len(expected) and all(map(same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same(value[key], expected[key]) for key in expected)
    kinds = {type(value), type(expected)}
    if float in kinds and kinds <= {int, float}:
        try:
            close = math.isclose(value, expected, rel_tol=0.0 if int in kinds else CLOSE, abs_tol=CLOSE)
        except OverflowError:  # an int beyond all floats
            return False
        return close or (value != value and expected != expected)
    return type(value) is type(expected) and value == expected


def _same_or_listed(value: Any, expected: Any) -> bool:
    return same(value, expected) or same(value, [expected])


def prints_the_same(value: Any, expected: Any) -> bool:
    """Return whether two texts have the same words in the same order, the usual rule for programs that print.

    Numbers may differ by the tolerance of APPS's own test, `np.allclose`, unless the expected one is whole.
    """
    if not (isinstance(value, str) and isinstance(expected, str)) or len(value.split()) != len(expected.split()):
        return False
    return all(map(_same_word, value.split(), expected.split()))


def _same_word(word: str, expected: str) -> bool:
    whole = expected.lstrip("+-").isdigit()
    if word == expected or (whole and word.lstrip("+-").isdigit()) or "_" in word:
        return word == expected
    try:
        return bool(np.isclose(float(word), float(expected), rtol=0.0 if whole else 1e-5))
    except ValueError:
        return False


@lru_cache(maxsize=1024)
def read_cases(text: str, entry: str) -> tuple[Case, ...]:
    """Return the cases that a text asserts: `assert entry(<plain data>, ...) == <plain data>`.

    They may stand anywhere in the program of the text. Other statements are ignored; a text without a program has no
    cases.
    """
    tree = parsed(read_code(text, "assert") or "")
    found = [_case(part.test, entry) for part in ast.walk(tree) if isinstance(part, ast.Assert)]
    return tuple(case for case in found if case is not None)


def _case(test: ast.expr, entry: str) -> Case | None:
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)):
        return None
    call, (expected,) = test.left, test.comparators
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == entry) or call.keywords:
        return None
    return read_literal(ast.List([ast.List(call.args), expected]), None)


def read_literal(source: str | ast.expr, default: Any) -> Any:
    """Return the value of a Python literal, or `default` if it is none, or none that a sandbox takes."""
    try:
        value = ast.literal_eval(source)
        literal(value, "value")  # raises for bytes and complex numbers
        return value
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return default


def as_text(cases: Sequence[Case], entry: str) -> str:
    """Return cases as the asserts that `read_cases` reads, one per line."""
    lines = (f"assert {entry}({', '.join(map(repr, arguments))}) == {expected!r}" for arguments, expected in cases)
    return "\n".join(lines)


@dataclass(frozen=True)
class Problem:
    text: str
    entry: str
    """Name of the asked function."""
    examples: str = ""
    """Cases that the text shows, as asserts: Task.data is plain data, and arguments may be tuples or sets."""
    cases: str = ""
    """Hidden cases, as asserts."""
    gold: str = ""
    """Right program, hidden."""
    stdin: bool = False
    """Whether the gold program reads standard input and prints. The asked function then is `entry(text) -> text`, which
    does the same."""
    wrapped: bool = False
    """Whether a result may also come in a list of one: APPS lists its results so, and accepts both."""

    @property
    def before(self) -> str:
        """Return what the text writes before the asked function, if it is a program, as in HumanEval."""
        found = function(f"{self.text}\n    pass", self.entry)
        first = (found.decorator_list or [found])[0].lineno if found else 1
        return "".join(f"{line}\n" for line in self.text.split("\n")[: first - 1])

    @property
    def visible(self) -> tuple[Case, ...]:
        return read_cases(self.examples, self.entry)

    @property
    def hidden(self) -> tuple[Case, ...]:
        """Return the hidden cases without those whose arguments the text shows.

        A program that knows the examples by heart then earns nothing.
        """
        known = {literal(list(arguments), "case") for arguments, _ in self.visible}
        cases = read_cases(self.cases, self.entry)
        return tuple(case for case in cases if literal(list(case[0]), "case") not in known)

    def grade(self, source: str, cases: Sequence[Case], entry: str | None = None) -> Result:
        """Run a program's function, the asked one or `entry`, on the arguments of each case, and compare its results.

        What the text writes before the function (`before`) runs before the program. Equal requests run once.
        """
        source = after(self.before, source)
        outcome = _run(source, entry or self.entry, marshal.dumps([list(arguments) for arguments, _ in cases], 2))
        equal = prints_the_same if self.stdin else _same_or_listed if self.wrapped else same
        answers = zip(outcome.values, outcome.failed, cases, strict=True)
        passed = tuple(not failed and equal(value, expected) for value, failed, (_, expected) in answers)
        return Result(outcome, passed)

    def confirm(self, cases: Sequence[Case]) -> Result:
        """Grade the gold program on cases."""
        if not self.stdin:
            return self.grade(self.gold, cases)
        runs = [_printed(self.gold, *arguments) for arguments, _ in cases]
        pairs = zip(runs, cases, strict=True)
        passed = tuple(run.status == "ok" and prints_the_same(run.stdout, expected) for run, (_, expected) in pairs)
        return Result(next((run for run in runs if run.status != "ok"), sandbox.Outcome("ok")), passed)


def _printed(gold: str, *arguments: Any) -> sandbox.Outcome:
    """Run the gold program with its standard input, if the arguments are one text."""
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return sandbox.Outcome("error", stderr="TypeError: standard input is one text")
    return printed(f"import io, sys\nsys.stdin = io.StringIO({arguments[0]!r})\n{gold}").outcome
