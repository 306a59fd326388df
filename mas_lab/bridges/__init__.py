"""Connections to code outside the kit: user programs, other trainers, and teams that are shared.

Programs run behind a gateway, other trainers take over a recipe, and teams are saved as folders. Leaves out: the
training itself (`cells`).
"""
