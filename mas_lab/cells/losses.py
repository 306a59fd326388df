"""Losses: per-token, `tensors -> losses_N`, minimised by `update`.

N counts the completion tokens of a batch. A loss never sees padding, prompts or rows; how tokens are averaged is
`update`'s `aggregate`. Old log-probabilities are those recorded when the tokens were sampled (with `tis`, those of the
trained weights before the update).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


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
    Costs a forward pass over the batch."""

    def __post_init__(self):
        if self.tis is not None and self.tis <= 0:
            raise ValueError(f"{type(self).__name__}: tis={self.tis}; the bound of an importance weight is above 0")

    @property
    def needs_reference(self) -> bool:
        return self.kl != 0

    @property
    def needs_entropy(self) -> bool:
        return self.entropy != 0

    def __call__(self, logprobs_N, old_N, advantages_N, entropy_N=None, reference_N=None) -> "Tensor":
        """The loss of each token (N,), differentiable in `logprobs_N` (and in `entropy_N`, if it is asked for)."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    def clips(self, logprobs_N, old_N, advantages_N) -> "Tensor":
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


@dataclass(frozen=True)
class clipped(Loss):
    """PPO's clipped surrogate: -min(rho A, clip(rho, 1 - low, 1 + high) A), rho = exp(log p - log p_old).

    PPO: arXiv 1707.06347, equation 7. `high` defaults to `low`. `dual` > 1 bounds the loss of a negative advantage by
    dual * |A| (dual clip: arXiv 1912.09729, equation 5).
    """

    low: float = 0.2
    high: float | None = None
    dual: float | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.low < 0 or self._high < 0:
            raise ValueError(f"clipped: low={self.low}, high={self.high}: a clip range is not negative")
        if self.dual is not None and self.dual <= 1:
            raise ValueError(f"clipped: dual={self.dual}; dual clip wants a constant above 1")

    def __call__(self, logprobs_N, old_N, advantages_N, entropy_N=None, reference_N=None) -> "Tensor":
        ratio_N = (logprobs_N - old_N).exp()
        bounded_N = ratio_N.clamp(1 - self.low, 1 + self._high)
        gain_N = (ratio_N * advantages_N).minimum(bounded_N * advantages_N)
        if self.dual is not None:
            floored_N = gain_N.maximum(self.dual * advantages_N)
            gain_N = floored_N.where(advantages_N < 0, gain_N)
        return -gain_N + self.regularizer(logprobs_N, entropy_N, reference_N)

    def clips(self, logprobs_N, old_N, advantages_N) -> "Tensor":
        """Which tokens the clip has taken the gradient from."""
        ratio_N = (logprobs_N - old_N).exp()
        over_N = (advantages_N > 0) & (ratio_N > 1 + self._high)
        return over_N | ((advantages_N < 0) & (ratio_N < 1 - self.low))

    @property
    def _high(self) -> float:
        return self.low if self.high is None else self.high


@dataclass(frozen=True)
class reinforce(Loss):
    """-A log p of the sampled token: no ratio, no clip (MAGRPO, arXiv 2508.04652, equation 4)."""

    def __call__(self, logprobs_N, old_N, advantages_N, entropy_N=None, reference_N=None) -> "Tensor":
        return -advantages_N * logprobs_N + self.regularizer(logprobs_N, entropy_N, reference_N)
