"""The course: what the notebooks' exercises call, and how notebooks are made, packed and graded.

Leaves out the notebooks themselves (`notebooks/masters/`) and everything they teach.
"""

from mas_lab.course.exercises import check, hint, progress

__all__ = ["check", "hint", "progress"]
