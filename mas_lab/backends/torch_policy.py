"""Policies that learn with torch: full weights, or one adapter of a shared base.

Leaves out: the loss (the caller's), the sampler (`torch_engine`), log-probabilities (`packing`).
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch.autograd import forward_ad

from mas_lab.backends.packing import MicroBatch, micro_batches, plant, token_logprobs
from mas_lab.backends.torch_model import Options, Source, TorchModel, quiet
from mas_lab.env import Message
from mas_lab.policy import Completion, Loss, PolicyError, Request, Sample, Tokens

RECORD, OPTIMIZER = "policy.json", "optimizer.safetensors"


class TorchPolicy:
    """Weights that speak and learn. `adapter` names a LoRA adapter of the model; `None` trains all weights."""

    def __init__(self, shared: TorchModel, lr: float, adapter: str | None = None):
        self.shared, self.lr, self.adapter = shared, lr, adapter
        self.name = adapter or Path(shared.source.name).name
        self.base: TorchBase | None = None
        infix = f".{adapter}." if adapter else ""
        self.parameters = {name: p for name, p in shared.net.named_parameters() if infix in name}
        if not self.parameters:
            raise PolicyError(f"policy {self.name!r}: the model has no parameters to train")
        options = shared.options
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=lr, betas=options.betas, weight_decay=options.weight_decay, fused=True
        )

    model = property(lambda self: self.shared.model)
    tokenizer = property(lambda self: self.shared.tokenizer)
    engine = property(lambda self: self.shared.engine)
    context = property(lambda self: self.shared.context)

    # Speaking

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the chat so far, up to where the assistant is to speak."""
        return self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=True, return_dict=False, **self.shared.template
        )

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order."""
        return self.engine.sample(self, requests)

    # Learning

    def logprobs(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Log-probabilities of the sampled tokens (N,), with gradient, in the order of the samples."""
        with self._training(), self.shared.computing():
            parts = [(b.token_N, token_logprobs(self.shared.net, b, False)[0]) for b in self._batches(samples)]
        order_N = torch.from_numpy(np.argsort(np.concatenate([token_N for token_N, _ in parts])))
        return torch.cat([values for _, values in parts])[order_N.to(self.shared.device)]

    def accumulate(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """Adds the gradient of sum_i weight_i sum_t losses_it to `.grad`; returns what each token came to, detached.

        The result does not depend on how the samples are cut into micro-batches, beyond float noise.
        """
        if not samples:
            empty = torch.zeros(0)
            return Tokens(empty, empty, empty, empty if loss.needs_reference else None)
        known_3N = self._known(samples)
        found_4N = torch.zeros(4, known_3N.shape[1], device=self.shared.device)
        with self._training():
            for batch in self._batches(samples):
                token_N = torch.from_numpy(batch.token_N).to(self.shared.device)
                found_4N[:, token_N] = self._accumulate(batch, known_3N[:, token_N], loss)
        self._require_gradients()
        reference_N = found_4N[3] if loss.needs_reference else None
        return Tokens(found_4N[0], found_4N[1], found_4N[2], reference_N)

    def _accumulate(self, batch: MicroBatch, known_3N, loss: Loss) -> torch.Tensor:
        old_N, advantages_N, weights_N = known_3N
        with self.shared.computing():
            logprobs_N, entropy_N = token_logprobs(self.shared.net, batch, loss.needs_entropy)
        reference_N = self._reference_logprobs(batch) if loss.needs_reference else None
        losses_N = loss(logprobs_N, old_N, advantages_N, entropy_N, reference_N)
        (losses_N * weights_N).sum().backward()
        rest = torch.zeros_like(old_N) if reference_N is None else reference_N
        return torch.stack([logprobs_N.detach(), entropy_N.detach(), losses_N.detach(), rest])

    def _known(self, samples: Sequence[Sample]) -> torch.Tensor:
        """(3, N) per token: log-probability when sampled, advantage, weight."""
        for i, sample in enumerate(samples):
            if len(sample.logprobs) != len(sample.completion_ids):
                raise PolicyError(
                    f"policy {self.name!r}: sample {i} has {len(sample.completion_ids)} tokens and "
                    f"{len(sample.logprobs)} log-probabilities"
                )
        counts = [len(sample.completion_ids) for sample in samples]
        old_N = np.concatenate([np.asarray(sample.logprobs, np.float32) for sample in samples])
        per_sample = [np.repeat(np.array(column, np.float32), counts)
                      for column in zip(*((s.advantage, s.weight) for s in samples), strict=True)]  # fmt: skip
        return torch.from_numpy(np.stack([old_N, *per_sample])).to(self.shared.device)

    def _batches(self, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        shared = self.shared
        packing = shared.options.packing if shared.by_tree else "padded"
        ids_N = np.concatenate([np.asarray(sample.completion_ids, np.int64) for sample in samples])
        for trees in micro_batches(plant(samples, packing, shared.cost), shared.options.train_tokens):
            yield MicroBatch(trees, ids_N, shared.device, shared.by_tree)

    @torch.no_grad()
    def _reference_logprobs(self, batch: MicroBatch) -> torch.Tensor:
        with self.shared.reference() as net, self.shared.computing():
            return token_logprobs(net, batch, False)[0]

    @contextmanager
    def _training(self):
        """This policy's weights in place and trainable. Dropout stays off: trained = sampled distribution."""
        if self.adapter is not None:
            self.shared.peft.set_adapter(self.adapter)
        if self.shared.net.training:
            self.shared.net.eval()
        yield

    def slopes(self, samples: Sequence[Sample], loss: Loss, direction: Sequence[torch.Tensor]) -> torch.Tensor:
        """How fast each token's weighted loss changes along `direction` (one tensor per gradient): (N,), exact.

        With the policy's gradient G as direction, token t gets <grad of its loss, G>; they add up to |G|^2. One
        forward-mode derivative (Baydin et al. 2018, arXiv 1502.05767), about the cost of one forward and backward.
        """
        known_3N = self._known(samples)
        slopes_N = torch.zeros(known_3N.shape[1], device=self.shared.device)
        with self._training(), torch.no_grad(), forward_ad.dual_level():
            along = dict(zip(self.parameters, direction, strict=True))
            duals = {name: forward_ad.make_dual(self.parameters[name], along[name]) for name in self.parameters}

            def call(**inputs):
                return torch.func.functional_call(self.shared.net, duals, (), inputs, tie_weights=True)

            for batch in self._batches(samples):
                token_N = torch.from_numpy(batch.token_N).to(self.shared.device)
                old_N, advantages_N, weights_N = known_3N[:, token_N]
                with self.shared.computing():
                    logprobs_N, entropy_N = token_logprobs(self.shared.net, batch, loss.needs_entropy, call)
                reference_N = None
                if loss.needs_reference:
                    with forward_ad._set_fwd_grad_enabled(False):
                        reference_N = self._reference_logprobs(batch)
                losses_N = loss(logprobs_N, old_N, advantages_N, entropy_N, reference_N) * weights_N
                tangent_N = forward_ad.unpack_dual(losses_N).tangent
                if tangent_N is not None:
                    slopes_N[token_N] = tangent_N
        return slopes_N

    # Gradients and steps

    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(parameter name, gradient) of each parameter this policy trains, always in the same order."""
        for name, parameter in self.parameters.items():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            yield name, parameter.grad

    def set_gradients(self, gradients: Iterable[torch.Tensor] | None) -> None:
        """Replaces the gradients, in the order of `gradients()`; `None` clears them."""
        if gradients is None:
            self.optimizer.zero_grad(set_to_none=True)
            return
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient.to(parameter).clone()

    def clear_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def describe(self) -> dict[str, Any]:
        """What this policy is, as plain data: a checkpoint loads only into a policy that says the same of itself."""
        self.shared.source = self.shared.source.pinned()
        return self._record()

    def apply(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Clips, makes one AdamW step at `lr * lr_scale`, clears the gradients. Returns the norm before and after.

        A gradient that is not finite never steps: PolicyError, weights and gradients as they were.
        """
        gradients = [gradient for _, gradient in self.gradients()]
        before = torch.nn.utils.get_total_norm(gradients).item()
        if not np.isfinite(before):
            raise PolicyError(f"policy {self.name!r}: the gradient's norm is {before}; no step was made")
        shrink = 1.0 if max_norm is None else min(1.0, max_norm / (before + 1e-12))
        if shrink < 1.0:
            torch._foreach_mul_(gradients, shrink)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * lr_scale
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return before, before * shrink

    def publish(self) -> None:
        """Nothing to do: the engine samples from the very weights that are trained."""

    def _require_gradients(self) -> None:
        lost = [name for name, parameter in self.parameters.items() if parameter.grad is None]
        if lost:
            raise PolicyError(
                f"policy {self.name!r}: {len(lost)} parameters got no gradient, the first is {lost[0]!r}; "
                "freeze it before the policy is made, or it would be saved and never trained"
            )

    # Keeping

    def save(self, directory: Path) -> None:
        """Weights as plain transformers or PEFT load them, the tokenizer, AdamW's state, and `policy.json`."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self.adapter is None:
            with quiet():
                self.shared.net.save_pretrained(directory)
            self.tokenizer.save_pretrained(directory)
        else:
            save_file(_contiguous(get_peft_model_state_dict(self.shared.peft, adapter_name=self.adapter)),
                      directory / "adapter_model.safetensors", metadata={"format": "pt"})  # fmt: skip
            self.shared.peft.peft_config[self.adapter].save_pretrained(directory)
        names = {id(parameter): name for name, parameter in self.parameters.items()}
        state = {
            f"{names[id(parameter)]}|{key}": value
            for parameter, values in self.optimizer.state.items()
            for key, value in values.items()
        }
        save_file(_contiguous(state), directory / OPTIMIZER)
        (directory / RECORD).write_text(json.dumps(self.describe(), indent=1) + "\n")

    def describe(self) -> dict[str, Any]:
        """What this policy is, as plain data that does not depend on the machine: two that agree may swap states."""
        record = self._record()
        if record["source"]["kind"] == "directory":
            del record["source"]["name"]
        del record["options"]["device"]
        return record

    def _record(self) -> dict[str, Any]:
        shared = self.shared
        shared.source = shared.source.pinned()
        lora = None if self.base is None else {**self.base.made_with, "index": self.base.index(self)}
        return {"backend": "torch", "source": asdict(shared.source), "lora": lora, "lr": self.lr,
                "template": shared.template, "options": asdict(shared.options), "name": self.name}  # fmt: skip

    def load(self, directory: Path) -> None:
        """Weights and AdamW's state from `save`, bit for bit. The policy must be of the same make."""
        directory = Path(directory)
        if self.adapter is None:
            saved = self.shared._load(str(directory), self.shared.net.dtype)
            self.shared.net.load_state_dict(saved.state_dict())
        else:
            state = load_file(directory / "adapter_model.safetensors")
            ours = get_peft_model_state_dict(self.shared.peft, adapter_name=self.adapter)
            if state.keys() != ours.keys():
                raise PolicyError(f"policy {self.name!r}: the adapter in {directory} is of another make")
            set_peft_model_state_dict(self.shared.peft, state, adapter_name=self.adapter)
        self.optimizer.state.clear()
        for key, value in load_file(directory / OPTIMIZER).items():
            name, field = key.split("|")
            if name not in self.parameters:
                raise PolicyError(f"policy {self.name!r}: {directory / OPTIMIZER} names {name!r}, which it has not")
            parameter = self.parameters[name]
            self.optimizer.state[parameter][field] = value.to(parameter.device)
        self.lr = json.loads((directory / RECORD).read_text())["lr"]


def _contiguous(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().contiguous() for name, tensor in tensors.items()}


class TorchBase:
    """One copy of a base, `adapters` LoRA adapters, and for each of them a policy with an optimizer of its own."""

    def __init__(self, shared: TorchModel, adapters: int, rank: int, lr: float, seed: int):
        self.shared = shared
        self.made_with = {"adapters": adapters, "rank": rank, "seed": seed}
        names = [f"adapter{i}" for i in range(adapters)]
        config = dict(
            r=rank, lora_alpha=rank * shared.options.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        shared.net.requires_grad_(False)
        with torch.random.fork_rng():
            for i, name in enumerate(names):
                torch.manual_seed(seed + i)
                if shared.peft is None:
                    shared.peft = get_peft_model(shared.net, LoraConfig(**config), adapter_name=name)
                else:
                    shared.peft.add_adapter(name, LoraConfig(**config))
        self._policies = [TorchPolicy(shared, lr, name) for name in names]
        for policy in self._policies:
            policy.base = self
        self._taken: dict[str, TorchPolicy] = {}
        trained = {id(p) for policy in self._policies for p in policy.parameters.values()}
        stray = [name for name, p in shared.net.named_parameters() if "lora_" in name and id(p) not in trained]
        if stray:
            raise PolicyError(f"the LoRA parameter {stray[0]!r} is in no optimizer")

    def adapter(self, agent: str) -> TorchPolicy:
        """This agent's policy; the same one when asked again."""
        if agent not in self._taken:
            if len(self._taken) == len(self._policies):
                raise PolicyError(
                    f"agent {agent!r} asks for an adapter; the base was loaded with adapters={len(self._policies)}, "
                    f"taken by {', '.join(self._taken)}"
                )
            self._taken[agent] = self._policies[len(self._taken)]
            self._taken[agent].name = agent
        return self._taken[agent]

    def index(self, policy: TorchPolicy) -> int:
        return self._policies.index(policy)


def load_full(name, lr=None, template=None, seed=0, **options) -> TorchPolicy:
    """See `mas_lab.backends.load_policy`. Loading draws no random numbers, so `seed` changes nothing here."""
    source = Source.find(name)
    shared = TorchModel(source, Options.of(options), template, lora=False)
    return TorchPolicy(shared, lr or (1e-3 if source.kind == "pocket" else 1e-6))


def load_base(name, adapters=1, rank=16, lr=None, template=None, seed=0, **options) -> TorchBase:
    """See `mas_lab.backends.load_base`."""
    source = Source.find(name)
    shared = TorchModel(source, Options.of(options), template, lora=True)
    return TorchBase(shared, adapters, rank, lr or (5e-3 if source.kind == "pocket" else 2e-5), seed)


def restore(directories: dict[str, str | Path]) -> dict[str, TorchPolicy]:
    """See `mas_lab.backends.restore_policies`."""
    bases: dict[str, TorchBase] = {}
    policies = {}
    for name, directory in directories.items():
        path = Path(directory) / RECORD
        if not path.is_file():
            raise PolicyError(f"policy {name!r}: {path} is not there; was this directory written by `policy.save`?")
        record = json.loads(path.read_text())
        options, source = Options.of(record["options"]), Source(**record["source"])
        if record["lora"] is None:
            shared = TorchModel(source, options, record["template"], lora=False, weights=directory)
            policy = TorchPolicy(shared, record["lr"])
        else:
            made_with = {k: v for k, v in record["lora"].items() if k != "index"}
            key = json.dumps([record["source"], record["options"], record["template"], made_with], sort_keys=True)
            if key not in bases:
                source.check()
                shared = TorchModel(source, options, record["template"], lora=True)
                bases[key] = TorchBase(shared, lr=record["lr"], **made_with)
            policy = bases[key]._policies[record["lora"]["index"]]
            bases[key]._taken[record["name"]] = policy
        policy.name = record["name"]
        policy.load(Path(directory))
        policies[name] = policy
    return policies
