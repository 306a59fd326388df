"""Policies with weights behind a Tinker-compatible server: a base model, and one adapter with its optimizer for each.

`sync_weights` is the API's save_weights_and_get_sampling_client. The gradient stays on the server, which only reports
its norm. Leaves out: the connection (`service`) and the losses of a server (`losses`).
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from transformers import AutoTokenizer, GenerationConfig

from mas_lab.backends.torch.encoding import AdapterBase, ChatPolicy
from mas_lab.backends.torch.source import RECORD, Source, context_of, eos_ids, model_config, options_of, read_record
from mas_lab.contrib.tinker.losses import data, server_loss
from mas_lab.contrib.tinker.service import Service, TinkerOptions
from mas_lab.locks import ModelLock
from mas_lab.losses import Loss
from mas_lab.policy import Capabilities, Completion, PolicyError, PolicyRequest, Request, Sample, Tokens, WaveEngine


class TinkerEngine(WaveEngine):
    """An engine that answers in waves.

    A draw follows its request's seed only if the server does, which Tinker does not promise.
    """

    def __init__(self, service: Any, eos: frozenset[int]):
        super().__init__()
        self.service, self.eos = service, eos

    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""
        for policy, _ in requests:
            policy.sync_weights()
        calls = [partial(self._sample, policy.sampler, request) for policy, request in requests]
        found = self.service.ask("sample", *calls)
        return [self._completion(*one, answer.sequences[0]) for one, answer in zip(requests, found, strict=True)]

    def sync_weights(self, policy: Any) -> None:
        """Let the server sample from the policy's present weights."""
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
        if not ids or len(logprobs or ()) != len(ids):
            raise PolicyError(f"policy {policy.name!r}: the server gave {len(ids)} tokens with logprobs={logprobs}")
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
        self.service, here = Service(self.options), source.location()
        self.name = self.options.model or here
        found = self.service.of("tell what it has", self.service.client.get_server_capabilities)
        known = [model.model_name for model in found.supported_models]
        if self.name not in known:
            has = f"has no model {self.name!r}; it has {', '.join(known)}"
            raise PolicyError(f"the Tinker server at {self.options.url} {has}: say by model= which it is")
        self.tokenizer = AutoTokenizer.from_pretrained(here, trust_remote_code=False)
        config = model_config(here)
        try:
            ends = GenerationConfig.from_pretrained(here)
        except OSError:  # as transformers does for a model without the file
            ends = config.get_text_config()
        self.context, self.eos_ids = context_of(config), partial(eos_ids, self.tokenizer, ends)
        self.engine = TinkerEngine(self.service, self.eos_ids())
        self.policies: dict[str, TinkerPolicy] = {}

    def make(self, index: int, agent: str, rank: int | None = None) -> "TinkerPolicy":
        """Make adapter `index` for `agent`; all adapters of a server have one rank."""
        self.policies[agent] = TinkerPolicy(self, agent, index)
        return self.policies[agent]

    def new_client(self, seed: int) -> Any:
        """Return a fresh adapter with its optimizer."""
        make = self.service.client.create_lora_training_client
        return self.service.of("make an adapter", make, self.name, rank=self.rank, seed=seed)

    @cached_property
    def averages(self) -> bool:
        """Return whether the gradient is the average over sequences (SkyRL's jax), or else their sum (Tinker).

        If it is the average, two copies of a sequence do not double the norm. Without a norm, it is taken for the sum.
        """
        client, token, norms = self.new_client(self.seed), min(self.eos_ids()), []
        sample = Sample((token, token), (token,), (0.0,), 1.0, 1.0, 1.0)
        for copies in (1, 2):
            self.send(client, [sample] * copies, "cross_entropy", {}, 1.0)
            norms.append(self.step(client, 0.0, None))
        return norms[1] < 1.5 * norms[0]

    def send(self, client: Any, samples: Sequence[Sample], name: str, config: dict, factor: float) -> list[Any]:
        """Call forward_backward and return the result of each sample."""
        rows = data(samples, name, factor)
        found = self.service.of("train", client.forward_backward, rows, name, loss_fn_config=config or None)
        return found.loss_fn_outputs

    def step(self, client: Any, lr: float, max_norm: float | None) -> float:
        """Call optim_step and return the gradient's norm as the server reports it, or NaN if it does not."""
        from tinker import types

        bound = max_norm or 0.0
        adam = types.AdamParams(learning_rate=lr, beta1=0.9, beta2=0.999, eps=1e-8, grad_clip_norm=bound)
        metrics = self.service.of("step", client.optim_step, adam).metrics or {}
        norms = [value for name, value in metrics.items() if name.rpartition("/")[2].startswith("grad_norm")]
        return float(norms[0]) if norms else float("nan")


class TinkerPolicy(ChatPolicy):
    """An adapter on a server, with its optimizer there."""

    def __init__(self, base: TinkerBase, name: str, index: int):
        self.shared, self.name, self.lr, self.version = base, name, base.lr, 0
        self.made_with = {"rank": base.rank, "seed": base.seed, "index": index, "own_rank": base.rank}
        self.client = base.new_client(base.seed + index)
        self.sampler, self._published = None, -1
        self._intact, self._pending = True, False
        """True if nothing is lost; True if samples of the next step have been sent."""

    model = property(lambda self: self.shared)

    # Sampling

    def sync_weights(self) -> None:
        """Let the server sample from these weights; the column `mismatch` of `update` says whether it does."""
        self._require_intact()
        if self._published != self.version:
            publish = self.client.save_weights_and_get_sampling_client
            self.sampler, self._published = self.shared.service.of("publish weights", publish), self.version

    # Learning

    @property
    def capabilities(self) -> Capabilities:
        """Return what the server can do."""
        where, clips = self.shared.options.url, self.shared.options.clips
        why = f"the Tinker server at {where} may not clip: pass max_norm=None, or load_base(..., clips=True) if it does"
        return Capabilities(gradients=False, entropies=False, clipping=clips, no_clipping=why, device=where)

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
        if tempered := [one.temperature for one in samples if one.temperature != 1]:
            message = f"a row was sampled at temperature {tempered[0]:g}, and a Tinker server trains at 1"
            raise PolicyError(f"policy {self.name!r}: {message}; have the team sample at 1")
        factor = float(len(samples)) if self.shared.averages else 1.0
        self._pending = True
        logprobs_N = _logprobs(self.shared.send(self.client, samples, name, config, factor), samples)
        return Tokens(logprobs_N, torch.full_like(logprobs_N, float("nan")), -logprobs_N)  # losses: are they finite?

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
        message = "the gradient lies on the Tinker server, which returns its norm alone; shares need another back end"
        raise PolicyError(f"policy {self.name!r}: {message}")

    gradient_norm = directional_derivatives = gradients

    # Saving

    def describe(self) -> dict[str, Any]:
        """Return a description of this policy; two policies with equal descriptions may swap states."""
        base = self.shared  # address, key and patience may differ on another machine
        options = {"model": base.options.model, "clips": base.options.clips}
        return {"backend": "tinker", "source": asdict(base.source), "template": base.template, "lr": self.lr,
                "lora": self.made_with, "options": options, "name": self.name}  # fmt: skip

    def save(self, directory: Path) -> None:
        """Write the server's path of the state (weights and optimizer), and the record that rebuilds the policy.

        The weights stay on the server, so a checkpoint lives only as long as the server's storage.
        """
        self._require_intact()
        (folder := Path(directory)).mkdir(parents=True, exist_ok=True)
        name = f"{self.name}-{self.version}-{secrets.token_hex(4)}"
        path = self.shared.service.of("save", self.client.save_state, name).path
        record = self.describe() | {"state": path, "url": self.shared.options.url, "adapters": self.shared.size}
        (folder / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")
        self.tokenizer.save_pretrained(folder)

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
