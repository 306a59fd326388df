"""The memory of a policy on a device, counted from a model's config before anything is loaded.

Weights are counted layer by layer on an empty copy of the model. Gradients and AdamW's state follow from what is
trained, keys and values from the tokens that are alive at once. Activations are an estimate (`activations`). Leaves
out: the CUDA context (about half a GiB), fragmentation, and the buffers of a library's own kernels.
"""

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame
    from transformers import PretrainedConfig

GIB = 2**30
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes per weight: 4 bits, an 8-bit scale per 64 weights, and a 32-bit scale per 256 of those (QLoRA, arXiv
2305.14314)."""
ADAMW = 8
"""Bytes per trained weight: two float32 moments."""
LOGITS = 2**25
"""Logits that are held at once, see `mas_lab.backends.torch.fast.packing.LARGE_LOGITS`."""


@dataclass(frozen=True)
class Memory:
    """Bytes by their use."""

    weights: float
    """The base; float32 if it is trained in full."""
    adapters: float
    """All LoRA adapters, float32."""
    gradients: float
    optimizer: float
    kv_cache: float
    activations: float

    @property
    def peak(self) -> float:
        """Return the sum without the smaller of the last two parts, because sampling and the update take turns.

        An engine that keeps its cache during training (vLLM without sleep) needs both.
        """
        kept = self.weights + self.adapters + self.gradients + self.optimizer
        return kept + max(self.kv_cache, self.activations)

    def gib(self) -> dict[str, float]:
        """Return each part and the peak in GiB."""
        return {f.name: getattr(self, f.name) / GIB for f in fields(self)} | {"peak": self.peak / GIB}


@dataclass(frozen=True)
class Shape:
    """Numbers of weights of a model."""

    linear: int
    """In the linear layers of the body, which 4-bit and LoRA apply to."""
    rest: int
    """In all other layers."""
    per_rank: int
    """In one LoRA adapter of rank 1."""


@lru_cache(32)
def _shape(config_json: str, kind: type) -> Shape:
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
    return Shape(linear, everything - linear, sum(m.in_features + m.out_features for m in body))


def shape(config: "PretrainedConfig") -> Shape:
    """Return the numbers of weights of this model; nothing is downloaded or allocated."""
    return _shape(config.to_json_string(use_diff=False), type(config))


def memory(
    config: "PretrainedConfig",
    *,
    bits: int = 16,
    adapters: int = 0,
    rank: int = 16,
    train_tokens: int = 4096,
    sample_tokens: int = 65536,
) -> Memory:
    """Return one policy's memory.

    `adapters=0` trains all weights (float32 under 16-bit products), other values train that many adapters of `rank`.
    `bits`: 16 or 4, of the frozen base. `train_tokens`, `sample_tokens`: the options of that name, the tokens of one
    micro-batch of the update and the tokens that are sampled at once.
    """
    if bits not in (4, 16) or (bits == 4 and not adapters):
        raise ValueError(f"memory: bits={bits} with adapters={adapters}; known are 16, and 4 under adapters")
    counts = shape(config)
    trained = adapters * rank * counts.per_rank if adapters else counts.linear + counts.rest
    if adapters:
        weights = counts.linear * (NF4 if bits == 4 else 2) + counts.rest * 2
    else:
        weights = 4.0 * trained
    layers, _, key_width = _heads(config)
    return Memory(
        weights=weights,
        adapters=4.0 * trained if adapters else 0.0,
        gradients=4.0 * trained,
        optimizer=float(ADAMW * trained),
        kv_cache=float(2 * 2 * layers * key_width * sample_tokens),
        activations=activations(config, train_tokens),
    )


def activations(config: "PretrainedConfig", tokens: int) -> float:
    """Return an estimate of the bytes that one micro-batch keeps for its backward pass, without recomputation.

    Per token and layer in 16 bits: the inputs of both norms and of both blocks (4 h), queries, keys, values and the
    mixed values (2 Q + 2 K heads), the gate, its factor, and both products (4 i). For the head: float32 logits and
    their gradient in chunks.
    """
    text, (layers, query_width, key_width) = config.get_text_config(), _heads(config)
    per_token = 2 * (4 * text.hidden_size + 2 * (query_width + key_width) + 4 * text.intermediate_size)
    return float(tokens * layers * per_token + 8 * min(LOGITS, tokens * text.vocab_size))


def _heads(config: "PretrainedConfig") -> tuple[int, int, int]:
    """Return the number of layers, and the widths of all queries and of all keys of a layer."""
    text = config.get_text_config()
    if not hasattr(text, "num_key_value_heads") or not hasattr(text, "intermediate_size"):
        raise ValueError(f"memory: a {text.model_type} model is built otherwise; known are Llama, Qwen and their kin")
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return text.num_hidden_layers, text.num_attention_heads * head, text.num_key_value_heads * head


def _qwen3(**changes: int) -> "PretrainedConfig":
    from transformers import Qwen3Config

    common = {"vocab_size": 151936, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8}
    return Qwen3Config(**common, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True, **changes)


def known_shapes() -> dict[str, "PretrainedConfig"]:
    """Return configs of models that fit one small GPU, written out so that a plan needs no download."""
    return {
        "Qwen3-0.6B": _qwen3(hidden_size=1024, intermediate_size=3072),
        "Qwen3-1.7B": _qwen3(hidden_size=2048, intermediate_size=6144),
    }


def budget(agents: int = 2, rank: int = 16, **tokens: int) -> "DataFrame":
    """Return GiB of each part for every known shape.

    The cases are 4-bit and 16-bit bases under `agents` adapters, and all weights trained. `tokens`: `train_tokens` and
    `sample_tokens` of `memory`.
    """
    import pandas as pd

    ways = {"4-bit + LoRA": {"bits": 4, "adapters": agents}, "16-bit + LoRA": {"adapters": agents}, "all weights": {}}
    rows = {(name, way): memory(config, rank=rank, **how, **tokens).gib()
            for name, config in known_shapes().items() for way, how in ways.items()}  # fmt: skip
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["model", "trained"])
