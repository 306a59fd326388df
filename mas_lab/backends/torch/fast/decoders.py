"""Compute the logits of the live nodes of a growing batch: first after each prompt, then after each new child.

A node is a distinct (adapter, prompt, beginning of a completion). Leaves out: the draw of tokens (`engine`), and models
whose attention cannot follow trees (`mas_lab.backends.torch.padded`).

`forward` runs the model, `room` is the maximal number of tokens of all candidates of one prompt, and `cost` maps the
length of a pass to operations.
Shapes: G prompts; M live nodes; C columns of keys per prompt; V vocabulary.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from mas_lab.backends.torch.fast.mixed_lora import Slices
from mas_lab.backends.torch.fast.packing import Cost
from mas_lab.backends.torch.fast.tree_attention import Layout, Store, laid_out
from mas_lab.backends.torch.fast.trie import Trie, merge_prefixes

Forward = Callable[[torch.Tensor, torch.Tensor, Layout, torch.Tensor], torch.Tensor]
"""A forward pass from tokens (M,), positions (M,), layout and the tokens to keep (U,) to logits (U, V)."""


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
        kept = {"slot_S": self._put(np.concatenate(slots)), "source_S": self._put(np.concatenate(nodes_G))}
        ids_M, at_M, layout = laid_out(tries, self._put, store=self.store, **kept)
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
        layout = Layout(
            grid_PQ=self._put(grid.reshape(G, Q)),
            cell_M=self._put(cell_M),
            visible_PQW=self._put(self.visible_MC[grid, :W].reshape(G, Q, W)),
            query_at_PQ=self._put(self.depth_M[grid].reshape(G, Q)),
            key_at_PW=self._put(self.at_GC[:, :W]),
            store=self.store,
            slot_S=self._put(self.tree_M * self.store.capacity + column_M),
        )
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
