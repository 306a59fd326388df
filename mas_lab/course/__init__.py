"""The course: what the notebooks' exercises call, and how notebooks are made, packed and graded.

Leaves out the notebooks themselves (`notebooks/masters/`) and everything they teach.
"""

from typing import TYPE_CHECKING

from mas_lab.course.exercises import check, hint, progress
from mas_lab.course.glossary import glossary

if TYPE_CHECKING:
    from mas_lab.course.broken import Training

__all__ = ["broken", "check", "glossary", "hint", "progress"]


def broken(letter: str, mended: bool = False, steps: int | None = None, seed: int = 0) -> "Training":
    """Trains one of five runs, "A" to "E", with its silent defect, or `mended`: see notebook 13."""
    from mas_lab.course import broken_runs

    return broken_runs.broken(letter, mended, steps, seed)
