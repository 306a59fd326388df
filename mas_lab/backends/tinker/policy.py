"""Policies with weights behind a Tinker-compatible server: one training client and one adapter for each.

`sync_weights` is the API's save_weights_and_get_sampling_client. The gradient stays on the server, which only reports
its norm. Leaves out: the base that adapters share (`base`), and making policies (`making`).
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from mas_lab.backends.tinker.base import TinkerBase
from mas_lab.backends.tinker.losses import data, server_loss
from mas_lab.backends.torch.encoding import encode
from mas_lab.cells.losses import Loss, token_losses
from mas_lab.env import Message
from mas_lab.policy import Capabilities, Completion, PolicyError, Request, Sample, Tokens

RECORD = "policy.json"
KEYS = ("source", "lora", "options", "url", "adapters", "state", "lr", "template", "name")


class TinkerPolicy:
    """An adapter on a server, with its optimizer there."""

    def __init__(self, base: TinkerBase, name: str, index: int):
        self.base, self.name, self.index, self.lr, self.version = base, name, index, base.lr, 0
        self.client = base.new_client(base.seed + index)
        self._sampler, self._published = None, -1
        self._whole, self._pending = True, False
        """True if nothing is lost; True if samples of the next step have been sent."""

    model = property(lambda self: self.base)
    tokenizer = property(lambda self: self.base.tokenizer)
    engine = property(lambda self: self.base.engine)
    lock = property(lambda self: self.base.lock)
    context = property(lambda self: self.base.context)

    def __repr__(self) -> str:
        where = self.base.options.url
        return f"TinkerPolicy(model={self.base.name!r}, adapter={self.name!r}, lr={self.lr}, url={where!r})"

    # Sampling

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return self.encode_all([messages])[0]

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        return encode(self.tokenizer, chats, self.base.template, self.name)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        return self.engine.sample(self, requests)

    def sampler(self) -> Any:
        """Return the sampling client of the present weights."""
        self.sync_weights()
        return self._sampler

    def sync_weights(self) -> None:
        """Let the server sample from these weights, and prove it on one request.

        The sampled tokens must have the log-probabilities that `forward` gives them. Raises PolicyError if they do not.
        """
        self._require_whole()
        if self._published == self.version:
            return
        publish = self.client.save_weights_and_get_sampling_client
        self._sampler, self._published = self.base.service.of("publish weights", publish), self.version
        request = self.engine.last(self)
        if request is None:
            return
        said = self.engine.sample(self, [request])[0]
        told = Sample(request.prompt_ids, said.ids, said.logprobs, 1.0, 0.0, 0.0)
        if request.temperature != 1:
            return
        gap = (self.forward([told]).logprobs_N - torch.tensor(said.logprobs)).abs().max().item()
        if not gap <= self.base.options.tolerance:
            self._published = -1
            raise PolicyError(
                f"policy {self.name!r}: stale weights: after publishing, a sampled token's log-probability differs "
                f"from that of the trained weights by {gap:.2g} (tolerance {self.base.options.tolerance:.2g}); publish "
                "once more, and if it happens again, the server samples from other weights than it trains"
            )

    # Learning

    @property
    def capabilities(self) -> Capabilities:
        """Return what the server can do."""
        no_clipping = (
            f"the Tinker server at {self.base.options.url} may not clip (SkyRL 0.3 takes the bound and does nothing "
            "with it); pass max_norm=None, or load_base(..., clips=True) where you know that it does, as the hosted one"
        )
        return Capabilities(
            gradients=False, entropies=False, clipping=self.base.options.clips, no_clipping=no_clipping,
            device=self.base.options.url,
        )  # fmt: skip

    def forward(self, samples: Sequence[Sample]) -> Tokens:
        """Return the log-probability of each token by the server's forward; it gives no entropies."""
        forward = partial(self.client.forward, data(samples, "cross_entropy", 0.0), "cross_entropy")
        found = self.base.service.of("compute log-probabilities", forward)
        logprobs_N = self._tokens(found.loss_fn_outputs, samples)
        return Tokens(logprobs_N, torch.full_like(logprobs_N, float("nan")), torch.zeros_like(logprobs_N))

    def _tokens(self, found: Sequence[Any], samples: Sequence[Sample]) -> torch.Tensor:
        parts = [
            one["logprobs"].data[-len(sample.completion_ids) :] for one, sample in zip(found, samples, strict=True)
        ]
        return torch.tensor([float(value) for part in parts for value in part])

    def forward_backward(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """Add the gradient of sum_i weight_i sum_t loss_it on the server. An empty batch only checks the loss.

        All samples of a step belong in one call: a server that averages divides by their number.
        """
        self._require_whole()
        name, config = server_loss(loss, f"policy {self.name!r}, backend 'tinker'")
        if not samples:
            return Tokens(*[torch.zeros(0)] * 3)
        tempered = [one.temperature for one in samples if one.temperature != 1]
        if tempered:
            raise PolicyError(
                f"policy {self.name!r}: a row was sampled at temperature {tempered[0]:g}, and a Tinker server trains "
                "the distribution of temperature 1; have the team sample at 1"
            )
        factor = float(len(samples)) if self.base.averages_sequences() else 1.0
        self._pending = True
        logprobs_N = self._tokens(self.base.send(self.client, samples, name, config, factor), samples)
        old_N = torch.tensor([float(value) for one in samples for value in one.logprobs])
        advantages_N = torch.tensor(np.concatenate([one.advantages_T for one in samples]), dtype=torch.float32)
        row_N = torch.from_numpy(np.repeat(np.arange(len(samples)), [len(one.completion_ids) for one in samples]))
        unknown_N = torch.full_like(logprobs_N, float("nan"))
        losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, row_N, unknown_N, None)
        return Tokens(logprobs_N, unknown_N, losses_N)

    def optim_step(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Call optim_step at `lr * lr_scale`; return the server's norm of the gradient before and after clipping."""
        self._require_whole()
        self._pending, self._whole = False, False
        before = self.base.step(self.client, self.lr * lr_scale, max_norm)
        self._whole, self.version = True, self.version + 1
        return before, before if max_norm is None else min(before, max_norm)

    def set_gradients(self, gradients: None) -> None:
        """Mark a gradient that was sent and not used as lost.

        A server keeps it until it steps, and it cannot be taken back. This policy refuses to go on until a saved state
        is loaded.
        """
        self._whole, self._pending = self._whole and not self._pending, False

    def _require_whole(self) -> None:
        if not self._whole:
            raise PolicyError(
                f"policy {self.name!r}: a step was broken off, and the server may hold its gradient; load a saved "
                "state: train(..., run=...) with the same run goes on from its last checkpoint"
            )

    def gradients(self) -> NoReturn:
        """Raise PolicyError: the gradient lies on the server."""
        raise PolicyError(
            f"policy {self.name!r}: the gradient lies on the Tinker server, which returns its norm alone. "
            "SpikeInspector marks spikes by the norms of the agents, and opens none; shares of samples and tokens need "
            "a back end whose weights are here"
        )

    gradient_norm = gradients

    def directional_derivatives(self, *_: Any) -> NoReturn:
        """Raise PolicyError: the gradient lies on the server."""
        self.gradients()

    # Saving

    def describe(self) -> dict[str, Any]:
        """Return a description of this policy; two policies with equal descriptions may swap states."""
        told = self.base.options.plain()
        del told["url"]
        return {"backend": "tinker", "source": asdict(self.base.source), "template": self.base.template, "lr": self.lr,
                "lora": {"rank": self.base.rank, "seed": self.base.seed, "index": self.index}, "options": told,
                "name": self.name}  # fmt: skip

    def save(self, directory: Path) -> None:
        """Write the server's path of the state (weights and optimizer), and the record that rebuilds the policy.

        The weights stay on the server, so a checkpoint lives only as long as the server's storage.
        """
        self._require_whole()
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        called = f"{self.name}-{self.version}-{secrets.token_hex(4)}"
        path = self.base.service.of("save", lambda: self.client.save_state(called)).path
        record = self.describe() | {"state": path, "url": self.base.options.url, "adapters": self.base.size}
        (directory / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        self.tokenizer.save_pretrained(directory)

    def load(self, directory: Path) -> None:
        """Load the state that `save` named, if the server still has it."""
        path = read_record(Path(directory))["state"]
        self.base.service.of(f"load the state {path}", lambda: self.client.load_state_with_optimizer(path))
        self.version, self._whole, self._pending, self._published = self.version + 1, True, False, -1


def read_record(directory: Path) -> dict[str, Any]:
    """Return the record in `directory`; raise PolicyError if it is missing or was not written by `save`."""
    path = directory / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        missing = [name for name in KEYS if name not in found]
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise PolicyError(f"{path} was not written by a policy of backend 'tinker' ({error})") from None
    if missing:
        raise PolicyError(f"{path} has no {missing[0]!r}: it was not written by a policy of backend 'tinker'")
    return found
