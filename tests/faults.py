"""How many faults `make test-long` makes: the most so far, after each of which the run was right bit for bit."""

KILLS, DEATHS, INTERRUPTS, FLIPS = 171, 262, 228, 3000
"""At random moments, before chosen file operations, as by Ctrl-C between two instructions; bits of a run's files."""
