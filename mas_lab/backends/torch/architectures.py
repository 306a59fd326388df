"""Try which ways of running a model compute the same as a plain forward pass of each row.

Architectures differ in windows, caches, scaled positions and much else, and no list of them is complete. So each way
runs a few rows with a copy of the model, and its log-probabilities are compared with those of plain passes. The copy
shares the weights, and its windows are cut to a few tokens, so that the rows are longer. Leaves out: the change of
LongRoPE's factors, for which rows are sorted by length (`TorchModel.is_long`).
"""

import json
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from mas_lab.backends.torch.padded import PaddedEngine
from mas_lab.policy import PolicyError, Request, Sample

PROMPTS, NEW = (3, 12), 10
"""Lengths of the prompts, and of their completions, in tokens."""
WINDOW = 8
"""The length to which windows are cut, in tokens."""
WINDOWS = ("window", "window_size", "chunk_size", "original_max_position_embeddings", "floor_scale")
"""Endings of the names of windows, chunks, and lengths above which positions are scaled."""
SMALL = 2**25
"""Number of weights up to which the calls of modules matter and joined matrices may be copied for each batch."""


EXACT = 2**29
"""Number of weights up to which a copy of a 16-bit model computes in float32."""


@dataclass(frozen=True)
class Ways:
    """The ways of running a model that agree with a plain forward pass."""

    tree: bool = False
    """Rows that begin alike share a tree, to sample and to train."""
    fused: bool = False
    """A few joined operations replace the model's modules, to sample on a CPU."""
    mixed: bool = False
    """Rows of several adapters share a batch."""
    cached: bool = True
    """Prompts are padded on the left, and the model caches what it computed. False: each token takes a whole pass."""
    padded: bool = True
    """Rows that are trained on are padded on the right. False: only rows of one length share a batch."""
    head: bool = True
    """The output embedding runs alone, on the hidden states of the tokens that are needed."""
    eager: bool = True
    """Without trees, a forward-mode derivative takes the model's eager attention in place of a fused kernel."""


FOUND: dict[str, Ways] = {}
"""The result of each trial of this process."""


def find_ways(model: Any) -> Ways:
    """Return the ways in which a `TorchModel` computes the right numbers; there is one trial per kind of model."""
    small, kind = model.net.num_parameters() <= SMALL, [type(model).__name__, type(model.net).__name__]
    config = model.net.config.to_dict() | {"_name_or_path": None}
    what = [kind, config, str(model.dtype), str(model.net.dtype), model.device.type, small,
            model.options.packing, model.options.plain, model.lora is not None]  # fmt: skip
    key = json.dumps(what, sort_keys=True, default=str)
    if key not in FOUND:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            FOUND[key] = _find_ways(model, small)
    return FOUND[key]


def _find_ways(model: Any, small: bool) -> Ways:
    trial, ways = Trial(model), Ways(tree=True)
    if model.options.packing == "padded" or model.options.plain or not (trial.samples(ways) and trial.reads(ways)):
        ways = Ways(cached=trial.samples(Ways()), padded=trial.reads(Ways(head=False)))
        ways = replace(ways, eager=trial.has_equal_attentions(ways))
        if not ways.cached and not trial.samples(Ways(cached=False)):
            raise PolicyError(
                f"{model.source.name}: in a whole row of a {model.net.config.model_type} model, a token has another "
                "probability than without the tokens after it, so it cannot be trained on what it samples"
            )
    elif model.lora is not None:
        two = Trial(model, adapters=2)
        mixed, small = replace(ways, mixed=True), model.net.num_parameters() <= EXACT  # the joined matrices stay
        fused = replace(mixed, fused=small and model.device.type == "cpu" and model.dtype == torch.bfloat16)
        ways = next((found for found in dict.fromkeys([fused, mixed]) if two.samples(found)), ways)
    elif small and model.device.type == "cpu" and model.net.dtype == torch.float32:
        ways = replace(ways, fused=trial.samples(replace(ways, fused=True)))
    return replace(ways, head=trial.splits(ways))


def _or_false(method: Callable[..., bool]) -> Callable[..., bool]:
    """Return False where `method` raises: a model that cannot run in a way may raise anything."""

    def tried(self: "Trial", ways: Ways) -> bool:
        try:
            self.model.ways = ways
            return method(self)
        except Exception:
            return False

    return tried


class Trial:
    """A copy of a model with short windows, and rows to try it on. Each method answers for some `Ways`."""

    def __init__(self, model: Any, adapters: int = 0):
        self.model, self.device = copy(model), model.device
        self.model.peft, self.model.switch, self.model.eos_ids = None, None, frozenset  # no token ends a row early
        vocabulary = model.net.config.get_text_config().vocab_size
        self.ids = np.random.default_rng(0).integers(1, vocabulary, PROMPTS[-1] + NEW).tolist()
        try:
            self.net = self.model.net = _few_layers(model.net)
            self.logits(self.ids)
        except Exception:  # the model needs all of its layers
            self.net = self.model.net = _copied(model.net, [])
        # The rounding of 16 bits would hide small faults. Only a copy of the weights may get another number type.
        small = self.net.num_parameters() <= EXACT and not hasattr(self.net, "hf_quantizer")
        if small and model.dtype != torch.float32:
            self.net = self.model.net = deepcopy(self.net).float()
            self.model.dtype = torch.float32
        self.tolerance = 5e-5 if self.model.dtype == torch.float32 else 0.05
        for module in self.net.modules():
            for values in (vars(module), vars(getattr(module, "config", module))):
                _cut(values, model.switch is not None)
        names = [f"trial{i}" for i in range(adapters)]
        for name in names:
            self.model.add_adapter(name, 2)
        for name, parameter in self.net.named_parameters():
            if any(f".{adapter}." in name for adapter in names):  # as large as the layers' own outputs, and no larger
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5 / 2)
        # Divided by this temperature, logits have a standard deviation of 1, however confident the model is.
        temperature = max(self.logits(self.ids).std(-1).mean().item(), 1e-3)
        self.asked = [
            (
                SimpleNamespace(name="trial", adapter=name, activate=partial(self.activate, name)),
                Request(tuple(self.ids[:n]), NEW, temperature, seed),
            )
            for name in names or [None]
            for seed, n in enumerate(PROMPTS if names else PROMPTS * 2)
        ]

    def activate(self, adapter: str | None) -> None:
        if adapter is not None:
            self.model.peft.set_adapter(adapter)

    @torch.inference_mode()
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Return the logits (T, V) of a plain pass of one row."""
        with self.model.computing():
            return self.net(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0].float()

    def agree(self, found: Sequence[Sequence[float]], completions: Sequence[Sequence[int]]) -> bool:
        """Return True if log-probabilities of the completions of `asked` are those of plain passes, in the mean."""
        known = []
        for (policy, request), ids in zip(self.asked, completions, strict=True):
            policy.activate()
            logits = self.logits([*request.prompt_ids, *ids])[len(request.prompt_ids) - 1 : -1]
            known += torch.log_softmax(logits / request.temperature, -1)[range(len(ids)), list(ids)].tolist()
        gaps = np.abs(np.concatenate(found) - known)
        return bool(gaps.mean() <= self.tolerance)

    @_or_false
    def samples(self) -> bool:
        """Return True if the engine samples with the right log-probabilities."""
        from mas_lab.backends.torch.fast.engine import TreeEngine

        engine = TreeEngine(self.model) if self.model.ways.tree else PaddedEngine(self.model)
        completions = engine.complete(self.asked)
        return self.agree([one.logprobs for one in completions], [one.ids for one in completions])

    @_or_false
    def reads(self) -> bool:
        """Return True if the update computes the right log-probabilities."""
        samples = self._samples()
        found = np.empty(NEW * len(samples))
        with torch.no_grad(), self.model.computing():
            for batch in self.model.micro_batches(samples):
                found[batch.token_N] = batch.token_logprobs(self.net, False)[0].float().cpu().numpy()
        return self.agree([found], [sample.completion_ids for sample in samples])

    @_or_false
    def splits(self) -> bool:
        """Return True if the output embedding turns hidden states to the model's logits."""
        from mas_lab.backends.torch.fast.packing import head_of

        return self._has_logits(lambda batch: head_of(self.net)(batch.hidden(self.net)))

    @_or_false
    def has_equal_attentions(self) -> bool:
        """Return True if the attention of forward-mode derivatives computes the model's logits."""
        from mas_lab.backends.torch.fast.tree_attention import forward_mode

        def eager(batch: Any) -> torch.Tensor:
            with forward_mode():
                return batch.logits(self.net, self.net)

        return self._has_logits(eager)

    def _has_logits(self, logits_of: Callable[[Any], torch.Tensor]) -> bool:
        """Return True if `logits_of` gives the logits of the model's own forward pass, for each micro-batch."""
        from mas_lab.backends.torch.fast.packing import packed_batches

        with torch.no_grad(), self.model.computing():
            for batch in packed_batches(self._samples(), self.model):
                known = batch.logits(self.net, self.net)
                if not (logits_of(batch) - known).abs().mean() <= self.tolerance * known.std():
                    return False
        return True

    def _samples(self) -> list[Sample]:
        """Return rows to train on: the prompts of one policy, with tokens of the trial as completions."""
        return [
            Sample(request.prompt_ids, self.ids[seed : seed + NEW], [0.0] * NEW, request.temperature, 1.0, 1.0)
            for seed, (_, request) in enumerate(self.asked)
        ]


def _few_layers(net: torch.nn.Module) -> torch.nn.Module:
    """Return a copy with the first layers of a model: at least two, and up to the first layer of each kind."""
    stacks = [m for m in net.modules() if isinstance(m, torch.nn.ModuleList) and _is_stack(m)]
    kinds = [[_kind(layer) for layer in stack] for stack in stacks]
    keep = max([2, *(1 + own.index(kind) for own in kinds for kind in own)])
    short = _copied(net, [layer for stack in stacks for layer in stack[keep:]])
    for stack in short.modules():
        if isinstance(stack, torch.nn.ModuleList) and _is_stack(stack):
            del stack[keep:]
    config = short.config.get_text_config()
    vars(config)[config.attribute_map.get("num_hidden_layers", "num_hidden_layers")] = keep
    return short


def _copied(net: torch.nn.Module, without: Sequence[torch.nn.Module]) -> torch.nn.Module:
    """Return a copy that shares the weights, with empty modules in place of those in `without`."""
    known = {id(parameter): parameter for parameter in net.parameters()}
    return deepcopy(net, known | {id(module): torch.nn.Identity() for module in without})


def _is_stack(modules: torch.nn.ModuleList) -> bool:
    return len(modules) > 2 and isinstance(modules[0], GradientCheckpointingLayer)


def _kind(layer: torch.nn.Module) -> list:
    """Return the types and the plain settings of a layer's modules, without the numbers of layers."""
    return [
        (type(module).__name__, key, value)
        for module in layer.modules()
        for key, value in vars(module).items()
        if type(value) in (int, float, bool, str) and not key.endswith(("idx", "index", "_id", "number"))
    ]


def _cut(values: dict[str, Any], longrope: bool) -> None:
    """Cut the windows in `values`. LongRoPE's original length becomes larger than any row of the trial."""
    for name, value in values.items():
        if isinstance(value, dict):
            _cut(value, longrope)
        elif type(value) is int and str(name).endswith(WINDOWS):
            values[name] = 2**20 if longrope and name.startswith("original") else min(value, WINDOW)
