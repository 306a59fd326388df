"""Ways in and out: programs of one's own behind a gateway, and other trainers that take a recipe over.

Leaves out: what is learned (the cells).
"""
