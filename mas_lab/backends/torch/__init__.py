"""Weights that live in torch: the model, its policies, their sampler, their state on disk.

Leaves out: engines of other libraries.
"""
