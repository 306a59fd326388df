"""Losses: per-token, `tensors -> losses_N`, minimised by `update`.

N counts the completion tokens of a micro-batch, and `row_N` says which row of it each belongs to: whole numbers from 0,
every row's tokens side by side in the order in which they were said, and no row cut in two. A loss sees no padding and
no prompts; how tokens are averaged is `update`'s `aggregate`. Old log-probabilities are those recorded when the tokens
were sampled (with `tis`, those of the trained weights before the update). Leaves out: what anybody's loss is held to
(`contract`).
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

RATIOS = ("token", "sequence", "action")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What every loss has. One of your own is a frozen dataclass of this kind with a `__call__`."""

    kl: float = 0.0
    """Weight of the k3 estimate of KL(policy || frozen reference), exp(d) - d - 1 with d = log ref - log policy."""
    entropy: float = 0.0
    """Weight of an entropy bonus."""
    tis: float | None = None
    """Truncated importance sampling, where the engine that samples computes otherwise than the weights that learn: a
    token's advantage is multiplied by min(p_trained / p_sampled, tis), both from before the update, and ratios are
    taken to p_trained (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
    It corrects token by token, whatever a loss takes its ratios over. Costs a forward pass over the batch."""

    def __post_init__(self):
        if self.tis is not None and self.tis <= 0:
            raise ValueError(f"{type(self).__name__}: tis={self.tis}; the bound of an importance weight is above 0")

    @property
    def needs_reference(self) -> bool:
        return self.kl != 0

    @property
    def needs_entropy(self) -> bool:
        return self.entropy != 0

    @property
    def still_at_0(self) -> bool:
        """Does a row whose advantages are 0 add exactly nothing to the gradient? Then it needs no pass through the
        model. A loss of one's own may promise it, for speed."""
        return False

    @property
    def of_rows(self) -> bool:
        """Does a row's every token carry what belongs to the whole row? Then `aggregate` must count a row once."""
        return False

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None) -> "Tensor":
        """The loss of each token (N,), differentiable in `logprobs_N` (and in `entropy_N`, if it is asked for)."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def ratios(self, logprobs_N, old_N, row_N) -> "Tensor":
        """What (N,) the loss weighs each token by, as `update` reports it: the token's p / p_old, by default."""
        return (logprobs_N - old_N).exp()

    def clips(self, logprobs_N, old_N, advantages_N, row_N) -> "Tensor":
        """Which tokens (N,) the loss has taken the gradient from: none, unless a loss says otherwise."""
        return advantages_N.new_zeros(advantages_N.shape, dtype=bool)

    def regularizer(self, logprobs_N: "Tensor", entropy_N: "Tensor | None", reference_N: "Tensor | None"):
        extra = 0.0
        if self.needs_reference:
            extra = extra + self.kl * k3(logprobs_N, reference_N)
        if self.needs_entropy:
            extra = extra - self.entropy * entropy_N
        return extra


def k3(logprobs_N: "Tensor", reference_N: "Tensor") -> "Tensor":
    """An unbiased, non-negative estimate of KL(policy || reference) per token (Schulman 2020)."""
    difference_N = reference_N - logprobs_N
    return difference_N.exp() - difference_N - 1


def row_sum(values_N: "Tensor", row_N: "Tensor") -> "Tensor":
    """The sum of each row's values, at every token of the row (N,); differentiable."""
    return values_N.new_zeros(values_N.shape).index_add(0, row_N, values_N)[row_N]


def row_mean(values_N: "Tensor", row_N: "Tensor") -> "Tensor":
    """The mean of each row's values, at every token of the row (N,); differentiable."""
    return row_sum(values_N, row_N) / row_sum(values_N.new_ones(values_N.shape), row_N)


@dataclass(frozen=True)
class clipped(Loss):
    """PPO's clipped surrogate: -min(rho A, clip(rho, 1 - low, 1 + high) A), with rho by `ratio`.

    PPO: arXiv 1707.06347, equation 7. `high` defaults to `low`. `dual` > 1 bounds the loss of a negative advantage by
    dual * |A| (dual clip: arXiv 1912.09729, equation 5).

    `ratio`, with d = log p - log p_old per token: "token", exp(d); "sequence", exp(mean of a row's d), GSPO, arXiv
    2507.18071; "action", exp(sum of a row's d), one ratio per action, Dr. MAS, arXiv 2602.08847, equation 3. A row's
    ratio stands at each of its tokens, whose own log-probability it moves with, by d for "sequence" and by the row's
    length times d for "action": the row's mean loss then has the value and gradient of -min(rho A, clip(rho) A), and
    where a row has one advantage per token, each acts on its own token (section 4.3 of GSPO, GSPO-token). It goes with
    the aggregates that count a row once, "turn" and "agent". At ratio 1, under "turn", "sequence" has the gradient of
    "token", and "action" that of "token" under "sum": a row's length times more.
    """

    low: float = 0.2
    high: float | None = None
    dual: float | None = None
    ratio: str = "token"

    def __post_init__(self):
        super().__post_init__()
        if self.low < 0 or self._high < 0:
            raise ValueError(f"clipped: low={self.low}, high={self.high}: a clip range is not negative")
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"clipped: dual={self.dual}; dual clip wants a constant above 1")
        if self.ratio not in RATIOS:
            raise ValueError(f"clipped: ratio={self.ratio!r}; known are {', '.join(RATIOS)}")

    @property
    def still_at_0(self) -> bool:
        return _is_gain(self, clipped)

    @property
    def of_rows(self) -> bool:
        return self.ratio != "token"

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None) -> "Tensor":
        ratio_N = self.ratios(logprobs_N, old_N, row_N)
        bounded_N = ratio_N.clamp(1 - self.low, 1 + self._high)
        gain_N = (ratio_N * advantages_N).minimum(bounded_N * advantages_N)
        if self.dual is not None:
            floored_N = gain_N.maximum(self.dual * advantages_N)
            gain_N = floored_N.where(advantages_N < 0, gain_N)
        return -gain_N + self.regularizer(logprobs_N, entropy_N, reference_N)

    def ratios(self, logprobs_N, old_N, row_N) -> "Tensor":
        log_N = logprobs_N - old_N
        if self.ratio == "token":
            return log_N.exp()
        own_N = logprobs_N - logprobs_N.detach()  # 0, with the token's own gradient
        if self.ratio == "sequence":
            return (row_mean(log_N.detach(), row_N) + own_N).exp()
        length_N = row_sum(own_N.new_ones(own_N.shape), row_N)
        return (row_sum(log_N.detach(), row_N) + length_N * own_N).exp()

    def clips(self, logprobs_N, old_N, advantages_N, row_N) -> "Tensor":
        """Which tokens the clip has taken the gradient from."""
        ratio_N = self.ratios(logprobs_N, old_N, row_N)
        over_N = (advantages_N > 0) & (ratio_N > 1 + self._high)
        return over_N | ((advantages_N < 0) & (ratio_N < 1 - self.low))

    @property
    def _high(self) -> float:
        return self.low if self.high is None else self.high


@dataclass(frozen=True)
class reinforce(Loss):
    """-A log p of the sampled token: no ratio, no clip (MAGRPO, arXiv 2508.04652, equation 4)."""

    @property
    def still_at_0(self) -> bool:
        return _is_gain(self, reinforce)

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None) -> "Tensor":
        return -advantages_N * logprobs_N + self.regularizer(logprobs_N, entropy_N, reference_N)


def _is_gain(loss: Loss, kind: type[Loss]) -> bool:
    """Is it advantage times something and nothing else? Who builds on a loss of the kit may have added to it."""
    return type(loss).__call__ is kind.__call__ and not (loss.needs_reference or loss.needs_entropy)


AGGREGATES = ("token", "turn", "agent", "sum")
ROW_AGGREGATES = ("turn", "agent")
"""Aggregates in which a row counts once, however long it is."""
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
    if loss.of_rows and aggregate not in ROW_AGGREGATES:
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


def token_losses(loss: Loss, logprobs_N: "Tensor", *known: "Tensor | None") -> "Tensor":
    """Return the loss of each token (N,); raise TypeError, naming the loss, if it returns anything else."""
    losses_N = one_per_token(loss(logprobs_N, *known), logprobs_N, f"loss {type(loss).__name__}")
    if logprobs_N.requires_grad and not losses_N.requires_grad:
        raise TypeError(
            f"loss {type(loss).__name__} gave losses without a gradient: nothing would be learned; compute them from "
            "logprobs_N, undetached"
        )
    return losses_N


def one_per_token(values_N: Any, logprobs_N: "Tensor", who: str) -> "Tensor":
    """Return values, which must be a tensor of the shape of `logprobs_N`; raise TypeError if they are not."""
    if isinstance(values_N, type(logprobs_N)) and values_N.shape == logprobs_N.shape:
        return values_N
    shape = f" of shape {tuple(values_N.shape)}" if isinstance(values_N, type(logprobs_N)) else ""
    raise TypeError(
        f"{who} gave a {type(values_N).__name__}{shape} for {len(logprobs_N)} tokens; wanted is a tensor of shape "
        f"{tuple(logprobs_N.shape)}, a value per token, summed or averaged over nothing: `aggregate` does that"
    )
