"""Weights that speak and learn, seen from outside: what the cells may ask of a policy, and nothing more.

Shared or per role is the `Team`'s matter; full weights or an adapter, torch, Unsloth or vLLM is the constructor's
(`mas_lab.backends`). No cell asks which it has.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mas_lab.env import Message

if TYPE_CHECKING:
    import torch

    from mas_lab.losses import Loss


class PolicyError(ValueError):
    """A policy that cannot do what was asked: names the policy and what to do."""


@dataclass(frozen=True)
class Request:
    """One completion asked for. `seed` (64 bit) alone decides the draw, whatever else is in the batch."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Completion:
    """What was sampled: `ids` with their `logprobs` under the distribution they were drawn from (temperature
    included), EOS included when it was sampled, nothing after it; `finish` is "eos" or "length"."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: str


@dataclass(frozen=True)
class Sample:
    """One row as the optimizer sees it. `weight` multiplies the loss of each of its tokens; `advantage` is one number,
    or one per token."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    temperature: float
    advantage: float | Sequence[float]
    weight: float


@dataclass(frozen=True)
class Tokens:
    """Per-token results of one `accumulate`, detached, concatenated in the order of the samples (N tokens)."""

    logprobs_N: "torch.Tensor"
    entropy_N: "torch.Tensor"
    losses_N: "torch.Tensor"
    reference_N: "torch.Tensor | None" = None


class Engine(Protocol):
    """Batches the requests of every policy it serves. `submit` queues, `ready` returns what has been answered.

    An engine that does not stream (`streams = False`) answers everything pending at the first `ready`.
    """

    streams: bool

    def submit(self, policy: "Policy", requests: Sequence[Request]) -> list[int]: ...
    def ready(self) -> list[tuple[int, Completion]]: ...


class Policy(Protocol):
    """`name` is what it was loaded as; `context` is the longest prompt plus completion in tokens."""

    name: str
    model: Any
    tokenizer: Any
    engine: Engine
    context: int
    lr: float

    def encode(self, messages: Sequence[Message]) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def sample(self, requests: Sequence[Request]) -> list[Completion]: ...
    def logprobs(self, samples: Sequence[Sample]) -> "torch.Tensor": ...
    def accumulate(self, samples: Sequence[Sample], loss: "Loss") -> Tokens: ...
    def gradients(self) -> Iterator[tuple[str, "torch.Tensor"]]: ...
    def set_gradients(self, gradients: Iterable["torch.Tensor"]) -> None: ...
    def clear_gradients(self) -> None: ...
    def slopes(self, samples: Sequence[Sample], loss: "Loss", along: "Sequence[torch.Tensor]") -> "torch.Tensor": ...
    def apply(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]: ...
    def publish(self) -> None: ...
    def save(self, directory: Path) -> None: ...
    def load(self, directory: Path) -> None: ...
    def describe(self) -> dict[str, Any]: ...
