"""Ways in and out: programs of one's own behind a gateway, other trainers that take a recipe over, teams that are
handed on.

Leaves out: what is learned (the cells).
"""
