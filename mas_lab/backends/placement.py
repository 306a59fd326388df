"""Count the memory of policies from their models' configs, and place the policies on devices before anything is loaded.

    plan = lab.Placement({"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}, lora=16)      # one agent per GPU
    team = lab.Team({name: lab.load_policy(hub_id[name], **plan.options(name)) for name in plan})

Weights are counted layer by layer on an empty copy of the model. Gradients and AdamW's state follow from what is
trained, keys and values from the tokens that are alive at once. Activations are an estimate. A policy that cannot fit
is refused, and the error names the settings that need less memory. Leaves out: the CUDA context, fragmentation and the
buffers of kernels, except for a lump sum per GPU; loading; and starting processes (`accelerate launch`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import ceil, floor
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, Qwen3Config

from mas_lab.backends.devices import GIB, found_devices
from mas_lab.backends.torch.padded import DRAWN_AT_ONCE, LARGE_LOGITS
from mas_lab.backends.torch.source import Source, head_size, model_config, shape
from mas_lab.backends.torch.threads import settle_dtype

CONTEXT = 0.75
"""GiB of each GPU for its context, the kernels' buffers and fragmentation."""
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per weight: 4 bits, an 8-bit scale per 64 weights, and a 32-bit scale per 256 of those (QLoRA, arXiv
2305.14314)."""
LESS = "Less memory is needed with lora=, bits=4 under backend='unsloth', or fewer sample_tokens and train_tokens"
CHECKPOINTED = 1_000_000_000
"""Number of weights above which the update computes activations again in the backward pass instead of keeping them."""


class PlacementError(ValueError):
    """Error of a policy that does not fit; it names the device, the memory needed and left, and what needs less."""


@dataclass(frozen=True)
class Memory:
    """Bytes by their use."""

    weights: float
    """The base; float32 if it is trained in full."""
    adapters: float
    """All LoRA adapters, float32."""
    gradients: float
    optimizer: float
    """AdamW's two moments, float32."""
    sampling: float
    """Keys and values, and the logits from which torch draws."""
    activations: float
    """Tensors that one micro-batch keeps for its backward pass."""

    @property
    def permanent(self) -> float:
        """Return the bytes that are in use all the time."""
        return self.weights + self.adapters + self.gradients + self.optimizer

    @property
    def peak(self) -> float:
        """Return the sum without the smaller of the last two parts, because sampling and the update take turns."""
        return self.permanent + max(self.sampling, self.activations)

    def gib(self) -> dict[str, float]:
        """Return each part and the peak in GiB."""
        return {name: size / GIB for name, size in (asdict(self) | {"peak": self.peak}).items()}


@dataclass(frozen=True)
class ModelSpec:
    """One model in memory: the part that is trained, and the devices that it may use."""

    model: str | PretrainedConfig
    """A config, a name in `known_shapes`, or a name of a model as in `load_policy`."""
    lora: int | None = None
    """Rank of adapters over a frozen base in 16 bits, on a CPU also in float32. `None`: all weights are trained, in
    float32."""
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
    samples_on: tuple[str, ...] = ()
    """Devices on which vLLM samples; they share one engine's weights. Empty: the device on which it trains."""
    sleep: bool = False
    """True if vLLM hands its memory back while the weights are trained."""
    train_tokens: int = 4096
    """Tokens of one micro-batch of the update."""
    sample_tokens: int = 65536
    """Tokens (prompts and completions at full length) that are sampled at once."""
    checkpointing: bool | None = None
    """Whether the update keeps only each layer's input. `None`: above `CHECKPOINTED` weights; never under Unsloth."""

    def memory(self) -> Memory:
        """Return the bytes by their use; frozen weights have no gradient.

        Sampling holds keys and values, the logits of a decoding step, and for one chunk of them log-probabilities,
        probabilities, and these and their sums in float64.
        """
        config = self.model
        if isinstance(config, str):
            config = known_shapes().get(config) or model_config(Source.find(config).location())
        text, (linear, rest, per_rank) = config.get_text_config(), count_weights(config)
        key_heads, head = shape(config, "num_key_value_heads"), head_size(config)
        if key_heads is None or shape(config, "intermediate_size") is None:
            raise ValueError(f"ModelSpec: a {text.model_type} model is built otherwise; known are Llama, Qwen and kin")
        queries, keys = shape(config, "num_attention_heads") * head, key_heads * head
        size = 4.0 if self.lora is None else settle_dtype(linear + rest).itemsize if self.device == "cpu" else 2.0
        weights = linear * (NF4 if self.bits == 4 else size) + rest * size
        trained = linear + rest if self.lora is None else self.adapters * self.lora * per_rank
        adapters = 0.0 if self.lora is None else 4.0 * trained
        sampling = float(2 * 2 * text.num_hidden_layers * keys * self.sample_tokens)
        if self.backend != "vllm":
            drawn = self.sample_tokens * text.vocab_size
            sampling += 24 * min(LARGE_LOGITS, drawn) + 2 * min(DRAWN_AT_ONCE * LARGE_LOGITS, drawn)
        learned = 0 if self.frozen else trained
        activations = self._activations(text, linear, rest, queries, keys) if learned else 0.0
        return Memory(weights, adapters, 4.0 * learned, 8.0 * learned, sampling, activations)

    def _activations(self, text: PretrainedConfig, linear: int, rest: int, queries: int, keys: int) -> float:
        """Return the bytes that the update of one micro-batch holds beside weights and gradients.

        Per token and layer in 16 bits: the inputs of both norms and of both blocks (4 h), queries, keys, values and the
        mixed values (2 Q + 2 K heads), the gate, its factor, and both products (4 i). The inputs of all norms are kept
        in float32 too (2 h, and Q + K heads), which makes 16 h + 8 (Q + K) + 8 i bytes. With checkpointing there is
        each layer's input (h), and later, after the head, all of it for one layer at a time. The head has
        log-probabilities, their gradient and that of the logits, in float32 and in chunks. If all weights are trained,
        16-bit copies of the layers are kept, and the head has a copy and a gradient in 16 bits, and at the end a
        gradient in float32.
        """
        hidden, layers, head = text.hidden_size, text.num_hidden_layers, text.vocab_size * text.hidden_size
        per_token = 16 * hidden + 8 * (queries + keys) + 8 * shape(text, "intermediate_size")
        logits = 12 * min(LARGE_LOGITS, self.train_tokens * text.vocab_size)
        stored = self.train_tokens * layers * per_token
        if self.lora is None:
            logits, stored = max(logits + 4 * head, 8 * head), stored + 2 * linear
        again = linear + rest > CHECKPOINTED if self.checkpointing is None else self.checkpointing
        if again and self.backend != "unsloth":
            return float(2 * self.train_tokens * layers * hidden + max(logits, self.train_tokens * per_token))
        return float(stored + logits)

    @property
    def engine(self) -> float:
        """Return the bytes of vLLM's own copy: weights and adapters, which it has in 16 bits, and the cache."""
        found = self.memory()
        return found.weights / (2 if self.lora is None else 1) + found.adapters / 2 + found.sampling

    def needs(self) -> dict[str | None, float]:
        """Return GiB by device, once it is known on which devices the policy trains and samples."""
        found = self.memory()
        if self.backend != "vllm":
            return {self.device: found.peak / GIB}
        share = self.engine / len(self.samples_on)
        beside = share if self.device in self.samples_on else 0.0  # of vLLM, on the device that trains
        tokens = max(beside, found.activations) if self.sleep else beside + found.activations
        return dict.fromkeys(self.samples_on, share / GIB) | {self.device: (found.permanent + tokens) / GIB}

    @property
    def trained(self) -> str:
        """Return the trained part in words."""
        adapters = f"{self.adapters} adapter{'s' * (self.adapters > 1)} of rank {self.lora}, {self.bits}-bit base"
        return "nothing" if self.frozen else "all weights" if self.lora is None else adapters

    @property
    def called(self) -> str:
        """Return a short name of the model."""
        return Path(self.model).name if isinstance(self.model, str) else self.model.model_type


class Placement(dict[str, ModelSpec]):
    """Policies by name on devices; a notebook shows it as two tables, by policy and by device.

    Args:
        policies: The model, or a `ModelSpec`, of each policy.
        devices: GiB of each device. `None`: the devices that torch finds.
        every: One process per device, each with every policy (`accelerate launch`). Default: each policy on one device.
        **common: Fields of `ModelSpec` for the policies that are given as a model.

    Attributes:
        devices: GiB of each device.
        every: True if every device holds every policy.

    Raises:
        PlacementError: A policy does not fit.
    """

    def __init__(self, policies: Mapping[str, str | PretrainedConfig | ModelSpec],
                 devices: Mapping[str, float] | None = None, every: bool = False, **common: Any):  # fmt: skip
        for name, one in policies.items():
            self[name] = one if isinstance(one, ModelSpec) else ModelSpec(one, **common)
        self.devices, self.every = dict(devices or found_devices()), every
        self._used, placed = dict.fromkeys(self.devices, 0.0), []
        for name in sorted(self, key=lambda name: (self[name].device is None, -self[name].memory().peak)):
            spec, device = self[name], self[name].device or max(self.devices, key=self._left)
            apart = (spec.backend == "vllm" and spec.samples_on) or (device,)
            self[name] = spec = replace(spec, device=device, samples_on=apart)
            for used, gib in (dict.fromkeys(self.devices, spec.needs()[device]) if every else spec.needs()).items():
                if gib > (left := self._left(used)):
                    taken = f", {self._used[used]:.1f} of them taken by {', '.join(placed)}" if self._used[used] else ""
                    raise PlacementError(
                        f"{name!r} ({spec.called}, {spec.trained}) needs {gib:.1f} GiB on {used}, where "
                        f"{max(left, 0):.1f} of {self.devices[used]:.1f} GiB are left{taken}. {LESS}"
                    )
                self._used[used] += gib
            placed.append(name)

    def _left(self, device: str) -> float:
        return self.devices[device] - (CONTEXT if device.startswith("cuda") else 0.0) - self._used[device]

    def options(self, name: str) -> dict[str, Any]:
        """Return the arguments of `load_policy` (with several adapters: `load_base`) besides the model.

        Args:
            name: Name of the policy.

        Returns:
            Keyword arguments. With `every` they have no device, because each process takes its own.
        """
        spec = self[name]
        found = {one: getattr(spec, one) for one in ("backend", "train_tokens", "sample_tokens")}
        found |= {} if self.every else {"device": spec.device}
        if spec.lora is not None:
            found |= {"lora": spec.lora} if spec.adapters == 1 else {"adapters": spec.adapters, "rank": spec.lora}
        found |= {"load_in_4bit": spec.bits == 4} if spec.backend == "unsloth" else {}
        if spec.backend == "vllm":
            count, room = len(spec.samples_on), min(self.devices[one] for one in spec.samples_on)
            share = ceil(100 * (spec.engine / GIB / count + 1) / room)  # with one GiB of buffers
            free = floor(100 * (1 - CONTEXT / room))  # vLLM refuses to start if it may take more than is free
            found |= {"memory": min(share, free) / 100, "sleep": spec.sleep, "tensor_parallel": count}
            if spec.samples_on != (spec.device,):
                found |= {"where": "server", "gpus": ",".join(one.partition(":")[2] for one in spec.samples_on)}
        return found

    @property
    def policies_table(self) -> pd.DataFrame:
        """Return a table with a row per policy; in GiB. `vLLM`: its own copy of the weights, and its cache."""
        rows = {}
        for name, spec in self.items():
            where = f"each of {len(self.devices)}" if self.every else spec.device
            places = {"trains on": "nowhere" if spec.frozen else where,
                      "samples on": where if self.every else ", ".join(spec.samples_on)}  # fmt: skip
            about = {"model": spec.called, "learns": spec.trained, **places, **spec.memory().gib()}
            copy = spec.engine / GIB if spec.backend == "vllm" else 0.0
            rows[name] = about | {"vLLM": copy, "in all": sum(spec.needs().values())}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")

    @property
    def devices_table(self) -> pd.DataFrame:
        """Return a table with a row per device, in GiB; `left` remains after the policies and the device's needs."""
        table = pd.DataFrame({"capacity": self.devices, "used": self._used}).rename_axis("device")
        return table.assign(left=[self._left(name) for name in self.devices])

    def _repr_html_(self) -> str:
        tables = (self.policies_table, self.devices_table)
        return "".join(table.to_html(float_format="{:.2f}".format) for table in tables) + "<p>GiB</p>"


def budget(agents: int = 2, rank: int = 16, **tokens: int) -> pd.DataFrame:
    """Return GiB of each part for every known shape.

    The cases are 4-bit and 16-bit bases under `agents` adapters, and all weights trained. `tokens`: `train_tokens` and
    `sample_tokens` of `ModelSpec`.
    """
    adapters = {"lora": rank, "adapters": agents}
    ways = {"4-bit + LoRA": {"bits": 4, **adapters}, "16-bit + LoRA": adapters, "all weights": {}}
    rows = {(name, way): ModelSpec(config, **how, **tokens).memory().gib()
            for name, config in known_shapes().items() for way, how in ways.items()}  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["model", "trained"])


def known_shapes() -> dict[str, PretrainedConfig]:
    """Return configs of models that fit one small GPU, written out so that a plan needs no download."""
    common = {"vocab_size": 151936, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
              "head_dim": 128, "max_position_embeddings": 40960, "tie_word_embeddings": True}  # fmt: skip
    hidden = {"Qwen3-0.6B": 1024, "Qwen3-1.7B": 2048}
    return {name: Qwen3Config(**common, hidden_size=h, intermediate_size=3 * h) for name, h in hidden.items()}


def count_weights(config: PretrainedConfig) -> tuple[int, int, int]:
    """Return the numbers of a model's weights; nothing is downloaded or allocated.

    Returns:
        The weights of the body's linear layers, which 4-bit and LoRA apply to, those of all other layers, and those of
        one LoRA adapter of rank 1.
    """
    return _count_weights(config.to_json_string(use_diff=False), type(config))


@lru_cache(32)
def _count_weights(config_json: str, kind: type) -> tuple[int, int, int]:
    with torch.device("meta"):
        net = AutoModelForCausalLM.from_config(kind.from_dict(json.loads(config_json)))
    body = [m for m in net.modules() if isinstance(m, torch.nn.Linear) and m is not net.get_output_embeddings()]
    linear = sum(m.weight.numel() for m in body)
    net.tie_weights()
    everything = sum({id(p): p.numel() for p in net.parameters()}.values())
    return linear, everything - linear, sum(m.in_features + m.out_features for m in body)
