"""Keep a run: its tables, its checkpoints, its scores.

Leaves out: making a run (`train`) and comparing several (`study`).
"""
