"""Policies that learn with torch: full weights, or one adapter of a shared base.

Each call that touches weights or gradients has the model to itself (`mas_lab.locks`). Leaves out: the loss (the
caller's), the sampler (`engine`), log-probabilities (`packing`), shares (`slopes`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mas_lab.backends.torch import state as torch_state
from mas_lab.backends.torch.encoding import encode
from mas_lab.backends.torch.finite import require_finite
from mas_lab.backends.torch.model import TorchModel
from mas_lab.backends.torch.packing import MicroBatch, Tree, micro_batches, plant, token_logprobs
from mas_lab.backends.torch.slopes import token_slopes
from mas_lab.cells.advantages import per_token
from mas_lab.cells.contract import token_losses
from mas_lab.cells.losses import Loss
from mas_lab.env import Message
from mas_lab.locks import held
from mas_lab.policy import Completion, PolicyError, Request, Sample, Tokens


class TorchPolicy:
    """Weights that speak and learn. `adapter` names a LoRA adapter of the model; `None` trains all weights."""

    def __init__(self, shared: TorchModel, lr: float, adapter: str | None = None):
        self.shared, self.lr, self.adapter, self.version = shared, lr, adapter, 0
        self.name = adapter or Path(shared.source.name).name
        self.made_with: dict[str, int] | None = None
        """For an adapter: how its base was made, and its index there."""
        self.ranks: Any = None
        """Where several processes train this policy: the share of this one (`mas_lab.backends.ranks.ranks.Share`)."""
        infix = f".{adapter}." if adapter else ""
        self.parameters = {name: p for name, p in shared.net.named_parameters() if infix in name}
        if not self.parameters:
            raise PolicyError(f"policy {self.name!r}: the model has no parameters to train")
        options = shared.options
        own = {"betas": options.betas} if options.optimizer == "adamw" else {}
        make = torch.optim.AdamW if options.optimizer == "adamw" else torch.optim.SGD
        self.optimizer = make(self.parameters.values(), lr=lr, weight_decay=options.weight_decay, fused=True, **own)

    model = property(lambda self: self.shared.model)
    tokenizer = property(lambda self: self.shared.tokenizer)
    engine = property(lambda self: self.shared.engine)
    lock = property(lambda self: self.shared.lock)
    device = property(lambda self: self.shared.device)
    context = property(lambda self: self.shared.context)

    def __repr__(self) -> str:
        learns = {"adapter": self.name} if self.adapter else {}
        said = {"model": self.shared.source.name, **learns, "lr": self.lr, "device": str(self.device)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    # Speaking

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the chat so far, up to where it is to speak; refuses what the model could not read."""
        return self.encode_all([messages])[0]

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        """`encode` of each chat, in one call of the tokenizer."""
        return encode(self.tokenizer, chats, self.shared.template, self.name)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order."""
        return self.engine.sample(self, requests)

    # Learning

    @held()
    def logprobs(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Log-probabilities of the sampled tokens (N,), with gradient, in the order of the samples."""
        return self._forward(samples)[0]

    @held()
    @torch.no_grad()
    def entropies(self, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probability, entropy) in nats of the sampled tokens and of the distributions that they were drawn from,
        (N,) each, without gradient, in the order of the samples."""
        return self._forward(samples)

    def _forward(self, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
        self.activate()
        with self.shared.computing():
            forward = self.ranks.forward if self.ranks else partial(token_logprobs, self.shared.net)
            parts = [(b.token_N, *forward(b, False)) for b in self._batches(samples)]
        token_N, *found = zip(*parts, strict=True)
        order_N = torch.from_numpy(np.argsort(np.concatenate(token_N))).to(self.shared.device)
        logprobs_N, entropy_N = (torch.cat(values)[order_N] for values in found)
        return logprobs_N, entropy_N

    @held()
    def accumulate(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """Adds the gradient of sum_i weight_i sum_t losses_it to `.grad`; returns what each token came to, detached.

        The result does not depend on how the samples are cut into micro-batches, beyond float noise.
        """
        if not samples:
            empty = torch.zeros(0)
            return Tokens(empty, empty, empty, empty if loss.needs_reference else None)
        self.engine.rest()
        known_3N = self.known(samples)
        unit = self._unit(known_3N[2])
        known_3N[2] /= unit
        self._scale_gradients(1 / unit)
        found_4N = torch.zeros(4, known_3N.shape[1], device=self.shared.device)
        self.activate()
        if self.ranks is None:
            for batch in self._batches(samples):
                self.one_pass(batch, known_3N, found_4N, loss)
        else:
            self.ranks.passes(samples, known_3N, found_4N, loss)
        self._scale_gradients(unit)
        self._require_gradients()
        reference_N = found_4N[3] if loss.needs_reference else None
        return Tokens(found_4N[0], found_4N[1], found_4N[2], reference_N)

    def one_pass(self, batch: MicroBatch, known_3N, found_4N, loss: Loss, forward: Callable | None = None) -> None:
        """Forward and backward of one micro-batch; `found_4N` gets what its tokens came to."""
        token_N = torch.from_numpy(batch.token_N).to(self.shared.device)
        old_N, advantages_N, weights_N = known_3N[:, token_N]
        forward = forward or partial(token_logprobs, self.shared.net)
        with self.shared.computing():
            logprobs_N, entropy_N = forward(batch, loss.needs_entropy)
        reference_N = self.reference_logprobs(batch) if loss.needs_reference else None
        losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, batch.row_N, entropy_N, reference_N)
        (losses_N * weights_N).sum().backward()
        rest = torch.zeros_like(old_N) if reference_N is None else reference_N
        found_4N[:, token_N] = torch.stack([logprobs_N.detach(), entropy_N.detach(), losses_N.detach(), rest])

    def _unit(self, weights_N: torch.Tensor) -> float:
        """The gradient is computed in units of this: 1, but in float16 a power of two near the largest weight.

        A mean over ten thousand tokens weighs each by 1e-4, and gradients so small vanish in float16 (a T4).
        """
        if self.shared.dtype != torch.float16 or not weights_N.any():
            return 1.0
        return 2.0 ** (round(log2(weights_N.abs().max().item())) + 4)

    def _scale_gradients(self, factor: float) -> None:
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        if factor != 1.0 and gradients:
            torch._foreach_mul_(gradients, factor)

    def known(self, samples: Sequence[Sample]) -> torch.Tensor:
        """(3, N) per token: log-probability when sampled, advantage, weight."""
        for i, sample in enumerate(samples):
            if len(sample.logprobs) != len(sample.completion_ids):
                raise PolicyError(
                    f"policy {self.name!r}: sample {i} has {len(sample.completion_ids)} tokens and "
                    f"{len(sample.logprobs)} log-probabilities"
                )
            if np.size(sample.advantage) not in (1, len(sample.completion_ids)):
                raise PolicyError(
                    f"policy {self.name!r}: sample {i} has {len(sample.completion_ids)} tokens and "
                    f"{np.size(sample.advantage)} advantages; give one, or one per token"
                )
        counts = [len(sample.completion_ids) for sample in samples]
        old_N = np.concatenate([np.asarray(sample.logprobs, np.float32) for sample in samples])
        advantages_N = np.concatenate([per_token(s.advantage, len(s.completion_ids)) for s in samples])
        weights_N = np.repeat([s.weight for s in samples], counts)
        known_3N = np.stack([old_N, advantages_N, weights_N]).astype(np.float32)
        return torch.from_numpy(known_3N).to(self.shared.device)

    def plant(self, samples: Sequence[Sample]) -> list[Tree]:
        """The samples packed as this model takes them."""
        packing = self.shared.options.packing if self.shared.by_tree else "padded"
        return plant(samples, packing, self.shared.cost)

    def batches(self, parts: Iterable[list[Tree]], samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        """Trees of `samples` as tensors, part by part."""
        ids_N = np.concatenate([np.asarray(sample.completion_ids, np.int64) for sample in samples])
        for trees in parts:
            yield MicroBatch(trees, ids_N, self.shared.device, self.shared.by_tree)

    def _batches(self, samples: Sequence[Sample]) -> Iterator[MicroBatch]:
        return self.batches(micro_batches(self.plant(samples), self.shared.options.train_tokens), samples)

    @torch.no_grad()
    def reference_logprobs(self, batch: MicroBatch) -> torch.Tensor:
        with self.shared.reference() as net, self.shared.computing():
            return token_logprobs(net, batch, False)[0]

    def activate(self) -> None:
        """This policy's weights in place and trainable. Dropout stays off: trained = sampled distribution."""
        if self.adapter is not None:
            self.shared.peft.set_adapter(self.adapter)
        if self.shared.net.training:
            self.shared.net.eval()

    @held()
    def slopes(self, samples: Sequence[Sample], loss: Loss, direction: Sequence[torch.Tensor]) -> torch.Tensor:
        """What each token (N,) moves of the weighted loss along `direction`; see `slopes.token_slopes`."""
        return token_slopes(self, samples, loss, direction)

    # Gradients and steps

    @held()
    def gradients(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(parameter name, gradient) of each parameter this policy trains, always in the same order."""
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return iter([(name, parameter.grad) for name, parameter in self.parameters.items()])

    @held()
    def set_gradients(self, gradients: Iterable[torch.Tensor]) -> None:
        """Replaces the gradients, in the order of `gradients()`."""
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient.to(parameter).clone()

    @held()
    def clear_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    @held(changing=True)
    def apply(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Clips, makes one optimizer step at `lr * lr_scale`, clears the gradients. Returns the norm before and after.

        A gradient that is not finite never steps: PolicyError, weights and gradients as they were. Weights that are not
        finite after the step are lost: NotFiniteError.
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
        self.version += 1  # also where the step below is interrupted half-way
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        when = f"after a step at learning rate {self.lr * lr_scale:g}, which is too high or was no number"
        require_finite(self.parameters, self.name, when)
        return before, before * shrink

    def publish(self) -> None:
        """Has the engine sample from these weights from now on; at no cost where they have not changed."""
        self.engine.publish(self)

    def _require_gradients(self) -> None:
        lost = [name for name, parameter in self.parameters.items() if parameter.grad is None]
        if lost:
            raise PolicyError(
                f"policy {self.name!r}: {len(lost)} parameters got no gradient, the first is {lost[0]!r}; "
                "freeze it before the policy is made, or it would be saved and never trained"
            )

    # Keeping

    def describe(self) -> dict[str, Any]:
        """What this policy is, as plain data that does not depend on the machine: two that agree may swap states."""
        return torch_state.describe(self)

    @held()
    def save(self, directory: Path) -> None:
        """Weights as plain transformers or PEFT load them, the optimizer's state, and what rebuilds the policy."""
        torch_state.save(self, Path(directory))

    @held(changing=True)
    def load_weights(self, directory: Path) -> None:
        """Weights alone, in Hugging Face or PEFT form. The policy must be of the same make."""
        torch_state.load_weights(self, Path(directory))
        self.version += 1

    @held(changing=True)
    def load(self, directory: Path) -> None:
        """Weights and optimizer's state from `save`, bit for bit. The policy must be of the same make."""
        torch_state.load(self, Path(directory))
        self.version += 1
