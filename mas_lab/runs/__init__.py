"""Keep a run: its tables, its checkpoints, its scores. Read the rollouts of other trainers (`read`).

Leaves out: making a run (`train`) and comparing several (`study`).
"""
