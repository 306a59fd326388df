"""The course: functions that the notebooks call while a student works.

Leaves out: the notebooks themselves, and the tools that make, pack and grade them (`notebooks/tools/`).
"""

from typing import TYPE_CHECKING

from mas_lab.arguments import check_arguments
from mas_lab.course.exercises import check, hint, progress
from mas_lab.course.glossary import glossary
from mas_lab.course.guesses import explain, guess
from mas_lab.course.loop import loop

if TYPE_CHECKING:
    from mas_lab.course.broken_runs import Training

__all__ = ["broken", "check", "explain", "glossary", "guess", "hint", "loop", "progress"]


def broken(letter: str, mended: bool = False, steps: int | None = None, seed: int = 0) -> "Training":
    """Train one of the five defective runs of notebook 13.

    Args:
        letter: The run, "A" to "E".
        mended: True trains without the defect, from the same weights, with the same tasks and draws.
        steps: Number of training steps. `None`: the number of that run, 12 or 24.
        seed: Seed of the tasks and of all draws.

    Returns:
        A `Training` with the tables of all steps, the reported success, and the team.

    Raises:
        ExerciseError: No run has this letter.
        ValueError: `steps` is not a count from 1.
    """
    from mas_lab.course import broken_runs

    check_arguments(broken, locals(), steps=1)
    return broken_runs.broken(letter, mended, steps, seed)
