"""Checks at the door: of environments, and of the arguments of the cells."""
