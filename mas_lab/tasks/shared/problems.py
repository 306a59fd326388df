"""A programming problem: what is asked, which function, what the text shows of it, and what stays hidden.

Leaves out: which data sets hold some, and how their rows are read (`problem_sets`); what a program for one earns.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from mas_lab.env import Task
from mas_lab.tasks import sandbox
from mas_lab.tasks.shared.harness import literal
from mas_lab.tasks.shared.programs import LIMITS, Case, Graded, grade, printed_alike, read_cases
from mas_lab.tasks.shared.rows import content_id

MOST_RUNS = 32
"""Runs of a gold program that reads standard input, each a run of its own."""


@dataclass(frozen=True)
class Problem:
    text: str
    entry: str
    """The function that is asked for."""
    examples: str = ""
    """Cases that the text shows, as asserts: Task.data is plain data, and arguments may be tuples or sets."""
    cases: str = ""
    """Hidden cases, as asserts."""
    gold: str = ""
    """A program that is right, hidden."""
    stdin: bool = False
    """The gold program reads standard input and prints; what is asked for is `entry(text) -> text` that does so."""

    def as_task(self, env: str) -> Task:
        """Named by its text and the function that it asks for."""
        return Task(f"{env}-{content_id(f'{self.text} {self.entry}')}", asdict(self))

    @property
    def shown(self) -> tuple[Case, ...]:
        return _read(self.examples, self.entry)

    @property
    def hidden(self) -> tuple[Case, ...]:
        """Without those whose arguments the text shows: a program that knows the examples by heart earns nothing."""
        seen = {literal(list(arguments), "case") for arguments, _ in self.shown}
        cases = _read(self.cases, self.entry)
        return tuple(case for case in cases if literal(list(case[0]), "case") not in seen)

    def grade(self, source: str, cases: Sequence[Case]) -> Graded:
        """A program of ours on cases."""
        return grade(source, self.entry, cases, printed_alike if self.stdin else None)

    def confirm(self, cases: Sequence[Case]) -> Graded:
        """Which cases the gold program passes."""
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
    """The gold program with its standard input, if that is what it was given."""
    if len(arguments) != 1 or not isinstance(arguments[0], str):
        return sandbox.Outcome("error", stderr="TypeError: standard input is one text")
    return _run(f"import io, sys\nsys.stdin = io.StringIO({arguments[0]!r})\n{gold}")
