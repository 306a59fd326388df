"""What anybody's loss is held to: that it can be called, averaged and learned from, and in words where it cannot.

Leaves out: the losses (`losses`).
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mas_lab.cells.losses import Loss

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATES = ("token", "turn", "agent", "sum")
OF_ROWS = ("turn", "agent")
"""The aggregates in which a row counts once, however long it is."""
CALLED_WITH = "(logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N)"
REPORTED = {"clips": "(logprobs_N, old_N, advantages_N, row_N)", "ratios": "(logprobs_N, old_N, row_N)"}


def require_loss(loss: Any, aggregate: str, cell: str) -> None:
    """Raises TypeError or ValueError, naming the loss and the remedy, where `update` cannot average it by `aggregate`.

    `cell`: who asks.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(f"{cell}: aggregate={aggregate!r}; known are {', '.join(AGGREGATES)}")
    name = type(loss).__name__
    if not isinstance(loss, Loss):
        raise TypeError(f"{cell}: loss={loss!r} is no mas_lab.Loss; make it a frozen dataclass of that kind")
    if not _takes(loss.__call__, 6):
        raise TypeError(
            f"{cell}: loss {name} takes {inspect.signature(loss.__call__)}, and is called with {CALLED_WITH}: let "
            "row_N, the row of each token, be its fourth argument"
        )
    for part, asked in REPORTED.items():
        method = getattr(loss, part)
        if not _takes(method, asked.count(",") + 1):
            raise TypeError(
                f"{cell}: {part} of loss {name} takes {inspect.signature(method)}, and is called with {asked}: let "
                "row_N, the row of each token, be its last argument"
            )
    if loss.of_rows and aggregate not in OF_ROWS:
        raise ValueError(
            f"{cell}: {loss!r} gives every token of a row what belongs to the whole row, and aggregate={aggregate!r} "
            "adds it up once for each token: long rows would weigh twice, by their ratio and by their length; pass "
            "aggregate='turn' or 'agent', where a row counts once"
        )


def _takes(function: Callable, count: int) -> bool:
    """Can it be called with so many positional arguments, the entropy not before the rows?"""
    signature = inspect.signature(function)
    try:
        bound = signature.bind(*range(count))
    except TypeError:
        return False
    return bound.arguments.get("entropy_N") != 3


def token_losses(loss: Loss, logprobs_N: "Tensor", *known: "Tensor | None") -> "Tensor":
    """What a loss makes of tokens, (N,). Raises TypeError where that is not one loss per token, naming the loss."""
    losses_N = one_per_token(loss(logprobs_N, *known), logprobs_N, f"loss {_name(loss)}")
    if logprobs_N.requires_grad and not losses_N.requires_grad:
        raise TypeError(
            f"loss {_name(loss)} gave losses without a gradient: nothing would be learned; compute them from "
            "logprobs_N, undetached"
        )
    return losses_N


def one_per_token(values_N: Any, logprobs_N: "Tensor", who: str) -> "Tensor":
    """The values that `who` gave, which must be a tensor of the shape of `logprobs_N`; TypeError where they are not."""
    if isinstance(values_N, type(logprobs_N)) and values_N.shape == logprobs_N.shape:
        return values_N
    shape = getattr(values_N, "shape", None)
    gave = f"a {type(values_N).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")
    raise TypeError(
        f"{who} gave {gave} for {len(logprobs_N)} tokens; wanted is a tensor of shape {tuple(logprobs_N.shape)}, a "
        "value per token, summed or averaged over nothing: `aggregate` does that"
    )


def _name(loss: Any) -> str:
    return getattr(loss, "__name__", type(loss).__name__)
