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

    from mas_lab.cells.losses import Loss
    from mas_lab.locks import ModelLock


class PolicyError(ValueError):
    """A policy that cannot do what was asked: names the policy and what to do."""


class NotFiniteError(PolicyError):
    """Weights, or what they compute, that are NaN or infinite: nothing that is sampled from them means anything."""


@dataclass(frozen=True)
class Request:
    """One completion asked for. `seed` (64 bit) alone decides the draw, whatever else is in the batch.

    It ends with the token after which one of `stop` stands in its text. `top_p` and `top_k` leave out unlikely tokens.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()
    top_p: float = 1.0
    top_k: int | None = None

    @property
    def is_cut(self) -> bool:
        """Is it drawn from less than the full distribution?"""
        return self.top_p < 1 or self.top_k is not None


def check_fit(policy: "Policy", request: Request) -> None:
    """Raises PolicyError, which names the policy, where a request cannot be answered within the context."""
    prompt, more = len(request.prompt_ids), request.max_tokens
    if prompt == 0 or more < 1:
        raise PolicyError(f"policy {policy.name!r}: {prompt} prompt tokens and max_tokens {more}; both must be ≥ 1")
    if prompt + more > policy.context:
        raise PolicyError(
            f"policy {policy.name!r}: {prompt} prompt tokens + max_tokens {more} = {prompt + more} exceed the "
            f"context of {policy.context} tokens; shorten the observation or lower max_tokens"
        )


@dataclass(frozen=True)
class Completion:
    """What was sampled: `ids` with their `logprobs` under the distribution they were drawn from (temperature
    included), EOS included when it was sampled, nothing after it; `finish` is "eos", "stop" (one of the request's stop
    strings stands in the text, which holds it) or "length"."""

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
    """Batches the requests of every policy it serves. `submit` queues, `ready` returns what has been answered of what
    the thread that calls has asked for.

    An engine that does not stream (`streams = False`) answers everything pending at the first `ready`. One that streams
    gives what is finished after a moment's work, perhaps nothing, so that one engine never waits for another.
    `cancel` forgets what was asked; `publish` makes it sample from the policy's present weights; `rest` tells it that
    training begins, so that it may hand back memory until it is needed again.
    """

    streams: bool

    def submit(self, policy: "Policy", requests: Sequence[Request]) -> list[int]: ...
    def ready(self) -> list[tuple[int, Completion]]: ...
    def cancel(self, tickets: Iterable[int]) -> None: ...
    def publish(self, policy: "Policy") -> None: ...
    def rest(self) -> None: ...


class Policy(Protocol):
    """`name` is what it was loaded as; `context` is the longest prompt plus completion in tokens; `version` rises
    whenever the weights change; policies on different devices are trained at the same time. `lock` is that of its
    model: calls wait for those of other threads (`mas_lab.locks`). One that has `encode_all(chats)` beside `encode`
    puts many chats into tokens at once. One that has `refuse(loss, max_norm, watch)` is asked before
    anything is sent. One with `sees_gradients = False` keeps its gradient out of sight, and is told by `expect` how
    many sequences make a step."""

    name: str
    model: Any
    tokenizer: Any
    engine: Engine
    lock: "ModelLock"
    context: int
    device: Any
    version: int
    lr: float

    def encode(self, messages: Sequence[Message]) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def sample(self, requests: Sequence[Request]) -> list[Completion]: ...
    def logprobs(self, samples: Sequence[Sample]) -> "torch.Tensor": ...
    def entropies(self, samples: Sequence[Sample]) -> "tuple[torch.Tensor, torch.Tensor]": ...
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
