"""Exercises: checking an answer, giving hints, and showing progress.

An exercise is a function in `checks/` that raises `NotYet` if an answer is not right, and a list of hints in
`hints.toml`. The name "03.2" means notebook 03, exercise 2. Leaves out: grades; an answer is right, or not yet.
"""

import importlib.util
import inspect
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from mas_lab.course.guesses import GUESSES

NotebookData = Annotated[Any, "given"]
"""Type of a judge's parameter that is data of the notebook, not the student's answer."""
StudentCode = Annotated[Any, "own"]
"""Type of a judge's parameter that only a process with the student's own code can use, such as an env or a loss."""


class NotYet(Exception):
    """Error for an answer that is not right yet. The text says where, without giving the answer away."""


class ExerciseError(ValueError):
    """Error for an exercise or a notebook that does not exist."""


@dataclass(frozen=True)
class Exercise:
    """One exercise: `judge(*answer)` raises `NotYet`, or returns a sentence or `None` for a right answer."""

    name: str
    judge: Callable[..., str | None]
    hints: list[str]


HINTS = tomllib.loads(Path(__file__).with_name("hints.toml").read_text(encoding="utf-8"))
EXERCISES: dict[str, Exercise] = {}
"""Exercises of the notebooks that were used so far; see `of_notebook`."""
_right: set[str] = set()
_hinted: dict[str, int] = {}


def exercise(name: str) -> Callable[[Callable], Callable]:
    """Register a function as the judge of exercise `name`."""

    def enter(judge: Callable) -> Callable:
        EXERCISES[name] = Exercise(name, judge, HINTS[name])
        return judge

    return enter


def of_notebook(number: str) -> list[Exercise]:
    """Return the exercises of a notebook ("03"), in order; raise `ExerciseError` if there is none."""
    number = str(number)
    checks = f"mas_lab.course.checks.n{number}"
    if not re.fullmatch(r"\d\d", number) or importlib.util.find_spec(checks) is None:
        raise ExerciseError(f'no notebook has the number {number!r}; exercises are called like "03.2"')
    importlib.import_module(checks)
    return sorted((one for one in EXERCISES.values() if one.name[:2] == number), key=lambda one: int(one.name[3:]))


def check(name: str, *answer: Any) -> None:
    """Print whether `answer` is right, and how many exercises of its notebook are right so far.

    An answer that is still `...` is not right yet. An exception, in the answer's own code or because it has another
    form than the exercise asks for, is part of the verdict.

    Args:
        name: The exercise, such as "03.2".
        *answer: The values that the exercise asks for.

    Raises:
        ExerciseError: No exercise has this name.
    """
    one = _exercise(name)
    try:
        if any(part is ... for part in answer):
            raise NotYet("put your answer in place of the `...`")
        _refuse_count(one, answer)
        comment = one.judge(*answer)
    except Exception as error:
        print(f"○ {name} not yet: {_reason(error, answer)}")
        _right.discard(name)
        if (left := len(one.hints) - _hinted.get(name, 0)) > 0:
            print(f'  {left} hint{"s" * (left > 1)}: lab.course.hint("{name}")')
        return
    _right.add(name)
    exercises = of_notebook(name[:2])
    counted = f"{sum(one.name in _right for one in exercises)} of {len(exercises)} in this notebook"
    print(f"● {name} right{f': {comment}' if comment else ''}    ({counted})")


def _refuse_count(one: Exercise, answer: tuple) -> None:
    """Raise `NotYet` if the exercise asks for another number of values."""
    parameters = list(inspect.signature(one.judge).parameters)
    if len(answer) != len(parameters):
        call = f'lab.course.check("{one.name}", {", ".join(parameters)})'
        raise NotYet(f"it takes {len(parameters)} value{'s' * (len(parameters) > 1)} and got {len(answer)}: {call}")


def _reason(error: Exception, answer: tuple) -> str:
    """Return why an answer is not right; any error other than `NotYet` is about its form, or of its own code."""
    if isinstance(error, NotYet):
        return str(error)
    if type(error).__module__.startswith("mas_lab."):
        return f"the kit refuses it: {error}"
    given = ", ".join(type(part).__name__ for part in answer)
    return f"the check raised {type(error).__name__}: {error}; your answer is of type {given}: is this the right form?"


def hint(name: str) -> None:
    """Print one more hint of an exercise, below the earlier ones.

    Args:
        name: The exercise, such as "03.2".

    Raises:
        ExerciseError: No exercise has this name.
    """
    one = _exercise(name)
    _hinted[name] = min(_hinted.get(name, 0) + 1, len(one.hints))
    for number, text in enumerate(one.hints[: _hinted[name]], start=1):
        print(f"{name}, hint {number} of {len(one.hints)}: {text}")


def progress(notebook: str) -> None:
    """Print in one line which exercises of a notebook are right so far, in this kernel, and below it the guesses.

    Args:
        notebook: The notebook's number, such as "03".

    Raises:
        ExerciseError: No notebook has this number.
    """
    exercises = of_notebook(notebook)
    marks = "  ".join(f"{'●' if one.name in _right else '○'} {one.name}" for one in exercises)
    print(f"{sum(one.name in _right for one in exercises)} of {len(exercises)}:  {marks}")
    for name in sorted(name for name in GUESSES if name[:2] == str(notebook) and GUESSES[name]):
        print(f"  guess {name}: {GUESSES[name]}")


def _exercise(name: str) -> Exercise:
    exercises = {one.name: one for one in of_notebook(str(name)[:2])}
    if name not in exercises:
        raise ExerciseError(f"no exercise {name!r}; notebook {str(name)[:2]} has {', '.join(exercises)}")
    return exercises[name]
