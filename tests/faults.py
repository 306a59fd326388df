"""A full disk, and how many faults `make test-long` makes: after each of them the run was right bit for bit."""

import errno
import os

import pytest

DEATHS, FLIPS = 500, 10_000
"""Before chosen file operations; bits of a run's files."""


def fill(patch: pytest.MonkeyPatch, moment: int, error: int = errno.ENOSPC) -> list[str]:
    """From its `moment`-th change of a file on, the disk is full: nothing is flushed, renamed or made any more. Returns
    what was asked since then."""
    refused, seen = [], 0

    def counted(name, call):
        def wrapper(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen >= moment:
                refused.append(name)
                raise OSError(error, os.strerror(error))
            return call(*arguments, **options)

        return wrapper

    for name in ("fsync", "rename", "replace", "mkdir"):
        patch.setattr(os, name, counted(name, getattr(os, name)))
    return refused
