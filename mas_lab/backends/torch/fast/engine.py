"""Sample all pending requests at once; each distinct prefix goes through the model once.

The engine answers the requests of all its policies together. Each distinct prompt is prefilled once. A node is a
distinct (adapter, prompt, beginning of a completion): candidates with equal tokens so far share it, and finished
candidates leave the batch. A request's uniform numbers depend on its seed alone, and each token is drawn by inverting
the cumulative distribution. So a draw does not depend on the other requests of its batch, beyond float noise. Several
LoRA adapters share a batch: each has a slice of the rows, and the base runs once over all. (PEFT's `adapter_names` does
the same with lists of row indices, which it builds again in every layer.) Leaves out: penalties and beams, models whose
attention cannot follow trees (`padded`), and adapter variants other than plain LoRA, which we never create.

Shapes: G distinct prompts; R requests; M distinct live nodes, at most R; C columns of keys per prompt; V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import torch

from mas_lab.backends.torch.fast.fused import FusedForward
from mas_lab.backends.torch.fast.packing import Cost
from mas_lab.backends.torch.fast.tree_attention import Layout, Store, Trie, laid_out, merge_prefixes
from mas_lab.backends.torch.fast.tree_attention import forward as tree_forward
from mas_lab.backends.torch.padded import PaddedEngine, prompt_key
from mas_lab.policy import Completion, PolicyRequest

Forward = Callable[[torch.Tensor, torch.Tensor, Layout, torch.Tensor], torch.Tensor]
"""A forward pass from tokens (M,), positions (M,), layout and the tokens to keep (U,) to logits (U, V)."""


class Slices:
    """The flat tokens of the next forward pass by adapter. Tokens of one are adjacent; adapters have any order."""

    def __init__(self):
        self.parts: list[tuple[str, slice]] = []
        self.factors: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}
        """Factors of adapters in the joined products of `fused`."""

    def assign(self, adapters: Sequence[str], counts: Sequence[int]) -> None:
        """Assign the next `counts[i]` rows to `adapters[i]`; neighbours with the same adapter become one slice."""
        self.parts, start = [], 0
        for adapter, run in groupby(zip(adapters, counts, strict=True), key=itemgetter(0)):
            end = start + sum(count for _, count in run)
            self.parts.append((adapter, slice(start, end)))
            start = end

    def forward(self, layer: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        result = layer.base_layer(x)
        for adapter, rows in self.parts:
            down, up = layer.lora_A[adapter], layer.lora_B[adapter]
            part = up(down(x[..., rows, :])) * layer.scaling[adapter]  # a layer may get (1, M, h) or (M, h)
            result[..., rows, :] += part.to(result.dtype)
        return result


@contextmanager
def mixing(net: torch.nn.Module, slices: Slices) -> Iterator[None]:
    """Make each LoRA layer of `net` apply the adapter of each slice to it, inside the `with` block."""
    before = {module: module.forward for module in net.modules() if hasattr(module, "lora_A")}
    for layer in before:
        layer.forward = partial(slices.forward, layer)
    try:
        yield
    finally:
        for layer, forward in before.items():
            layer.forward = forward


class TreeDecoder:
    """A decoder that stores the keys and values of a tree once: candidates share those of their common beginning."""

    def __init__(self, forward: Forward, prompts: Sequence[Sequence[int]], adapters: Sequence[str],
                 slices: Slices | None, room: int, cost: Cost, device: torch.device):  # fmt: skip
        self.forward, self.prompts, self.adapters, self.slices, self.room = forward, prompts, adapters, slices, room
        self.cost, self.device = cost, device

    def prefill(self) -> torch.Tensor:
        """Return the logits (G, V) after each prompt.

        A common beginning of prompts is computed once, and its keys and values are copied to each of them.
        """
        lengths_G = np.array([len(prompt) for prompt in self.prompts])
        G, L = len(lengths_G), int(lengths_G.max())
        self.store = Store(G, L + self.room)
        self.tree_M, self.used_G = np.arange(G), lengths_G.copy()
        self.visible_MC = np.arange(self.store.capacity) < lengths_G[:, None]
        self.at_GC = np.tile(np.arange(self.store.capacity), (G, 1))
        self.depth_M = lengths_G - 1
        tries, nodes_G, adapters_P = self._tries()
        slots = [g * self.store.capacity + np.arange(length) for g, length in enumerate(lengths_G)]
        stored = {"slot_S": self._put(np.concatenate(slots)), "source_S": self._put(np.concatenate(nodes_G))}
        ids_M, at_M, layout = laid_out(tries, self._put, store=self.store, **stored)
        ends_G = np.array([nodes[-1] for nodes in nodes_G])
        return self._forward(ids_M, at_M, layout, ends_G, adapters_P, list(map(len, tries)))

    def _tries(self) -> tuple[list[Trie], list[np.ndarray], list[str]]:
        """Return tries of prompts that begin alike, the flat nodes of each prompt's tokens, and each trie's adapter."""
        places: dict[str, dict[tuple[int, ...], int]] = {}
        for g, (prompt, adapter) in enumerate(zip(self.prompts, self.adapters, strict=True)):
            places.setdefault(adapter, {})[tuple(prompt)] = g
        tries, adapters, start = [], [], 0
        nodes_G: list[np.ndarray] = [np.empty(0, int)] * len(self.prompts)
        for adapter, own in places.items():
            for prompts in merge_prefixes({prompt: len(prompt) for prompt in own}, self.cost):
                trie = Trie()
                for prompt in prompts:
                    nodes_G[own[prompt]] = start + np.array(trie.walk(prompt)[1:])
                tries.append(trie)
                adapters.append(adapter)
                start += len(trie)
        return tries, nodes_G, adapters

    def extend(self, parent_M: np.ndarray, ids_M: np.ndarray) -> torch.Tensor:
        """Return the logits (M, V) after tokens `ids_M`, children of the last call's nodes `parent_M` (ascending)."""
        self.tree_M, self.depth_M = self.tree_M[parent_M], self.depth_M[parent_M] + 1
        self.visible_MC = self.visible_MC[parent_M]
        count_G = np.bincount(self.tree_M, minlength=len(self.used_G))
        alive_P = np.flatnonzero(count_G)
        if 2 * len(alive_P) <= len(count_G):
            self._keep(alive_P)
            count_G = count_G[alive_P]
        M, G, Q = len(ids_M), len(count_G), int(count_G.max())
        rank_M = np.arange(M) - (np.cumsum(count_G) - count_G)[self.tree_M]
        column_M = self.used_G[self.tree_M] + rank_M
        self.visible_MC[np.arange(M), column_M] = True
        self.at_GC[self.tree_M, column_M] = self.depth_M
        self.used_G += count_G
        W = int(self.used_G.max())
        cell_M = self.tree_M * Q + rank_M
        grid = np.zeros(G * Q, np.int64)
        grid[cell_M] = np.arange(M)
        grid_PQ, query_at_PQ = grid.reshape(G, Q), self.depth_M[grid].reshape(G, Q)
        visible_PQW = self.visible_MC[grid, :W].reshape(G, Q, W)
        places = map(self._put, (grid_PQ, cell_M, visible_PQW, query_at_PQ, self.at_GC[:, :W]))
        layout = Layout(*places, self.store, self._put(self.tree_M * self.store.capacity + column_M))
        return self._forward(self._put(ids_M), self._put(self.depth_M), layout, np.arange(M), self.adapters, count_G)

    def _keep(self, alive_P: np.ndarray) -> None:
        """Drop the finished trees."""
        self.at_GC, self.used_G = self.at_GC[alive_P], self.used_G[alive_P]
        self.adapters = [self.adapters[g] for g in alive_P]
        self.tree_M = np.searchsorted(alive_P, self.tree_M)
        self.store.keep(self._put(alive_P))

    def _forward(self, ids_M, at_M, layout: Layout, keep_U, adapters_P, count_P) -> torch.Tensor:
        if self.slices is not None:
            self.slices.assign(adapters_P, count_P)
        return self.forward(ids_M, at_M, layout, self._put(keep_U))

    def _put(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)


class TreeEngine(PaddedEngine):
    """An engine that answers the requests of all adapters together, in batches of about `sample_tokens` tokens."""

    mixes = True
    _fused: FusedForward | None = None

    def _sample(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        model = self.model
        slices = None if model.peft is None else Slices()
        prompts = {key: number for number, key in enumerate(dict.fromkeys(map(prompt_key, requests)))}
        prompt_R = np.array([prompts[prompt_key(one)] for one in requests])
        room = int(np.bincount(prompt_R, [request.max_tokens for _, request in requests]).max())
        adapters, ids = zip(*prompts, strict=True)
        fused = (self._fused or FusedForward(model.net, model.dtype)) if model.ways.fused else None
        if fused and slices:  # the joined matrices of an adapters' base are made once
            self._fused, fused.slices = fused, slices
        with model.computing(), nullcontext() if fused or slices is None else mixing(model.net, slices):
            forward = fused or partial(tree_forward, model.net, model.net.config)
            decoder = TreeDecoder(forward, ids, adapters, slices, room, model.cost, model.device)
            return self.decoded(decoder, requests, prompt_R)
