"""The course: functions that the notebooks call while a student works.

Leaves out: the notebooks themselves, and the tools that make, pack and grade them (`notebooks/tools/`).
"""

from mas_lab.course.broken_runs import broken
from mas_lab.course.exercises import check, hint, progress
from mas_lab.course.glossary import glossary
from mas_lab.course.guesses import explain, guess
from mas_lab.course.loop import loop

__all__ = ["broken", "check", "explain", "glossary", "guess", "hint", "loop", "progress"]
