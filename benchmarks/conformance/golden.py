"""What the modules `with_TRAINER.py` share."""

import math


class Inexpressible(Exception):
    """The trainer has no setting for what the case demands."""


class Refused(Exception):
    """The trainer raised an error that names what is wrong."""


def require(holds, reason):
    """Raise Inexpressible with the reason unless something holds."""
    if not holds:
        raise Inexpressible(reason)


def padded(rows, length=None, value=0.0):
    """Return lists of numbers at one length, `value` behind them."""
    length = length or max(map(len, rows))
    return [[*row, *[value] * (length - len(row))] for row in rows]


def varies(rows):
    """Return whether a task has rewards of different size."""
    groups = {}
    for row in rows:
        groups.setdefault(row["task"], []).append(row["reward"])
    return any(not math.isclose(max(own), min(own), rel_tol=1e-6) for own in groups.values())
