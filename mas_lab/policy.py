"""Define the policy protocol: the methods of weights that generate and learn, for cells, runs and instruments.

docs/extending.md shows a new back end. Leaves out: the assignment of agents to policies (`Team`). The constructors in
`mas_lab.backends` choose full weights or an adapter, and torch, Unsloth, vLLM or Tinker.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mas_lab.env import Message, Tools

if TYPE_CHECKING:
    import pandas as pd
    import torch


class PolicyError(ValueError):
    """An error of a policy that cannot do what it should; the message names the policy and the remedy."""

    ticket: int | None = None
    """Ticket of the request that failed. `None`: unknown."""


class NotFiniteError(PolicyError):
    """An error for weights or log-probabilities that are NaN or infinite, so that their samples mean nothing."""


@dataclass(frozen=True)
class Request:
    """One completion to sample. The draw depends on `seed` (64 bit), not on the other requests of the batch."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()
    """Stop texts: the completion ends after one of them, and contains it."""
    top_p: float = 1.0
    top_k: int | None = None

    @property
    def is_truncated(self) -> bool:
        """Return True if unlikely tokens are left out."""
        return self.top_p < 1 or self.top_k is not None


@dataclass(frozen=True)
class Completion:
    """The sampled tokens of one request, with EOS if it was sampled."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Log-probabilities in nats, under the distribution that the tokens were drawn from (with its temperature)."""
    text: str
    finish: str
    """Reason of the end: "eos", "stop" (the text contains a stop text of the request) or "length"."""


@dataclass(frozen=True)
class Sample:
    """One row of the table, in the form that the policy trains on."""

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    logprobs: Sequence[float]
    """Log-probabilities of the completion's tokens when they were sampled."""
    temperature: float
    advantage: float | Sequence[float]
    """One number for the row, or one per token."""
    weight: float
    """Factor of the loss of each token."""

    @property
    def advantages_T(self) -> np.ndarray:
        """Return the advantage of each token (T,)."""
        return np.full(len(self.completion_ids), self.advantage, float)


SAMPLED = ["prompt_ids", "completion_ids", "logprobs", "temperature"]
"""The columns of the table that a `Sample` has from the rollout."""


def samples_of(rows: "pd.DataFrame", **constants: float) -> list[Sample]:
    """Return the rows of a table as samples; `constants` are the fields that are no columns, such as weight=0.0."""
    columns = [name for name in Sample.__dataclass_fields__ if name not in constants]
    return [Sample(**row, **constants) for row in rows[columns].to_dict("records")]


@dataclass(frozen=True)
class Tokens:
    """Detached results (N,) per token, for the tokens of all samples in their order."""

    logprobs_N: "torch.Tensor"
    entropy_N: "torch.Tensor"
    losses_N: "torch.Tensor"
    reference_N: "torch.Tensor | None" = None
    """Log-probabilities under the frozen reference. `None`: the loss does not need them."""

    def split(self, samples: Sequence[Sequence[Sample]]) -> "list[Tokens]":
        """Return the tokens of each part of the samples."""
        lengths = [sum(len(sample.completion_ids) for sample in part) for part in samples]
        columns = [self.logprobs_N, self.entropy_N, self.losses_N, self.reference_N]
        parts = [[None] * len(lengths) if column is None else column.split(lengths) for column in columns]
        return [Tokens(*part) for part in zip(*parts, strict=True)]


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a back end beyond the protocol."""

    gradients: bool = True
    """True if gradients can be read and set. Otherwise only the norm of a whole policy is known, after its step."""
    entropies: bool = True
    """True if `forward` returns the entropy of each token."""
    versions: bool = False
    """True if earlier weights can be kept, and sampled from, beside the present ones: `copy_weights`, `at_version`."""
    snapshots: bool = False
    """True if `snapshot` returns weights that a process of its own samples from while the policy learns."""
    clipping: bool = True
    """True if `optim_step` clips at `max_norm`."""
    no_clipping: str = "its back end does not clip; pass max_norm=None"
    """Error message for a `max_norm`, if the back end does not clip."""
    vocabulary: int | None = None
    """Number of token ids of the model. `None`: unknown, not checked."""
    device: str = "cpu"
    """Name of the device. Policies on different devices compute their gradients at the same time."""
    tolerance: float | None = None
    """Largest |p_trained / p_sampled - 1| of a token that the present weights sampled, or its mean over many tokens if
    there is a `tis`; `update` refuses more. `None`: unknown, not checked."""
    tis: float | None = None
    """Bound of the importance weights of a loss with `tis=None`, for fresh rows. `None`: none, because the sampler and
    the weights that learn agree up to float noise. In half precision they do not."""


class Engine(Protocol):
    """A sampler for all policies of one model: `submit` queues requests, and `ready` returns answers.

    If `streams` is False, the first `ready` answers all queued requests. If it is True, `ready` returns the requests
    that are finished after a moment, perhaps none.
    """

    streams: bool
    snapshots: bool
    """True if it samples in a process of its own, see `Capabilities`."""

    def submit(self, policy: "Policy", requests: Sequence[Request]) -> list[int]:
        """Queue requests and return a ticket for each."""

    def ready(self) -> list[tuple[int, Completion]]:
        """Return (ticket, completion) of the answered requests."""

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forget requests."""


class Policy(Protocol):
    """Weights that generate and learn. `version` increases whenever they change.

    `gradients`, `gradient_norm` and `directional_derivatives` are called only if `capabilities.gradients`. `kept`,
    `copy_weights` and `at_version` are only used if `capabilities.versions`, and `snapshot` only if
    `capabilities.snapshots`.
    """

    name: str
    lr: float
    version: int
    context: int
    """Longest prompt plus completion, in tokens."""
    model: Any
    tokenizer: Any
    engine: Engine
    lock: Any
    """The `mas_lab.locks.ModelLock` of its model."""
    capabilities: Capabilities
    kept: "dict[int, dict[str, torch.Tensor]]"
    """Copies of earlier weights by their version, the number of training steps that made them. `save` writes them."""

    def encode(self, messages: Sequence[Message], tools: Tools = (), choice: str = "auto") -> list[int]:
        """Return the token ids of a chat, up to the place where the policy answers.

        The prompt offers `tools`. It ends with the opening of a call if `choice` is "required" or a tool's name.
        """

    def encode_all(
        self, chats: Sequence[Sequence[Message]], tools: Tools = (), choice: str = "auto"
    ) -> list[list[int]]:
        """Encode many chats in one call."""

    def encode_answer(self, text: str) -> list[int]:
        """Return the token ids of an answer, with the token that ends a turn, for `imitate`."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Return a completion per request, in order."""

    def forward(self, samples: Sequence[Sample]) -> Tokens:
        """Return log-probabilities and entropies of the samples' tokens, without gradient; losses are 0."""

    def forward_backward(self, samples: Sequence[Sample], loss: Any) -> Tokens:
        """Add the gradient of sum_i weight_i sum_t loss_it to the one that is there.

        With no samples, only raise PolicyError if the back end cannot compute this loss.
        """

    def gradients(self) -> "list[tuple[str, torch.Tensor]]":
        """Return (parameter name, gradient) of each parameter that this policy trains, always in the same order."""

    def set_gradients(self, gradients: "Iterable[torch.Tensor] | None") -> None:
        """Replace the gradients; `None` clears them."""

    def gradient_norm(self) -> float:
        """Return the norm of the gradient, in float64."""

    def directional_derivatives(self, samples: Sequence[Sample], loss: Any, along: "Sequence[torch.Tensor]") -> Any:
        """Return the derivative of each token's weighted loss (N,) along a direction in weight space."""

    def optim_step(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Clip, make one optimizer step at `lr * lr_scale`, clear the gradients; return (norm, clipped norm)."""

    def sync_weights(self) -> None:
        """Make the engine sample from the present weights."""

    def copy_weights(self) -> "dict[str, torch.Tensor]":
        """Return a copy of the trained weights, by parameter name."""

    def at_version(self, number: int) -> AbstractContextManager[None]:
        """Use the weights `kept[number]` inside the `with` block, in which no optimizer step may be made."""

    def snapshot(self) -> "Policy":
        """Return a policy of the present weights that samples, has a lock of its own, and does not learn."""

    def save(self, directory: Path) -> None:
        """Write weights, optimizer state, and the record that rebuilds the policy."""

    def load(self, directory: Path) -> None:
        """Read weights and optimizer state that `save` wrote."""

    def describe(self) -> dict[str, Any]:
        """Return a description as plain data; policies with equal descriptions may load each other's states."""


def check_fit(policy: Policy, requests: Sequence[Request]) -> None:
    """Raise PolicyError if a request is empty or exceeds the context of its policy."""
    for prompt, more in ((len(request.prompt_ids), request.max_tokens) for request in requests):
        if prompt == 0 or more < 1:
            raise PolicyError(f"policy {policy.name!r}: {prompt} prompt tokens and max_tokens {more}; both must be ≥ 1")
        if prompt + more > policy.context:
            raise PolicyError(
                f"policy {policy.name!r}: {prompt} prompt tokens + max_tokens {more} = {prompt + more} exceed the "
                f"context of {policy.context} tokens; shorten the observation or lower max_tokens"
            )


PolicyRequest = tuple[Policy, Request]


class WaveEngine(ABC):
    """An engine that queues the requests to the policies of one model and answers them together."""

    streams = snapshots = False

    def __init__(self):
        self._queue: dict[int, PolicyRequest] = {}
        self._tickets = count()
        self._turn = threading.RLock()  # threads of an environment may sample during a rollout

    @abstractmethod
    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""

    def submit(self, policy: Policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests and return a ticket for each. Raises PolicyError if one does not fit the context."""
        check_fit(policy, requests)
        tickets = [next(self._tickets) for _ in requests]
        self._queue |= {ticket: (policy, request) for ticket, request in zip(tickets, requests, strict=True)}
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        """Answer all queued requests; return them as (ticket, completion)."""
        queue, self._queue = self._queue, {}
        with self._turn:
            return list(zip(queue, self.complete(list(queue.values())), strict=True)) if queue else []

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forget queued requests."""
        for ticket in tickets:
            self._queue.pop(ticket, None)

    def sample(self, policy: Policy, requests: Sequence[Request]) -> list[Completion]:
        """Answer these requests now, in order; the queue does not change."""
        check_fit(policy, requests)
        with self._turn:
            return self.complete([(policy, request) for request in requests])

    def sync_weights(self, policy: Policy) -> None:  # noqa: B027 - most engines sample from the trained weights
        """Sample from the policy's present weights; an engine that samples from the trained weights does nothing."""

    def release_memory(self) -> None:  # noqa: B027
        """Release memory before training; an engine without memory of its own does nothing."""
