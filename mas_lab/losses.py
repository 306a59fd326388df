"""Losses per token, `tensors -> losses_N`, which `update` minimises.

N is the number of completion tokens of a micro-batch. `row_N` gives the row of each token as a whole number from 0. The
tokens of a row stand side by side in the order in which they were sampled, and no row is cut in two. A loss sees
neither padding nor prompts. The average over tokens is `update`'s `aggregate`. Old log-probabilities are those recorded
at sampling time (with `tis`, those of the trained weights before the update). Leaves out: the gradient, which the back
ends compute.
"""

from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mas_lab.arguments import check_arguments

if TYPE_CHECKING:
    from torch import Tensor

AGGREGATES = ("token", "turn", "agent", "sum")
RATIOS = ("token", "sequence", "action")
"""The values of `clipped.ratio`."""


class UpdateError(RuntimeError):
    """A loss or gradient that must not reach the optimizer: names policy, agent, task and turn."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Base class of all losses. Your own loss is a frozen dataclass of this kind with a `__call__`.

    Raises:
        ValueError: `tis` is negative.
    """

    kl: float = 0.0
    """Weight of the KL penalty. The k3 estimate of KL(policy || frozen reference) is exp(d) - d - 1 with d = log ref -
    log policy. The reference is the weights with which the training began: for a new adapter the base, for weights
    that were loaded those weights, and for a resumed run its own first weights. 0.0: no penalty."""
    entropy: float = 0.0
    """Weight of an entropy bonus. 0.0: no bonus."""
    tis: float | None = None
    """Upper bound of the weight in truncated importance sampling, for an engine that samples from other probabilities
    than those of the weights that learn. A token's advantage is multiplied by min(p_trained / p_sampled, tis), both
    from before the update. Ratios are relative to p_trained (Yao et al. 2025, "Your Efficient RL Framework Secretly
    Brings You Off-Policy RL Training"). The correction is per token, also where the loss has one ratio per row. It
    costs one more forward pass over the batch if `update` makes several optimizer steps. In the first step its ratios
    are 1, so the loss clips nothing there. `None`: 2.0 for policies in half precision, and off for others and for rows
    of earlier weights (`staleness`): on a ladder of four agents, `tis` alone cost 0.017 of success (0.003 to 0.032) at
    one step of age and 0.033 (0.009 to 0.057) at two, and clipping alone nothing that ten seeds could tell. 0.0:
    off."""

    is_sequence_level: ClassVar[bool] = False
    """True if every token of a row has the value of its row. It then needs an `aggregate` that counts a row once."""

    def __post_init__(self):
        check_arguments(Loss, vars(self), type(self).__name__, kl=0)
        if self.tis is not None and self.tis < 0:
            raise ValueError(
                f"{type(self).__name__}: tis={self.tis}; the bound of an importance weight is not negative"
            )

    @property
    def needs_reference(self) -> bool:
        """Return True if the loss reads the log-probabilities of the frozen reference."""
        return self.kl != 0

    @property
    def needs_entropy(self) -> bool:
        """Return True if the loss reads the entropies of the tokens' distributions."""
        return self.entropy != 0

    @property
    def skips_zero_advantage(self) -> bool:
        """Return True if a row with advantages of 0 adds exactly nothing to the gradient.

        Such a row needs no pass through the model. Your own loss may return True to save time. Default: True if the
        loss has no regularizer, and the `__call__` of `clipped` or `reinforce`, to which a subclass may add a term.
        """
        plain = type(self).regularizer is Loss.regularizer and not (self.needs_reference or self.needs_entropy)
        return plain and type(self).__call__ in (clipped.__call__, reinforce.__call__)

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None) -> "Tensor":
        """Return the loss of each token.

        Args:
            logprobs_N: Log-probability of each token under the weights that learn, (N,), with gradient.
            old_N: Old log-probability of each token, (N,).
            advantages_N: Advantage of each token, (N,).
            row_N: Row of each token, (N,), whole numbers from 0.
            entropy_N: Entropy of each token's distribution in nats, (N,). Read only if `needs_entropy`.
            reference_N: Log-probability of each token under the frozen reference, (N,); `None` unless
                `needs_reference`.

        Returns:
            Losses (N,), differentiable in `logprobs_N`, and in `entropy_N` if the loss needs it.

        Raises:
            NotImplementedError: The subclass has no `__call__`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def ratios(self, logprobs_N, old_N, row_N) -> "Tensor":
        """Return the factor by which the loss weights each token; `update` reports the largest.

        `update` uses it only if it is defined in the class that defines `__call__`, or in a subclass of that one. Else
        it reports NaN. `ratios = lab.Loss.ratios` in the class says that the default holds.

        Args:
            logprobs_N: Log-probability of each token under the weights that learn, (N,).
            old_N: Old log-probability of each token, (N,).
            row_N: Row of each token, (N,).

        Returns:
            Factors (N,). Default: p / p_old of the token.
        """
        return (logprobs_N - old_N).exp()

    def clips(self, logprobs_N, old_N, advantages_N, row_N) -> "Tensor":
        """Return which tokens lost their gradient to the loss; `update` reports their share, by the rule of `ratios`.

        Args:
            logprobs_N: Log-probability of each token under the weights that learn, (N,).
            old_N: Old log-probability of each token, (N,).
            advantages_N: Advantage of each token, (N,).
            row_N: Row of each token, (N,).

        Returns:
            Booleans (N,). Default: no token.
        """
        return advantages_N.new_zeros(advantages_N.shape, dtype=bool)

    def regularizer(self, logprobs_N: "Tensor", entropy_N: "Tensor | None", reference_N: "Tensor | None"):
        """Return the KL penalty minus the entropy bonus of each token.

        Args:
            logprobs_N: Log-probability of each token under the weights that learn, (N,).
            entropy_N: Entropy of each token's distribution in nats, (N,). Read only if `needs_entropy`.
            reference_N: Log-probability of each token under the frozen reference, (N,). Read only if `needs_reference`.

        Returns:
            A tensor (N,), or 0.0 if both weights are 0.
        """
        extra = 0.0
        if self.needs_reference:
            extra = extra + self.kl * k3(logprobs_N, reference_N)
        if self.needs_entropy:
            extra = extra - self.entropy * entropy_N
        return extra


def k3(logprobs_N: "Tensor", reference_N: "Tensor") -> "Tensor":
    """Return an unbiased, non-negative estimate of KL(policy || reference) per token (Schulman 2020)."""
    difference_N = reference_N - logprobs_N
    return difference_N.exp() - difference_N - 1


def row_sum(values_N: "Tensor", row_N: "Tensor") -> "Tensor":
    """Return the sum of each row's values, repeated at every token of the row; differentiable.

    Args:
        values_N: One value per token, (N,).
        row_N: Row of each token, (N,), whole numbers from 0.

    Returns:
        A tensor (N,).
    """
    return values_N.new_zeros(values_N.shape).index_add(0, row_N, values_N)[row_N]


def row_mean(values_N: "Tensor", row_N: "Tensor") -> "Tensor":
    """Return the mean of each row's values, repeated at every token of the row; differentiable.

    Args:
        values_N: One value per token, (N,).
        row_N: Row of each token, (N,), whole numbers from 0.

    Returns:
        A tensor (N,).
    """
    return row_sum(values_N, row_N) / row_sum(values_N.new_ones(values_N.shape), row_N)


@dataclass(frozen=True)
class clipped(Loss):
    """PPO's clipped surrogate loss.

    PPO, arXiv 1707.06347, equation 7:

        loss = -min(rho * A, clip(rho, 1 - low, 1 + high) * A)

    `ratio` defines rho. With d = log p - log p_old of a token:
    - "token": rho = exp(d).
    - "sequence": rho = exp(mean of d over the row), GSPO, arXiv 2507.18071.
    - "action": rho = exp(sum of d over the row), one ratio per action, Dr. MAS, arXiv 2602.08847, equation 3.

    Under "sequence" and "action" every token of a row has the ratio of its row. This ratio moves with the token's own
    log-probability: by d for "sequence", and by the row's length times d for "action". The mean loss of the row then
    has the value and the gradient of -min(rho A, clip(rho) A). If a row has one advantage per token, each advantage
    acts on its own token (GSPO-token, section 4.3 of GSPO). Both need an aggregate that counts a row once, "turn" or
    "agent". At ratio 1 and under "turn", "sequence" has the gradient of "token". "action" then has the gradient of
    "token" under "sum", which is the row's length times larger.

    Raises:
        ValueError: `low` or `high` is negative, `dual` is not above 1, `ratio` is unknown, or `tis` is negative.
    """

    low: float = 0.2
    """Ratios below 1 - low are clipped."""
    high: float | None = None
    """Ratios above 1 + high are clipped. `None`: the value of `low`."""
    dual: float | None = None
    """Constant above 1 of the dual clip (arXiv 1912.09729, equation 5): the loss of a negative advantage is at most
    dual * |A|. `None`: no dual clip."""
    ratio: str = "token"
    """Definition of the ratio: "token", "sequence" or "action"."""

    def __post_init__(self):
        super().__post_init__()
        check_arguments(clipped, vars(self))
        if self.low < 0 or self._high < 0:
            raise ValueError(f"clipped: low={self.low}, high={self.high}: a clip range is not negative")
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"clipped: dual={self.dual}; the constant of the dual clip is above 1")
        if self.ratio not in RATIOS:
            raise ValueError(f"clipped: ratio={self.ratio!r}; known are {', '.join(RATIOS)}")

    @property
    def is_sequence_level(self) -> bool:
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
        """Return which tokens lost their gradient to the clip."""
        ratio_N = self.ratios(logprobs_N, old_N, row_N)
        over_N = (advantages_N > 0) & (ratio_N > 1 + self._high)
        floored_N = ratio_N > (self.dual or inf)
        return over_N | ((advantages_N < 0) & ((ratio_N < 1 - self.low) | floored_N))

    @property
    def _high(self) -> float:
        return self.low if self.high is None else self.high


@dataclass(frozen=True)
class reinforce(Loss):
    """REINFORCE loss: the advantage times the negative log-probability of the sampled token.

        loss = -A log p

    It has no ratio and no clip (MAGRPO, arXiv 2508.04652, equation 4).
    """

    ratios, clips = Loss.ratios, Loss.clips

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None) -> "Tensor":
        return -advantages_N * logprobs_N + self.regularizer(logprobs_N, entropy_N, reference_N)


def corrected(loss: Loss, logprobs_N: "Tensor", old_N: "Tensor", advantages_N: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return the old log-probabilities and the advantages that a loss with `tis` reads in the first optimizer step.

    Before that step the weights that learn are the old ones: the ratio is 1, and its slope is that of log p.
    """
    if not loss.tis:
        return old_N, advantages_N
    own_N = logprobs_N.detach()
    return own_N, advantages_N * (own_N - old_N).exp().clamp(max=loss.tis)


def token_losses(loss: Loss, logprobs_N: "Tensor", old_N: "Tensor", advantages_N: "Tensor", *inputs) -> "Tensor":
    """Return the loss of each token (N,); raise TypeError, naming the loss, if it returns anything else."""
    old_N, advantages_N = corrected(loss, logprobs_N, old_N, advantages_N)
    losses_N = one_per_token(loss(logprobs_N, old_N, advantages_N, *inputs), logprobs_N, f"loss {type(loss).__name__}")
    if logprobs_N.requires_grad and not losses_N.requires_grad:
        raise TypeError(
            f"loss {type(loss).__name__} returned losses without a gradient: nothing would be learned; compute them "
            "from logprobs_N, undetached"
        )
    return losses_N


def one_per_token(values_N: Any, logprobs_N: "Tensor", who: str) -> "Tensor":
    """Return values, which must be a tensor of the shape of `logprobs_N`; raise TypeError if they are not."""
    if isinstance(values_N, type(logprobs_N)) and values_N.shape == logprobs_N.shape:
        return values_N
    is_array = isinstance(values_N, type(logprobs_N) | np.ndarray)
    shape = f" of shape {tuple(values_N.shape)}" if is_array else ""
    raise TypeError(
        f"{who} returned a {type(values_N).__name__}{shape} for {len(logprobs_N)} tokens; return a tensor of shape "
        f"{tuple(logprobs_N.shape)}, a value per token, neither summed nor averaged: `aggregate` does that"
    )


def reported(loss: Loss, name: str, logprobs_N: "Tensor", *inputs) -> "Tensor":
    """Return what the loss says of each token (N,) by its method "ratios" or "clips"; NaN if it does not say."""
    owner = next(kind for kind in type(loss).__mro__ if {name, "__call__"} & set(vars(kind)))
    if name not in vars(owner):
        return logprobs_N.new_full(logprobs_N.shape, nan)
    return one_per_token(getattr(loss, name)(logprobs_N, *inputs), logprobs_N, f"{name} of loss {loss!r}")


def require_loss(loss: Any, aggregate: str, cell: str) -> None:
    """Raise ValueError, naming the `cell`, if `update` cannot average this loss by `aggregate`."""
    if aggregate not in AGGREGATES:
        raise ValueError(f"{cell}: aggregate={aggregate!r}; known are {', '.join(AGGREGATES)}")
    if loss.is_sequence_level and aggregate not in ("turn", "agent"):
        raise ValueError(
            f"{cell}: {loss!r} gives every token of a row the value of its row, and aggregate={aggregate!r} adds it up "
            "once for each token: long rows would weigh twice, by their ratio and by their length; pass "
            "aggregate='turn' or 'agent', where a row counts once"
        )
