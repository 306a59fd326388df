"""Make pocket models: language models so small that a team of them trains on two CPU cores.

Leaves out: reinforcement learning, which pocket models are made for.
"""
