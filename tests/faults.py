"""How many faults `make test-long` makes: the most so far, after each of which the run was right bit for bit."""

KILLS, DEATHS, INTERRUPTS = 171, 262, 228
"""At random moments, before chosen file operations, and as by Ctrl-C between any two instructions."""
