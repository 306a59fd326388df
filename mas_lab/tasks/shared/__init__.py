"""Hold what several tasks share: rows and splits, grids, grading, counting words.

Roles, prompts and rewards belong to each task.
"""
