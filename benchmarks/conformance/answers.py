"""What the modules `with_TRAINER.py` share."""


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
