"""The ways of running a model that tests have proved for its architecture.

Architectures differ in windows, caches, scaled positions and much else, so `architectures.toml` lists those of which
`tests/backends/torch/test_architectures.py` has compared tokens, log-probabilities and gradients with plain forward
passes of each row. Any other model is run by plain passes. Leaves out: the change of LongRoPE's factors, for which rows
are sorted by length (`TorchModel.is_long`).
"""

import tomllib
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mas_lab.backends.torch.source import rotations_of, shape
from mas_lab.policy import PolicyError

SMALL = 2**25
"""Number of weights up to which the calls of modules matter and joined matrices may be copied for each batch."""
LARGE = 2**29
"""Number of weights up to which the joined matrices of a frozen base are kept."""


@dataclass(frozen=True)
class Ways:
    """The ways of running a model that agree with a plain forward pass."""

    tree: bool = False
    """Rows that begin alike share a tree, to sample and to train, also those of several adapters."""
    fused: bool = False
    """A few joined operations replace the model's modules, to sample on a CPU."""
    padded: bool = True
    """Rows of several lengths share a batch, and the model caches what it computed. False: a batch has rows of one
    length, and each sampled token takes a pass of its whole row."""


PLAIN = Ways(padded=False)
"""The way that is right for every causal model."""
PROVED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TABLE = {kind: set(settings) for kinds in PROVED.values() for kind, settings in kinds.items()}
"""The settings (`settings_of`) with which an architecture was proved, by `model_type`."""
WINDOW, EXPERTS, BOTH_SIDES = "sliding_attention", "experts", "bidirectional attention"
ROTATIONS = {"default", "linear", "llama3", "longrope", "proportional", "yarn"}
"""Kinds of rotary embedding that were proved for all: they depend on a token's position alone, and LongRoPE on a length
by which rows are sorted. The kind "dynamic" depends on the length of the row."""


def settings_of(config: Any) -> set[str]:
    """Return the settings of a config that decide which tokens see each other, and how positions are counted."""
    layers = shape(config, "layer_types")
    given = {
        WINDOW: not layers and shape(config, "sliding_window") and shape(config, "use_sliding_window") is not False,
        EXPERTS: any(shape(config, name) for name in ("num_local_experts", "num_experts", "n_routed_experts")),
        BOTH_SIDES: shape(config, "use_bidirectional_attention") in (True, "all"),
    }
    rotations = {one.get("rope_type", "default") for one in rotations_of(config)} - ROTATIONS
    others = {*(layers or ())} - {"full_attention"} | {f"{kind} rotation" for kind in rotations}
    return {name for name, is_given in given.items() if is_given} | others


def find_ways(model: Any) -> Ways:
    """Return the ways that are proved for the architecture of a `TorchModel`, its settings and its device.

    Warns if there are none. Raises PolicyError if a token's probability depends on later tokens.
    """
    net, config, options = model.net, model.net.config, model.options
    kind, settings = config.model_type, settings_of(config)
    if kind == "doge" or BOTH_SIDES in settings:
        raise PolicyError(
            f"{model.source.name}: in a whole row of a {kind} model, a token has another probability than without the "
            "tokens after it, so it cannot be trained on what it samples"
        )
    if kind not in TABLE or settings - TABLE[kind]:
        settled = f" with {' and '.join(sorted(settings - TABLE[kind]))}" if kind in TABLE else ""
        warnings.warn(
            f"{model.source.name}: a {kind} model{settled} runs slowly, because no faster way was tested for it: each "
            "sampled token takes a pass of its whole row, and only rows of one length share a batch (docs/gpus.md "
            "lists the architectures that run faster)",
            stacklevel=2,
        )
        return PLAIN
    if options.packing == "padded" or options.plain:
        return Ways()
    if model.lora is None:
        fits = net.dtype == torch.float32 and net.num_parameters() <= SMALL
    else:
        fits = model.dtype == torch.bfloat16 and net.num_parameters() <= LARGE
    fits &= model.device.type == "cpu" and getattr(config, "hidden_act", None) == "silu"  # which `fused` computes
    return Ways(tree=True, fused=fits and kind in PROVED["fused"])
