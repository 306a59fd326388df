"""What several tasks share: rows and splits, grids, grading, counting words.

Leaves out: roles, prompts and rewards, which are a task's own.
"""
