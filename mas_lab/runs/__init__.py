"""Keeping a run: its tables, its checkpoints, what it scored.

Leaves out: making one (`train`) and comparing several (`study`).
"""
