"""Count the memory of policies from their models' configs, and place the policies on devices before anything is loaded.

    plan = lab.Placement({"solver": "Qwen3-1.7B", "verifier": "Qwen3-0.6B"}, lora=16)      # one agent per GPU
    team = lab.Team({name: lab.load_policy(hub_id[name], **plan.options(name)) for name in plan})

Weights are counted layer by layer on an empty copy of the model. Gradients and AdamW's state follow from what is
trained, keys and values from the tokens that are alive at once. Activations are an estimate. A policy that cannot fit
is refused, and the error says what would fit. Leaves out: the CUDA context, fragmentation and the buffers of kernels,
except for a lump sum per GPU; loading; and starting processes (`accelerate launch`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import psutil

from mas_lab.backends.torch.source import Source, head_size, model_config, shape

if TYPE_CHECKING:
    from transformers import PretrainedConfig

GIB = 2**30
CONTEXT = 0.75
"""GiB of each GPU for its context, the kernels' buffers and fragmentation."""
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per weight: 4 bits, an 8-bit scale per 64 weights, and a 32-bit scale per 256 of those (QLoRA, arXiv
2305.14314)."""
LOGITS, DRAWN_AT_ONCE = 2**25, 4
"""Logits that are computed at once, and how many times as many a batch of requests has, see
`mas_lab.backends.torch.padded.LARGE_LOGITS`."""
CHECKPOINTED = 1_000_000_000
"""Number of weights above which the update computes activations again in the backward pass instead of keeping them."""
SMALLER = {"sample_tokens": 2048, "train_tokens": 2048}
"""The options that a refusal tries, so that less memory is needed."""


class PlacementError(ValueError):
    """Error of a policy that does not fit; it names the device, the memory needed and left, and what would fit."""


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

    model: "str | PretrainedConfig"
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
        if self.bits not in (4, 16) or (self.bits == 4 and self.lora is None):
            raise ValueError(f"ModelSpec: bits={self.bits} with lora={self.lora}; known are 16, and 4 under adapters")
        config = _config(self.model)
        text, (linear, rest, per_rank) = config.get_text_config(), count_weights(config)
        key_heads, size = shape(config, "num_key_value_heads"), head_size(config)
        if key_heads is None or shape(config, "intermediate_size") is None:
            raise ValueError(f"ModelSpec: a {text.model_type} model is built otherwise; known are Llama, Qwen and kin")
        queries, keys = shape(config, "num_attention_heads") * size, key_heads * size
        if self.lora is None:
            trained = linear + rest
            weights, adapters = 4.0 * trained, 0.0
        else:
            trained = self.adapters * self.lora * per_rank
            size = self._bytes_of_a_frozen_weight(linear + rest)
            weights, adapters = linear * (NF4 if self.bits == 4 else size) + rest * size, 4.0 * trained
        sampling = float(2 * 2 * text.num_hidden_layers * keys * self.sample_tokens)
        if self.backend != "vllm":
            drawn = self.sample_tokens * text.vocab_size
            sampling += 24 * min(LOGITS, drawn) + 2 * min(DRAWN_AT_ONCE * LOGITS, drawn)
        if self.frozen:
            return Memory(weights, adapters, 0.0, 0.0, sampling, 0.0)
        activations = self._activations(text, linear, rest, queries, keys)
        return Memory(weights, adapters, 4.0 * trained, 8.0 * trained, sampling, activations)

    def _bytes_of_a_frozen_weight(self, weights: int) -> int:
        """Return 2, or on a CPU the size of the type in which a model of so many weights computes there."""
        if self.device != "cpu":
            return 2
        from mas_lab.backends.torch.threads import settle_dtype

        return settle_dtype(weights).itemsize

    def _activations(self, text: "PretrainedConfig", linear: int, rest: int, queries: int, keys: int) -> float:
        """Return the bytes that the update of one micro-batch holds beside weights and gradients.

        Per token and layer in 16 bits: the inputs of both norms and of both blocks (4 h), queries, keys, values and the
        mixed values (2 Q + 2 K heads), the gate, its factor, and both products (4 i). The inputs of all norms are kept
        in float32 too (2 h, and Q + K heads). With checkpointing there is each layer's input (h), and later, after the
        head, all of it for one layer at a time. The head has log-probabilities, their gradient and that of the logits,
        in float32 and in chunks. If all weights are trained, 16-bit copies of
        the layers are kept, and the head has a copy and a gradient in 16 bits, and at the end a gradient in float32.
        """
        hidden, layers, head = text.hidden_size, text.num_hidden_layers, text.vocab_size * text.hidden_size
        per_token = 2 * (4 * hidden + 2 * (queries + keys) + 4 * shape(text, "intermediate_size")) + 4 * (
            2 * hidden + queries + keys
        )
        logits, stored = 12 * min(LOGITS, self.train_tokens * text.vocab_size), self.train_tokens * layers * per_token
        if self.lora is None:
            logits, stored = max(logits + 4 * head, 8 * head), stored + 2 * linear
        again = linear + rest > CHECKPOINTED if self.checkpointing is None else self.checkpointing
        if again and self.backend != "unsloth":
            return float(2 * self.train_tokens * layers * hidden + max(logits, self.train_tokens * per_token))
        return float(stored + logits)

    @property
    def engine(self) -> float:
        """Return the bytes of vLLM's own copy: 16-bit weights, adapters and cache. It is 0 if torch samples."""
        if self.backend != "vllm":
            return 0.0
        (linear, rest, _), found = count_weights(_config(self.model)), self.memory()
        return 2.0 * (linear + rest) + found.adapters / 2 + found.sampling

    def needs(self, here: str) -> dict[str, float]:
        """Return the memory on each device.

        Args:
            here: Device on which the policy trains.

        Returns:
            GiB by device.
        """
        found = self.memory()
        if self.backend != "vllm":
            return {here: found.peak / GIB}
        devices = self.sampling_devices(here)
        share = self.engine / len(devices)
        beside = share if here in devices else 0.0  # of vLLM, on the device that trains
        tokens = max(beside, found.activations) if self.sleep else beside + found.activations
        return {here: (found.permanent + tokens) / GIB} | {one: share / GIB for one in devices if one != here}

    def sampling_devices(self, here: str) -> tuple[str, ...]:
        """Return the devices on which the policy samples.

        Args:
            here: Device on which the policy trains.

        Returns:
            One device, or several that share one engine's weights.
        """
        return (self.backend == "vllm" and self.samples_on) or (here,)

    @property
    def trained(self) -> str:
        """Return the trained part in words."""
        if self.frozen:
            return "nothing"
        if self.lora is None:
            return "all weights"
        many = f"{self.adapters} adapters" if self.adapters > 1 else "an adapter"
        return f"{many} of rank {self.lora}, {self.bits}-bit base"

    @property
    def called(self) -> str:
        """Return a short name of the model."""
        return Path(self.model).name if isinstance(self.model, str) else self.model.model_type

    def savings(self) -> "dict[str, ModelSpec]":
        """Return other settings that need less memory, those that change least first."""
        tokens = {name: min(size, getattr(self, name)) for name, size in SMALLER.items()}
        less, rank = "sample_tokens and train_tokens of 2048", self.lora or 16
        quantized = {"lora": rank, "bits": 4, "backend": "unsloth"}
        found: dict[str, dict[str, Any]] = {less: tokens}
        if self.backend != "unsloth" and not (self.checkpointing or self.frozen):
            found["checkpointing=True"] = {"checkpointing": True}
        if self.backend == "vllm" and not self.samples_on:
            found["sleep=True"] = {"sleep": True}
        if self.lora is None and not self.frozen:
            found |= {"lora=16": {"lora": 16}, f"lora=16 and {less}": {"lora": 16, **tokens}}
        if self.bits != 4 and not self.frozen:
            found[f"lora={rank}, bits=4, backend='unsloth'"] = quantized
            found[f"the same and {less}"] = quantized | tokens
        return {words: replace(self, **changes) for words, changes in found.items()}


class Placement(dict[str, ModelSpec]):
    """Policies by name on devices; it shows itself as two tables, by policy and by device.

    Args:
        policies: The model, or a `ModelSpec`, of each policy.
        devices: GiB of each device. `None`: the devices that torch finds.
        every: One process per device, each with every policy (`accelerate launch`). Default: each policy on one device.
        **common: Fields of `ModelSpec` for the policies that are given as a model.

    Attributes:
        devices: GiB of each device.
        every: True if every device holds every policy.

    Raises:
        PlacementError: A policy does not fit, or names an unknown device.
    """

    def __init__(self, policies: "Mapping[str, str | PretrainedConfig | ModelSpec]",
                 devices: Mapping[str, float] | None = None, every: bool = False, **common: Any):  # fmt: skip
        for name, one in policies.items():
            self[name] = one if isinstance(one, ModelSpec) else ModelSpec(one, **common)
        self.devices, self.every = dict(devices or found_devices()), every
        self._used = dict.fromkeys(self.devices, 0.0)
        self._at: dict[str, str] = {}
        for name in sorted(self, key=lambda name: (self[name].device is None, -self[name].memory().peak)):
            self._place(name)

    def _place(self, name: str) -> None:
        spec = self[name]
        device = spec.device or max(self.devices, key=self._left)
        self[name] = spec = replace(spec, device=device)
        if self.every and spec.sampling_devices(device) != (device,):
            raise PlacementError(f"{name!r}: with every=True each process samples where it trains; drop samples_on")
        for used in (device, *spec.sampling_devices(device)):
            if used not in self.devices:
                raise PlacementError(f"{name!r} is wanted on {used}; the devices are {', '.join(self.devices)}")
        for here in self.devices if self.every else (device,):
            needs = spec.needs(here)
            for used, gib in needs.items():
                if gib > self._left(used):
                    raise PlacementError(self._refusal(name, used, gib))
            for used, gib in needs.items():
                self._used[used] += gib
        self._at[name] = device

    def _left(self, device: str) -> float:
        return self.devices[device] - (CONTEXT if device.startswith("cuda") else 0.0) - self._used[device]

    def _refusal(self, name: str, device: str, gib: float) -> str:
        spec, left = self[name], self._left(device)
        others = f", {self._used[device]:.1f} of them taken by {', '.join(self._at)}" if self._used[device] else ""
        smaller = {words: other.needs(device).get(device, 0.0) for words, other in spec.savings().items()}
        fitting = "; ".join(f"{words}: {less:.1f} GiB" for words, less in smaller.items() if less <= left)
        return (
            f"{name!r} ({spec.called}, {spec.trained}) needs {gib:.1f} GiB on {device}, where "
            f"{max(left, 0):.1f} of {self.devices[device]:.1f} GiB are left{others}. "
            + (f"What would fit: {fitting}" if fitting else "No setting makes it fit; take a smaller model")
        )

    def options(self, name: str) -> dict[str, Any]:
        """Return the arguments of `load_policy` (with several adapters: `load_base`) besides the model.

        Args:
            name: Name of the policy.

        Returns:
            Keyword arguments. With `every` they have no device, because each process takes its own.
        """
        spec, device = self[name], self._at[name]
        found: dict[str, Any] = {"backend": spec.backend, "train_tokens": spec.train_tokens}
        found |= {"sample_tokens": spec.sample_tokens} | ({} if self.every else {"device": device})
        if spec.lora is not None:
            found |= {"lora": spec.lora} if spec.adapters == 1 else {"adapters": spec.adapters, "rank": spec.lora}
        if spec.backend == "unsloth":
            found |= {"load_in_4bit": spec.bits == 4}
        if spec.backend == "vllm":
            apart = spec.sampling_devices(device)
            room = min(self.devices[one] for one in apart)
            share = ceil(100 * (spec.engine / GIB / len(apart) + 1) / room)  # with one GiB of buffers
            free = floor(100 * (1 - CONTEXT / room))  # vLLM refuses to start if it may take more than is free
            found |= {"memory": min(share, free) / 100, "sleep": spec.sleep, "tensor_parallel": len(apart)}
            if apart != (device,):
                found |= {"where": "server", "gpus": ",".join(one.partition(":")[2] for one in apart)}
        return found

    @property
    def policies_table(self) -> pd.DataFrame:
        """Return a table with a row per policy; sizes are in GiB."""
        rows = []
        for name, spec in self.items():
            found, here = spec.memory(), self._at[name]
            where = f"each of {len(self.devices)}" if self.every else here
            samples = where if spec.sampling_devices(here) == (here,) else ", ".join(spec.sampling_devices(here))
            rows.append({
                "policy": name, "model": spec.called, "learns": spec.trained,
                "trains on": "nowhere" if spec.frozen else where, "samples on": samples,
                "weights": (found.weights + found.adapters) / GIB,
                "gradients, optimizer": (found.gradients + found.optimizer) / GIB,
                "activations": found.activations / GIB,
                "sampling": found.sampling / GIB,
                "vLLM's copy": max(0.0, spec.engine - found.sampling) / GIB,
                "in all": sum(spec.needs(here).values()),
            })  # fmt: skip
        return pd.DataFrame(rows).set_index("policy")

    @property
    def devices_table(self) -> pd.DataFrame:
        """Return a table with a row per device, in GiB; `left` remains after the policies and the device's needs."""
        table = pd.DataFrame({"capacity": self.devices, "used": self._used}).rename_axis("device")
        return table.assign(left=[self._left(name) for name in self.devices])

    def __repr__(self) -> str:
        tables = (self.policies_table, self.devices_table)
        return "\n\n".join(table.round(2).to_string() for table in tables) + "\n(GiB)"

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


def known_shapes() -> "dict[str, PretrainedConfig]":
    """Return configs of models that fit one small GPU, written out so that a plan needs no download."""
    from transformers import Qwen3Config

    common = {"vocab_size": 151936, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
              "head_dim": 128, "max_position_embeddings": 40960, "tie_word_embeddings": True}  # fmt: skip
    return {
        "Qwen3-0.6B": Qwen3Config(**common, hidden_size=1024, intermediate_size=3072),
        "Qwen3-1.7B": Qwen3Config(**common, hidden_size=2048, intermediate_size=6144),
    }


def _config(model: "str | PretrainedConfig") -> "PretrainedConfig":
    if not isinstance(model, str):
        return model
    if model in (shapes := known_shapes()):
        return shapes[model]
    return model_config(Source.find(model).location())


def count_weights(config: "PretrainedConfig") -> tuple[int, int, int]:
    """Return the numbers of a model's weights; nothing is downloaded or allocated.

    Returns:
        The weights of the body's linear layers, which 4-bit and LoRA apply to, those of all other layers, and those of
        one LoRA adapter of rank 1.
    """
    return _count_weights(config.to_json_string(use_diff=False), type(config))


@lru_cache(32)
def _count_weights(config_json: str, kind: type) -> tuple[int, int, int]:
    import torch
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    with init_empty_weights():
        net = AutoModelForCausalLM.from_config(kind.from_dict(json.loads(config_json)))
    head = net.get_output_embeddings()
    body = [m for m in net.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    linear = sum(m.weight.numel() for m in body)
    net.tie_weights()
    everything = sum({id(p): p.numel() for p in net.parameters()}.values())
    return linear, everything - linear, sum(m.in_features + m.out_features for m in body)


def found_devices() -> dict[str, float]:
    """Return every CUDA device with its GiB; without one, the CPU with the machine's memory."""
    import torch

    found = [torch.cuda.get_device_properties(i).total_memory for i in range(torch.cuda.device_count())]
    if found:
        return {f"cuda:{i}": total / GIB for i, total in enumerate(found)}
    return {"cpu": psutil.virtual_memory().total / GIB}


def free_bytes(device: str) -> int:
    """Return the bytes that are free on a CUDA device, or in the machine's memory."""
    import torch

    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available


def devices() -> str:
    """Return every device that torch names, each with the result of a real matrix product."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch cannot be imported: {_first_line(error)}"
    names = {"cpu": "cpu"}
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        memory = about.total_memory / GIB
        names[f"cuda:{i}"] = f"cuda:{i} {about.name}, {memory:.0f} GiB, compute {about.major}.{about.minor}"
    if torch.backends.mps.is_available():
        names["mps"] = "mps"
    return "; ".join(f"{name}: {probe(device)}" for device, name in names.items())


def probe(device: str) -> str:
    """Return "works", or an error message, after a product and its gradient on `device`.

    The reference is the same product in float64 on the CPU. A P100 under a recent torch reports itself as available and
    fails at this, its first operation.
    """
    import torch

    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=draw) for _ in range(2))
    try:
        on_device = a.to(device).requires_grad_()
        product = on_device @ b.to(device)
        product.sum().backward()
        wrong = (product.detach().cpu().double() - a.double() @ b.double()).abs().max().item()
        wrong = max(wrong, (on_device.grad.cpu().double() - b.double().sum(1)).abs().max().item())
    except Exception as error:  # any error of a driver is the result
        return f"FAILS at the first operation ({_first_line(error)})"
    return "works" if wrong < 0.1 else f"WRONG results (off by {wrong:.2g})"


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
