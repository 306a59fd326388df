"""The four cells (rollout, grouping, normalization, update), and their parts: plans, credits, centers, selectors.

Leaves out: losses (`losses`), and the composition of cells (`recipes`, `train`).
"""
