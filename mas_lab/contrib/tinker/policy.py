"""Policies with weights behind a Tinker-compatible server: a base model, and one adapter with its optimizer for each.

`sync_weights` is the API's save_weights_and_get_sampling_client. The gradient stays on the server, which only reports
its norm. Leaves out: the connection (`service`) and the losses of a server (`losses`).
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from transformers import AutoTokenizer, GenerationConfig

from mas_lab.backends.torch.encoding import AdapterBase, ChatPolicy
from mas_lab.backends.torch.source import RECORD, Source, context_of, eos_ids, model_config, options_of, read_record
from mas_lab.contrib.tinker.losses import data, server_loss
from mas_lab.contrib.tinker.service import Service
from mas_lab.locks import ModelLock
from mas_lab.losses import Loss, token_losses
from mas_lab.policy import Capabilities, Completion, PolicyError, PolicyRequest, Request, Sample, Tokens, WaveEngine


@dataclass(frozen=True)
class TinkerOptions:
    """Options of a server."""

    url: str = "http://127.0.0.1:8000"
    """Address of the server."""
    api_key: str | None = None
    """Key of a hosted server. `None`: the environment variable TINKER_API_KEY. It is never written anywhere."""
    model: str | None = None
    """The server's name for the base model. `None`: its directory or hub id."""
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    clips: bool = False
    """True if the server clips by AdamParams.grad_clip_norm. The hosted one does. SkyRL 0.3 does not, and gives no
    error."""
    tolerance: float = 0.1
    """Largest difference, in nats, between the log-probabilities of sampled tokens and those of the weights that learn;
    the mean of a completion. Servers compute in bfloat16, where it is about 0.03."""
    timeout_s: float = 900.0
    """Seconds that one answer may take, including compilation."""


class TinkerEngine(WaveEngine):
    """An engine that answers in waves.

    A draw follows its request's seed only if the server does, which Tinker does not promise.
    """

    def __init__(self, service: Any, eos: frozenset[int]):
        super().__init__()
        self.service, self.eos = service, eos

    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""
        for policy, request in requests:
            policy.sync_weights()
            policy.last_request = request
        calls = [partial(self._sample, policy.sampler, request) for policy, request in requests]
        found = self.service.ask("sample", *calls)
        return [self._completion(*one, answer.sequences[0]) for one, answer in zip(requests, found, strict=True)]

    def sync_weights(self, policy: Any) -> None:
        policy.sync_weights()

    def _sample(self, sampler: Any, request: Request) -> Any:
        from tinker import types

        how = types.SamplingParams(
            max_tokens=request.max_tokens, temperature=request.temperature, seed=request.seed & 0x7FFFFFFF,
            stop=sorted(self.eos), top_p=request.top_p, top_k=-1 if request.top_k is None else request.top_k,
        )  # fmt: skip
        prompt = types.ModelInput.from_ints(list(map(int, request.prompt_ids)))
        return sampler.sample(prompt=prompt, num_samples=1, sampling_params=how)

    def _completion(self, policy: Any, request: Request, found: Any) -> Completion:
        """Return the sampled tokens, up to the token that completes a stop text."""
        ids, logprobs = list(found.tokens), found.logprobs
        if not ids or logprobs is None or len(logprobs) != len(ids):
            raise PolicyError(
                f"policy {policy.name!r}: the server gave {len(ids)} tokens and {len(logprobs or ())} "
                "log-probabilities; there is nothing to learn from"
            )
        finish = "eos" if ids[-1] in self.eos else "length"
        for end in range(1, len(ids) + 1) if request.stop else ():
            if any(one in policy.decode(ids[:end]) for one in request.stop):
                ids, logprobs, finish = ids[:end], logprobs[:end], "stop"
                break
        return Completion(tuple(ids), tuple(map(float, logprobs)), policy.decode(ids), finish)


class TinkerBase(AdapterBase):
    """A base model on a server, with up to `adapters` adapters of one rank."""

    def __init__(self, source: Source, adapters: int, rank: int, lr: float, seed: int, template: Any, **options: Any):
        self.source, self.size, self.rank, self.lr, self.seed = source, adapters, rank, lr, seed
        self.options, self.template, self.lock = options_of(TinkerOptions, options), dict(template or {}), ModelLock()
        self.service = Service(self.options.url, self.options.api_key, self.options.timeout_s)
        here, self.name = source.location(), self.options.model or source.location()
        found = self.service.of("tell what it has", self.service.client.get_server_capabilities)
        known = [model.model_name for model in found.supported_models]
        if self.name not in known:
            raise PolicyError(
                f"the Tinker server at {self.options.url} has no model {self.name!r}; it has {', '.join(known)}: say "
                "which it is by model=, or start it with --base-model"
            )
        self.tokenizer = AutoTokenizer.from_pretrained(here, trust_remote_code=False)
        config = model_config(here)
        try:
            ends = GenerationConfig.from_pretrained(here)
        except OSError:  # as transformers does for a model without the file
            ends = config.get_text_config()
        self.context, self.eos_ids = context_of(config), partial(eos_ids, self.tokenizer, ends)
        self.engine = TinkerEngine(self.service, self.eos_ids())
        self.policies: dict[str, TinkerPolicy] = {}
        self.averages: bool | None = None
        """True if the server's gradient is the average over sequences (SkyRL's jax), False if it is the sum (Tinker).
        `None`: not tried yet."""

    def make(self, index: int, agent: str, rank: int | None = None) -> "TinkerPolicy":
        """Make adapter `index` for `agent`."""
        if rank not in (None, self.rank):
            raise PolicyError(f"agent {agent!r} requests rank {rank}; a server's adapters have one rank, {self.rank}")
        self.policies[agent] = TinkerPolicy(self, agent, index)
        return self.policies[agent]

    def new_client(self, seed: int) -> Any:
        """Return a fresh adapter with its optimizer."""
        make = self.service.client.create_lora_training_client
        return self.service.of("make an adapter", make, self.name, rank=self.rank, seed=seed)

    def averages_sequences(self) -> bool:
        """Return True if the server averages over sequences: two copies of a sequence then do not double the norm."""
        if self.averages is None:
            client, token = self.new_client(self.seed), min(self.eos_ids())
            sample = Sample((token, token), (token,), (0.0,), 1.0, 1.0, 1.0)
            norms = []
            for copies in (1, 2):
                self.send(client, [sample] * copies, "cross_entropy", {}, 1.0)
                norms.append(self.step(client, 0.0, None))
            # Without a norm, assume the behaviour in Tinker's documentation.
            self.averages = not np.isnan(norms).any() and norms[0] > 0 and norms[1] < 1.5 * norms[0]
        return self.averages

    def send(self, client: Any, samples: Sequence[Sample], name: str, config: dict, factor: float) -> list[Any]:
        """Call forward_backward and return the result of each sample."""
        rows = data(samples, name, factor)
        found = self.service.of("train", client.forward_backward, rows, name, loss_fn_config=config or None)
        return found.loss_fn_outputs

    def step(self, client: Any, lr: float, max_norm: float | None) -> float:
        """Call optim_step and return the gradient's norm as the server reports it, or NaN if it does not."""
        from tinker import types

        beta1, beta2 = self.options.betas
        adam = types.AdamParams(learning_rate=lr, beta1=beta1, beta2=beta2, eps=1e-8,
                                weight_decay=self.options.weight_decay, grad_clip_norm=max_norm or 0.0)  # fmt: skip
        metrics = self.service.of("step", client.optim_step, adam).metrics or {}
        norms = [value for name, value in metrics.items() if name.rpartition("/")[2].startswith("grad_norm")]
        return float(norms[0]) if norms else float("nan")


class TinkerPolicy(ChatPolicy):
    """An adapter on a server, with its optimizer there."""

    def __init__(self, base: TinkerBase, name: str, index: int):
        self.shared, self.name, self.lr, self.version = base, name, base.lr, 0
        self.made_with = {"rank": base.rank, "seed": base.seed, "index": index, "own_rank": base.rank}
        self.client = base.new_client(base.seed + index)
        self.last_request: Request | None = None
        self.sampler, self._published = None, -1
        self._intact, self._pending = True, False
        """True if nothing is lost; True if samples of the next step have been sent."""

    model = property(lambda self: self.shared)

    def __repr__(self) -> str:
        where = self.shared.options.url
        return f"TinkerPolicy(model={self.shared.name!r}, adapter={self.name!r}, lr={self.lr}, url={where!r})"

    # Sampling

    def sync_weights(self) -> None:
        """Let the server sample from these weights, and prove it on one request.

        The sampled tokens must have the log-probabilities that `forward` gives them. Raises PolicyError if they do not.
        """
        self._require_intact()
        if self._published == self.version:
            return
        publish = self.client.save_weights_and_get_sampling_client
        self.sampler, self._published = self.shared.service.of("publish weights", publish), self.version
        request = self.last_request
        if request is None or request.temperature != 1:
            return
        drawn = self.engine.sample(self, [request])[0]
        sample = Sample(request.prompt_ids, drawn.ids, drawn.logprobs, 1.0, 0.0, 0.0)
        gap = (self.forward([sample]).logprobs_N - torch.tensor(drawn.logprobs)).abs().mean().item()
        if not gap <= self.shared.options.tolerance:
            self._published = -1
            raise PolicyError(
                f"policy {self.name!r}: stale weights: after publishing, log-probabilities of sampled tokens differ "
                f"from those of the trained weights by {gap:.2g} (tolerance {self.shared.options.tolerance:.2g}); "
                "publish once more, and if it happens again, the server samples from other weights than it trains"
            )

    # Learning

    @property
    def capabilities(self) -> Capabilities:
        """Return what the server can do."""
        no_clipping = (
            f"the Tinker server at {self.shared.options.url} may not clip (SkyRL 0.3 takes the bound and does nothing "
            "with it); pass max_norm=None, or load_base(..., clips=True) where you know that it does, as the hosted one"
        )
        return Capabilities(
            gradients=False, entropies=False, clipping=self.shared.options.clips, no_clipping=no_clipping,
            device=self.shared.options.url,
        )  # fmt: skip

    def forward(self, samples: Sequence[Sample]) -> Tokens:
        """Return the log-probability of each token by the server's forward; it gives no entropies."""
        rows, ask = data(samples, "cross_entropy", 0.0), self.shared.service.of
        found = ask("compute log-probabilities", self.client.forward, rows, "cross_entropy").loss_fn_outputs
        logprobs_N = _logprobs(found, samples)
        return Tokens(logprobs_N, torch.full_like(logprobs_N, float("nan")), torch.zeros_like(logprobs_N))

    def forward_backward(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """Add the gradient of sum_i weight_i sum_t loss_it on the server. An empty batch only checks the loss.

        All samples of a step belong in one call: a server that averages divides by their number.
        """
        self._require_intact()
        name, config = server_loss(loss, f"policy {self.name!r}, backend 'tinker'")
        if not samples:
            return Tokens(*[torch.zeros(0)] * 3)
        tempered = [one.temperature for one in samples if one.temperature != 1]
        if tempered:
            raise PolicyError(
                f"policy {self.name!r}: a row was sampled at temperature {tempered[0]:g}, and a Tinker server trains "
                "the distribution of temperature 1; have the team sample at 1"
            )
        factor = float(len(samples)) if self.shared.averages_sequences() else 1.0
        self._pending = True
        logprobs_N = _logprobs(self.shared.send(self.client, samples, name, config, factor), samples)
        old_N = torch.tensor([float(value) for one in samples for value in one.logprobs])
        advantages_N = torch.tensor(np.concatenate([one.advantages_T for one in samples]), dtype=torch.float32)
        row_N = torch.from_numpy(np.repeat(np.arange(len(samples)), [len(one.completion_ids) for one in samples]))
        unknown_N = torch.full_like(logprobs_N, float("nan"))
        losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, row_N, unknown_N, None)
        return Tokens(logprobs_N, unknown_N, losses_N)

    def optim_step(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Call optim_step at `lr * lr_scale`; return the server's norm of the gradient before and after clipping."""
        self._require_intact()
        self._pending, self._intact = False, False
        before = self.shared.step(self.client, self.lr * lr_scale, max_norm)
        self._intact, self.version = True, self.version + 1
        return before, before if max_norm is None else min(before, max_norm)

    def set_gradients(self, gradients: None) -> None:
        """Mark a gradient that was sent and not used as lost.

        A server keeps it until it steps, and it cannot be taken back. This policy refuses to go on until a saved state
        is loaded.
        """
        self._intact, self._pending = self._intact and not self._pending, False

    def _require_intact(self) -> None:
        if not self._intact:
            raise PolicyError(
                f"policy {self.name!r}: a step was broken off, and the server may hold its gradient; load a saved "
                "state: train(..., run=...) with the same run goes on from its last checkpoint"
            )

    def gradients(self, *_: Any) -> NoReturn:
        """Raise PolicyError: the gradient lies on the server."""
        raise PolicyError(
            f"policy {self.name!r}: the gradient lies on the Tinker server, which returns its norm alone. "
            "SpikeInspector marks spikes by the norms of the agents, and opens none; shares of samples and tokens need "
            "a back end whose weights are here"
        )

    gradient_norm = directional_derivatives = gradients

    # Saving

    def describe(self) -> dict[str, Any]:
        """Return a description of this policy; two policies with equal descriptions may swap states."""
        base, options = self.shared, asdict(self.shared.options)
        for option in ("url", "api_key", "timeout_s"):  # they may differ on another machine
            del options[option]
        return {"backend": "tinker", "source": asdict(base.source), "template": base.template, "lr": self.lr,
                "lora": self.made_with, "options": options, "name": self.name}  # fmt: skip

    def save(self, directory: Path) -> None:
        """Write the server's path of the state (weights and optimizer), and the record that rebuilds the policy.

        The weights stay on the server, so a checkpoint lives only as long as the server's storage.
        """
        self._require_intact()
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{self.name}-{self.version}-{secrets.token_hex(4)}"
        path = self.shared.service.of("save", self.client.save_state, name).path
        record = self.describe() | {"state": path, "url": self.shared.options.url, "adapters": self.shared.size}
        (directory / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        self.tokenizer.save_pretrained(directory)

    def load(self, directory: Path) -> None:
        """Load the state that `save` named, if the server still has it."""
        path = read_record(Path(directory))["state"]
        self.shared.service.of(f"load the state {path}", self.client.load_state_with_optimizer, path)
        self.version, self._intact, self._pending, self._published = self.version + 1, True, False, -1


def _logprobs(found: Sequence[Any], samples: Sequence[Sample]) -> torch.Tensor:
    """Return the log-probabilities (N,) of the completions' tokens in a server's answer."""
    parts = [one["logprobs"].data[-len(sample.completion_ids) :] for one, sample in zip(found, samples, strict=True)]
    return torch.tensor([float(value) for part in parts for value in part])


def restore(record: dict[str, Any], bases: dict[str, list[TinkerBase]]) -> TinkerPolicy:
    """Return the policy of a record, whose state is still to be loaded; adapters of one base share it again."""
    lora, options = record["lora"], record["options"] | {"url": record["url"]}
    shared = [record["source"], record["template"], record["adapters"], lora["rank"], lora["seed"], options]
    same_base = bases.setdefault(json.dumps(shared, sort_keys=True), [])
    fits = [base for base in same_base if lora["index"] in base.free() and record["name"] not in base.policies]
    if not fits:
        fits = [TinkerBase(Source(**record["source"]), record["adapters"], lora["rank"], record["lr"], lora["seed"],
                           record["template"], **options)]  # fmt: skip
        same_base += fits
    policy = fits[0].make(lora["index"], record["name"])
    policy.lr = record["lr"]
    return policy
