"""Pictures of tables: pure functions from tables to figures, and the instruments around them.

Leaves out: what the numbers are (`explain`, `runs`, `study`).
"""
