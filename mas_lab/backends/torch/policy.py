"""Policies that learn with torch: full weights, or one adapter of a shared base.

Leaves out: the loss (`losses`), the sampler (`padded`, `fast.engine`), and the computation of log-probabilities
(`padded`, `fast.packing`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mas_lab.backends.torch import state as torch_state
from mas_lab.backends.torch.encoding import ChatPolicy
from mas_lab.backends.torch.fast.directional import directional_derivatives
from mas_lab.backends.torch.model import TorchModel, require_finite
from mas_lab.locks import locked
from mas_lab.losses import Loss, token_losses
from mas_lab.policy import Capabilities, PolicyError, Sample, Tokens


class TorchPolicy(ChatPolicy):
    """Weights that generate and learn. `adapter` names a LoRA adapter of the model; `None` trains all weights."""

    def __init__(self, shared: TorchModel, lr: float, adapter: str | None = None):
        self.shared, self.lr, self.adapter, self.version = shared, lr, adapter, 0
        self.name = adapter or Path(shared.source.name).name
        self.made_with: dict[str, Any] | None = None
        """For an adapter: the arguments that made its base, and its index there. `None`: all weights are trained."""
        self.first_weights: dict[str, torch.Tensor] | None = None
        """For an adapter: its weights when this training began, the reference. `None`: the base without adapters."""
        self.kept: dict[int, dict[str, torch.Tensor]] = {}
        """Copies of earlier weights by their version, see `mas_lab.policy.Policy`."""
        self.ranks: Any = None
        """The `train.ranks.Ranks` that make the passes together. `None`: this process alone."""
        self.parameters = (
            {name: p for name, p in shared.net.named_parameters() if f".{adapter}." in name}
            if adapter
            else shared.trainable
        )
        if not self.parameters:
            raise PolicyError(f"policy {self.name!r}: the model has no parameters to train")
        make = shared.options.optimizer
        if not callable(make):
            kind = torch.optim.AdamW if make == "adamw" else torch.optim.SGD
            make = partial(kind, lr=lr, weight_decay=0.0, fused=True)
        self.optimizer = make(self.parameters.values())

    model = property(lambda self: self.shared.model)
    device = property(lambda self: self.shared.device)

    @property
    def capabilities(self) -> Capabilities:
        """Return the abilities of this back end. Processes that share a policy compute one policy after the other."""
        stated = getattr(self.shared.options, "tolerance", None)  # a sampler of its own may be allowed more
        half = self.shared.dtype != torch.float32
        return Capabilities(
            versions=True,
            snapshots=self.engine.snapshots,
            vocabulary=self.shared.net.config.get_text_config().vocab_size,
            device=str(self.device) if self.ranks is None else "shared",
            tolerance=max(0.2 if half else 1e-2, stated or 0.0),
            tis=2.0 if half else None,
        )

    def __repr__(self) -> str:
        learns = {"adapter": self.name} if self.adapter else {}
        fields = {"model": self.shared.source.name, **learns, "lr": self.lr, "device": str(self.device)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    # Learn

    def forward_backward(self, samples: Sequence[Sample], loss: Loss) -> Tokens:
        """Add the gradient of sum_i weight_i sum_t loss_it to `.grad`.

        The result does not depend on the split into micro-batches, beyond float noise. An empty batch does nothing.

        Returns:
            Log-probability, entropy and loss of each token, detached, in the order of the samples.
        """
        if not samples:
            return Tokens(*[torch.zeros(0)] * 3)
        self.engine.release_memory()
        self.activate()
        known_3N = self.known(samples)
        found_4N = torch.zeros(4, known_3N.shape[1], device=self.device)
        with self._loss_scale(known_3N[2]) if self.shared.dtype == torch.float16 else nullcontext():
            for batch in self.shared.micro_batches(samples, self.ranks.part if self.ranks else slice(None)):
                token_N = torch.from_numpy(batch.token_N).to(self.device)
                old_N, advantages_N, weights_N = known_3N[:, token_N]
                reference_N = self.reference_logprobs(batch) if loss.needs_reference else None
                with self.shared.checkpointing():
                    with self.shared.computing():
                        logprobs_N, entropy_N = batch.token_logprobs(self.shared.net, loss.needs_entropy)
                    losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, batch.row_N, entropy_N, reference_N)
                    (losses_N * weights_N).sum().backward()
                rest = torch.zeros_like(old_N) if reference_N is None else reference_N
                found_4N[:, token_N] = torch.stack([logprobs_N, entropy_N, losses_N, rest]).detach()
        if self.ranks is not None:
            found_4N = self.ranks.total(self, found_4N)
        self._require_gradients()
        return Tokens(found_4N[0], found_4N[1], found_4N[2], found_4N[3] if loss.needs_reference else None)

    @torch.no_grad()
    def forward(self, samples: Sequence[Sample]) -> Tokens:
        """Return log-probability and entropy in nats of each token, without gradient; losses are 0."""
        logprobs_N, entropy_N = self.logprobs(samples)
        return Tokens(logprobs_N, entropy_N, torch.zeros_like(logprobs_N))

    def logprobs(self, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy of each token (N,), with gradient."""
        self.activate()
        with self.shared.computing():
            parts = [(b.token_N, *b.token_logprobs(self.shared.net, False)) for b in self.shared.micro_batches(samples)]
        token_N, *found = zip(*parts, strict=True)
        order_N = torch.from_numpy(np.argsort(np.concatenate(token_N))).to(self.device)
        logprobs_N, entropy_N = (torch.cat(values)[order_N] for values in found)
        return logprobs_N, entropy_N

    @torch.no_grad()
    def reference_logprobs(self, batch: Any) -> torch.Tensor:
        """Return the log-probability of each token of a micro-batch under the frozen reference, the first weights."""
        with self._reference() as net, self.shared.computing():
            return batch.token_logprobs(net, False)[0]

    @contextmanager
    def _reference(self) -> Iterator[Any]:
        if self.first_weights is None:
            with self.shared.reference() as net:
                yield net
            return
        with self._using(self.first_weights):
            yield self.shared.net

    @contextmanager
    def _using(self, weights: Mapping[str, torch.Tensor]) -> Iterator[None]:
        present = {name: parameter.data for name, parameter in self.parameters.items()}
        try:
            for name, parameter in self.parameters.items():
                parameter.data = weights[name]
            yield
        finally:
            for name, parameter in self.parameters.items():
                parameter.data = present[name]

    @contextmanager
    def at_version(self, number: int) -> Iterator[None]:
        """Use the weights `kept[number]` inside the `with` block, in which no optimizer step may be made."""
        # Unlike any other version, also of another training: an engine with a copy of the weights publishes anew.
        present, self.version = self.version, -1 - (self.version << 32) - number
        try:
            with self._using(self.kept[number]):
                yield
        finally:
            self.version = present

    def copy_weights(self) -> dict[str, torch.Tensor]:
        """Return a copy of the trained weights, by parameter name."""
        return {name: parameter.detach().clone() for name, parameter in self.parameters.items()}

    def snapshot(self) -> Any:
        """Return a policy of the present weights that samples from an engine in another process."""
        return self.engine.snapshot(self)

    def known(self, samples: Sequence[Sample]) -> torch.Tensor:
        """Return (3, N) for the tokens: log-probability when sampled, advantage and weight."""
        old_N = np.concatenate([np.asarray(sample.logprobs, np.float32) for sample in samples])
        advantages_N = np.concatenate([sample.advantages_T for sample in samples])
        weights_N = np.repeat([s.weight for s in samples], [len(s.completion_ids) for s in samples])
        return torch.from_numpy(np.stack([old_N, advantages_N, weights_N]).astype(np.float32)).to(self.device)

    @contextmanager
    def _loss_scale(self, weights_N: torch.Tensor) -> Iterator[None]:
        """Divide the weights inside the `with` block by a power of two near 16 times the largest.

        A mean over ten thousand tokens gives each the weight 1e-4. Such small gradients vanish in float16 (a T4).
        """
        unit = 2.0 ** (round(log2(weights_N.abs().max().item() or 1.0)) + 4)
        weights_N /= unit
        self._multiply_gradients(1 / unit)
        yield
        self._multiply_gradients(unit)

    def _multiply_gradients(self, factor: float) -> None:
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, factor)

    def activate(self) -> None:
        """Activate this policy's adapter. Dropout stays off, so that we train the distribution that we sampled from."""
        if self.adapter is not None:
            self.shared.peft.set_adapter(self.adapter)
        if self.shared.net.training:
            self.shared.net.eval()

    directional_derivatives = directional_derivatives

    # Gradients and steps

    def gradients(self) -> list[tuple[str, torch.Tensor]]:
        """Return (parameter name, gradient) of each parameter this policy trains, always in the same order."""
        for parameter in self.parameters.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [(name, parameter.grad) for name, parameter in self.parameters.items()]

    def set_gradients(self, gradients: Iterable[torch.Tensor] | None) -> None:
        """Replace the gradients, in the order of `gradients()`; `None` clears them."""
        if gradients is None:
            self.optimizer.zero_grad(set_to_none=True)
            return
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient.to(parameter).clone()

    def gradient_norm(self) -> float:
        """Return the norm of the gradient, summed in float64 without a copy of it; one device sync."""
        norms = [torch.linalg.vector_norm(part.detach(), dtype=torch.float64) for _, part in self.gradients()]
        return torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms])).item()

    def optim_step(self, max_norm: float | None, lr_scale: float = 1.0) -> tuple[float, float]:
        """Clip the gradient, make one optimizer step at `lr * lr_scale`, and clear the gradients.

        Returns:
            The norm of the gradient before and after clipping.

        Raises:
            PolicyError: The gradient is not finite; no step was made.
            NotFiniteError: The weights are not finite after the step; they cannot be restored.
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
        self.version += 1  # before the step, because an interrupt may stop the step half-way
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        when = f"after a step at learning rate {self.lr * lr_scale:g}, which is too high or was no number"
        require_finite(self.parameters, self.name, when)
        return before, before * shrink

    def sync_weights(self) -> None:
        """Make the engine sample from the present weights."""
        self.engine.sync_weights(self)

    def _require_gradients(self) -> None:
        lost = [name for name, parameter in self.parameters.items() if parameter.grad is None]
        if lost:
            raise PolicyError(
                f"policy {self.name!r}: {len(lost)} parameters got no gradient, the first is {lost[0]!r}; they would "
                "be saved and never trained. Load another model; this architecture cannot be trained here"
            )

    # Keep

    def describe(self) -> dict[str, Any]:
        """Return a description of this policy as plain data that does not depend on the machine."""
        return torch_state.describe(self)

    def save(self, directory: Path) -> None:
        """Write weights (in Hugging Face or PEFT format), optimizer state, and the record that rebuilds the policy."""
        with locked([self]):
            torch_state.save(self, Path(directory))

    def load_weights(self, directory: Path) -> None:
        """Read only the weights of a policy of the same kind, in Hugging Face or PEFT format, and `start_anew`."""
        with locked([self], training=True):
            torch_state.load_weights(self, Path(directory))
            self.version += 1

    def start_anew(self) -> None:
        """Begin a training at the present weights, with a new optimizer.

        They are also the reference of the KL term if this is an adapter. The reference of full weights stays the model
        that was loaded; for another one, load the folder that `save` wrote by `load_policy`.
        """
        self.set_gradients(None)
        self.optimizer.state.clear()
        self.kept = {}
        if self.adapter is not None:
            self.first_weights = self.copy_weights()

    def load(self, directory: Path) -> None:
        """Restore bit for bit what `save` wrote; the saved policy must be of the same kind."""
        with locked([self], training=True):
            torch_state.load(self, Path(directory))
            self.version += 1
