"""Pocket models: language models so small that a team of them trains on two CPU cores, and how one is made.

Leaves out: reinforcement learning, which is what they are for.
"""
