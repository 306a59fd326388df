"""Exercises: an answer is checked, a hint is asked for, and a line says how far one is.

An exercise is a function in `checks/` that raises `NotYet` where an answer is not right; its name, "03.2", is notebook
03, exercise 2. Leaves out grades: an answer is right, or not yet.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class NotYet(Exception):
    """An answer that is not right yet; the text says where, without giving the answer away."""


class ExerciseError(ValueError):
    """There is no exercise of that name."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: `judge(*answer)` raises `NotYet`, or returns a sentence for those who are right, or nothing."""

    name: str
    judge: Callable[..., str | None]
    hints: tuple[str, ...]


EXERCISES: dict[str, Exercise] = {}
"""Those of the notebooks that were asked for so far; see `of_notebook`."""
_right: set[str] = set()
_hinted: dict[str, int] = {}


def exercise(name: str, *hints: str) -> Callable[[Callable], Callable]:
    """Enters a function as the judge of exercise `name`; `hints` go from a nudge to nearly the answer."""

    def enter(judge: Callable) -> Callable:
        EXERCISES[name] = Exercise(name, judge, hints)
        return judge

    return enter


def of_notebook(number: str) -> list[Exercise]:
    """The exercises of a notebook ("03"), in order. Raises `ExerciseError` if no notebook has that number."""
    checks = f"mas_lab.course.checks.n{number}"
    try:
        importlib.import_module(checks)
    except ModuleNotFoundError as missing:
        if missing.name != checks:
            raise
        raise ExerciseError(f"no notebook of the course has the number {number}") from None
    return sorted((one for one in EXERCISES.values() if one.name[:2] == number), key=lambda one: int(one.name[3:]))


def check(name: str, *answer: Any) -> None:
    """Prints whether `answer` is right for exercise `name` ("03.2"), and how many of its notebook are.

    An answer is not right while a `...` stands in it. What an answer's own code raises is part of the verdict.
    Raises `ExerciseError` for an unknown name.
    """
    one = _exercise(name)
    try:
        if any(part is ... for part in answer):
            raise NotYet("put your answer in place of the `...`")
        told = one.judge(*answer)
    except NotYet as why:
        _right.discard(name)
        print(f"○ {name} not yet: {why}")
        if left := len(one.hints) - _hinted.get(name, 0):
            print(f'  {left} hint{"s" * (left > 1)}: lab.course.hint("{name}")')
        return
    _right.add(name)
    exercises = of_notebook(name[:2])
    done = sum(other.name in _right for other in exercises)
    print(f"● {name} right{f': {told}' if told else ''}    ({done} of {len(exercises)} in this notebook)")


def hint(name: str) -> None:
    """Prints the next hint of an exercise; after the last one, all of them."""
    one = _exercise(name)
    given = _hinted[name] = min(_hinted.get(name, 0) + 1, len(one.hints) + 1)
    if given > len(one.hints):
        print("\n".join([f"{name} has no further hint. So far:", *(f"  {text}" for text in one.hints)]))
    else:
        print(f"{name}, hint {given} of {len(one.hints)}: {one.hints[given - 1]}")


def progress(notebook: str) -> None:
    """Prints one line: which exercises of a notebook ("03") are right so far, in this kernel."""
    exercises = of_notebook(_number(notebook))
    marks = "  ".join(f"{'●' if one.name in _right else '○'} {one.name}" for one in exercises)
    print(f"{sum(one.name in _right for one in exercises)} of {len(exercises)}:  {marks}")


def _exercise(name: str) -> Exercise:
    exercises = of_notebook(_number(name))
    for one in exercises:
        if one.name == name:
            return one
    raise ExerciseError(f"no exercise {name!r}; notebook {name[:2]} has {', '.join(one.name for one in exercises)}")


def _number(name: Any) -> str:
    if isinstance(name, str) and re.fullmatch(r"\d\d(\.\d+)?", name):
        return name[:2]
    raise ExerciseError(f'no notebook has exercises called {name!r}; they are called like "03.2"')
