"""Checks and hints of the exercises, one file per notebook.

Leaves out: how an answer is submitted (`exercises`).
"""
