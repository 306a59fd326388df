"""Describe a programming problem: its text, the asked function, the cases that it shows and hidden cases.

Data sets and their rows are in `problem_sets`. The tasks decide what a program earns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mas_lab.tasks import sandbox
from mas_lab.tasks.shared.harness import literal
from mas_lab.tasks.shared.programs import LIMITS, Case, Graded, grade, printed_alike, read_cases

MOST_RUNS = 32
"""Most runs of a gold program that reads standard input, one per case."""


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

    @property
    def key(self) -> str:
        """Return the text that names the problem."""
        return f"{self.text} {self.entry}"

    @property
    def shown(self) -> tuple[Case, ...]:
        return _read(self.examples, self.entry)

    @property
    def hidden(self) -> tuple[Case, ...]:
        """Return the hidden cases without those whose arguments the text shows.

        A program that knows the examples by heart then earns nothing.
        """
        seen = {literal(list(arguments), "case") for arguments, _ in self.shown}
        cases = _read(self.cases, self.entry)
        return tuple(case for case in cases if literal(list(case[0]), "case") not in seen)

    def grade(self, source: str, cases: Sequence[Case]) -> Graded:
        """Grade a program on cases."""
        return grade(source, self.entry, cases, printed_alike if self.stdin else None)

    def confirm(self, cases: Sequence[Case]) -> Graded:
        """Grade the gold program on cases."""
        if not self.stdin:
            return grade(self.gold, self.entry, cases)
        runs = [_printed(self.gold, *arguments) for arguments, _ in cases[:MOST_RUNS]]
        passed = [
            run.status == "ok" and printed_alike(run.stdout, expected)
            for run, (_, expected) in zip(runs, cases, strict=False)
        ]
        worst = next((run for run in runs if run.status != "ok"), sandbox.Outcome("ok"))
        return Graded((*passed, *[False] * (len(cases) - len(passed))), worst)


@lru_cache(maxsize=1024)
def _read(text: str, entry: str) -> tuple[Case, ...]:
    return tuple(read_cases(text, entry))


@lru_cache(maxsize=1024)
def _run(source: str) -> sandbox.Outcome:
    return sandbox.run(source, **LIMITS)


def _printed(gold: str, *arguments: Any) -> sandbox.Outcome:
    """Run the gold program with its standard input, if the arguments are one text."""
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return sandbox.Outcome("error", stderr="TypeError: standard input is one text")
    return _run(f"import io, sys\nsys.stdin = io.StringIO({arguments[0]!r})\n{gold}")
