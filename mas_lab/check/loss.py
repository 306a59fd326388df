"""Check a loss before it is trained with: that it is a `Loss`, and averaged as asked.

Leaves out: the losses themselves (`cells.losses`).
"""

from typing import Any

from mas_lab.cells.losses import UNITS, Loss

AGGREGATES = ("token", "turn", "agent", "sum")


def require_loss(loss: Any, aggregate: str, cell: str) -> None:
    """Raise TypeError or ValueError, naming the `cell`, if `update` cannot average this loss by `aggregate`."""
    if aggregate not in AGGREGATES:
        raise ValueError(f"{cell}: aggregate={aggregate!r}; known are {', '.join(AGGREGATES)}")
    if not isinstance(loss, Loss):
        raise TypeError(f"{cell}: loss={loss!r} is no mas_lab.Loss; make it a frozen dataclass of that kind")
    if loss.unit not in UNITS:
        raise ValueError(f"{cell}: {loss!r} has unit={loss.unit!r}; known are {', '.join(UNITS)}")
    if loss.unit == "group" and (loss.tis is not None or loss.needs_entropy):
        raise ValueError(f"{cell}: {loss!r} sees groups, and then has neither tis nor entropy; leave them out")
    if loss.is_sequence_level and aggregate not in ("turn", "agent"):
        raise ValueError(
            f"{cell}: {loss!r} gives every token of a row what belongs to the whole row, and aggregate={aggregate!r} "
            "adds it up once for each token: long rows would weigh twice, by their ratio and by their length; pass "
            "aggregate='turn' or 'agent', where a row counts once"
        )
