"""Check a loss before it is trained with: that it can be called, and averaged as asked.

Leaves out: the losses themselves (`cells.losses`).
"""

import inspect
from collections.abc import Callable
from typing import Any

from mas_lab.cells.losses import Loss

AGGREGATES = ("token", "turn", "agent", "sum")
CALLED_WITH = "(logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N)"
REPORTED = {"clips": "(logprobs_N, old_N, advantages_N, row_N)", "ratios": "(logprobs_N, old_N, row_N)"}


def require_loss(loss: Any, aggregate: str, cell: str) -> None:
    """Raise TypeError or ValueError, naming the `cell`, if `update` cannot average this loss by `aggregate`."""
    if aggregate not in AGGREGATES:
        raise ValueError(f"{cell}: aggregate={aggregate!r}; known are {', '.join(AGGREGATES)}")
    name = type(loss).__name__
    if not isinstance(loss, Loss):
        raise TypeError(f"{cell}: loss={loss!r} is no mas_lab.Loss; make it a frozen dataclass of that kind")
    methods = [("loss", loss.__call__, CALLED_WITH, "fourth")]
    methods += [(f"{part} of loss", getattr(loss, part), asked, "last") for part, asked in REPORTED.items()]
    for what, method, asked, which in methods:
        if not _takes(method, asked.count(",") + 1):
            raise TypeError(
                f"{cell}: {what} {name} takes {inspect.signature(method)}, and is called with {asked}: let row_N, the "
                f"row of each token, be its {which} argument"
            )
    if loss.is_sequence_level and aggregate not in ("turn", "agent"):
        raise ValueError(
            f"{cell}: {loss!r} gives every token of a row what belongs to the whole row, and aggregate={aggregate!r} "
            "adds it up once for each token: long rows would weigh twice, by their ratio and by their length; pass "
            "aggregate='turn' or 'agent', where a row counts once"
        )


def _takes(function: Callable, count: int) -> bool:
    """Return whether a function takes so many positional arguments, the entropy not before the rows."""
    try:
        bound = inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return bound.arguments.get("entropy_N") != 3
