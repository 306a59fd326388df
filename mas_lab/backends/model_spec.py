"""One model in memory as you want it: the trained part, the memory on each device, and settings that need less.

Sizes come from the model's config (`memory`). Leaves out: the devices, and the check that it fits (`placement`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mas_lab.backends.memory import GIB, Memory, known_shapes, memory, shape
from mas_lab.paths import data_dir

if TYPE_CHECKING:
    from transformers import PretrainedConfig

SMALLER = 2048
"""The `sample_tokens` and `train_tokens` that `savings` tries."""


@dataclass(frozen=True)
class ModelSpec:
    """One model in memory: the part that is trained, and the devices that it may use."""

    model: "str | PretrainedConfig"
    """A config, a key of `memory.known_shapes`, a pocket model, a directory or a hub id."""
    lora: int | None = None
    """Rank of adapters over a frozen base in 16 bits. `None`: all weights are trained, in float32."""
    adapters: int = 1
    """Number of adapters that share the base, one for each agent that it plays."""
    bits: int = 16
    """Bits of the frozen base: 16, or 4 for a quantized base (`backend="unsloth"`)."""
    frozen: bool = False
    """True if it only samples: it has no gradients and no optimizer."""
    backend: str = "torch"
    """ "torch", "unsloth" or "vllm"."""
    device: str | None = None
    """Device on which it trains. `None`: the device with the most room left."""
    samples_on: "str | tuple[str, ...] | None" = None
    """Device on which vLLM samples; several devices share one engine's weights. `None`: the device on which it
    trains."""
    sleep: bool = False
    """True if vLLM hands its memory back while the weights are trained."""
    train_tokens: int = 4096
    """Tokens of one micro-batch of the update."""
    sample_tokens: int = 65536
    """Tokens (prompts and completions at full length) that are sampled at once."""

    def memory(self) -> Memory:
        """Return the bytes by their use; frozen weights have no gradient."""
        found = memory(
            _config(self.model),
            bits=self.bits,
            adapters=self.adapters if self.lora else 0,
            rank=self.lora or 16,
            train_tokens=self.train_tokens,
            sample_tokens=self.sample_tokens,
        )
        return replace(found, gradients=0.0, optimizer=0.0, activations=0.0) if self.frozen else found

    @property
    def engine(self) -> float:
        """Return the bytes of vLLM's own copy: 16-bit weights, adapters and cache. It is 0 if torch samples."""
        if self.backend != "vllm":
            return 0.0
        counts, found = shape(_config(self.model)), self.memory()
        return 2.0 * (counts.linear + counts.rest) + found.adapters / 2 + found.kv_cache

    def needs(self, here: str) -> dict[str, float]:
        """Return the memory on each device.

        Args:
            here: Device on which the policy trains.

        Returns:
            GiB by device.
        """
        found, apart = self.memory(), self.sampling_devices(here)
        kept = found.weights + found.adapters + found.gradients + found.optimizer
        if self.backend != "vllm":
            return {here: found.peak / GIB}
        share = self.engine / len(apart)
        needs = dict.fromkeys(apart, share / GIB)
        if here not in needs:
            return {here: (kept + found.activations) / GIB} | needs
        tokens = max(share, found.activations) if self.sleep else share + found.activations
        return needs | {here: (kept + tokens) / GIB}

    def sampling_devices(self, here: str) -> tuple[str, ...]:
        """Return the devices on which the policy samples.

        Args:
            here: Device on which the policy trains.

        Returns:
            One device, or several that share one engine's weights.
        """
        if self.backend != "vllm" or self.samples_on is None:
            return (here,)
        return (self.samples_on,) if isinstance(self.samples_on, str) else tuple(self.samples_on)

    @property
    def trained(self) -> str:
        """Return the trained part in words."""
        if self.frozen:
            return "nothing"
        if self.lora is None:
            return "all weights"
        many = f"{self.adapters} adapters" if self.adapters > 1 else "an adapter"
        return f"{many} of rank {self.lora}, {self.bits}-bit base"


def savings(wish: ModelSpec) -> Iterator[tuple[str, ModelSpec]]:
    """Yield other settings that need less memory, those that change least first."""
    fewer = replace(wish, sample_tokens=min(wish.sample_tokens, SMALLER), train_tokens=min(wish.train_tokens, SMALLER))
    less = f"sample_tokens and train_tokens of {SMALLER}"
    if fewer != wish:
        yield less, fewer
    if wish.backend == "vllm" and not wish.sleep and wish.samples_on is None:
        yield "sleep=True", replace(wish, sleep=True)
    if wish.lora is None and not wish.frozen:
        yield "lora=16", replace(wish, lora=16)
        yield f"lora=16 and {less}", replace(fewer, lora=16)
    if wish.bits != 4 and not wish.frozen:
        quantized = {"lora": wish.lora or 16, "bits": 4, "backend": "unsloth", "samples_on": None}
        yield f"lora={quantized['lora']}, bits=4, backend='unsloth'", replace(wish, **quantized)
        yield f"the same and {less}", replace(fewer, **quantized)


def _config(model: "str | PretrainedConfig") -> "PretrainedConfig":
    if not isinstance(model, str):
        return model
    if model in (shapes := known_shapes()):
        return shapes[model]
    from mas_lab.backends.torch.source import model_config

    pocket = data_dir() / "pocket" / model
    return model_config(pocket if (pocket / "config.json").is_file() else model)


def called(model: "str | PretrainedConfig") -> str:
    return Path(model).name if isinstance(model, str) else model.model_type
