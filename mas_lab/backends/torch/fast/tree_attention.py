"""Compute attention over a flat batch of trees; each distinct token prefix goes through the model once.

In a causal model, equal tokens after equal beginnings have equal results. So token sequences with common beginnings are
stored as a tree (`Trie`), in which each distinct beginning is one node. Candidates share their prompt, and often their
first tokens too. A batch is therefore flat, (1, M) tokens without padding. This attention function is registered with
transformers and lets each token see its own ancestors. It serves sampling (keys and values of earlier tokens come from
a `Store`) and training (they come from the batch itself). It works with any Hugging Face model that uses the attention
interface. The idea of one prompt for many completions is from Prefix Grouper, arXiv 2506.05433. Leaves out: trees of
samples (`packing`) and of candidates (`engine`), models with their own attention.

Shapes: M flat tokens; P trees; Q queries per tree and W keys per tree, padded; H heads; D head size.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from operator import eq

import numpy as np
import torch
from torch.autograd import forward_ad
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "mas_lab_tree"
ROOT = -1
"""The parent of a first token."""
WIDE = 2**32
"""More than the number of tokens in any vocabulary."""
MERGED = 128
"""Largest number of nodes of a tree of several sequences. The attention mask is square, and on a CPU it costs more than
its number of operations suggests. Among 64, 128, 256 and 512, this was the fastest for pocket models."""

SMALL_SCORES = 2**22
"""Largest number of a layer's scores that an update on a CPU keeps. Their backward pass then takes a third of the time
of the fused kernel, which computes them again."""


class Trie:
    """A tree of tokens: node i has the token `ids[i]`, the parent `parents[i]` and the position `positions[i]`."""

    def __init__(self):
        self.ids: list[int] = []
        self.parents: list[int] = []
        self.positions: list[int] = []
        self._children: dict[int, int] = {}
        """Children by parent and token, joined to one number. Tuples as keys would slow down the garbage collector."""

    def __len__(self) -> int:
        return len(self.ids)

    def child(self, parent: int, token: int) -> int:
        """Return the node of `token` after `parent`; make it if it is new."""
        key = (parent + 1) * WIDE + token
        if key not in self._children:
            self._children[key] = len(self.ids)
            self.ids.append(token)
            self.parents.append(parent)
            self.positions.append(0 if parent == ROOT else self.positions[parent] + 1)
        return self._children[key]

    def walk(self, tokens: Iterable[int], start: int = ROOT) -> list[int]:
        """Return `start` and the node of each of the tokens after it."""
        return list(accumulate(tokens, self.child, initial=start))

    def visible(self) -> np.ndarray:
        """Return booleans (L, L), True if the row's node sees the column's node: an ancestor or itself."""
        visible_LL = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                visible_LL[node, :node] = visible_LL[parent, :node]
        return visible_LL


def merge_prefixes(sizes: Mapping[Sequence[int], int], cost: Callable[[int], float]) -> Iterator[list[Sequence[int]]]:
    """Yield groups of sequences that share a tree: they begin alike, and one tree costs no more than a tree for each.

    `sizes` maps a sequence to the number of nodes of its own tree, including completions after its end. Sequences are
    sorted by their tokens, so that each is most similar to the one before it.
    """
    group: list[Sequence[int]] = []
    size = 0
    for sequence in sorted(sizes):
        shared = sum(takewhile(bool, map(eq, group[-1], sequence))) if group else 0
        merged = size + sizes[sequence] - shared
        if shared and merged <= MERGED and cost(merged) <= cost(size) + cost(sizes[sequence]):
            group, size = [*group, sequence], merged
            continue
        if group:
            yield group
        group, size = [sequence], sizes[sequence]
    if group:
        yield group


LEVEL = threading.RLock()
_thread = threading.local()


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let this thread compute with dual numbers; other threads wait for it, also if they use another model."""
    with LEVEL, forward_ad.dual_level():
        _thread.is_dual = True
        try:
            yield
        finally:
            _thread.is_dual = False


def in_forward_mode() -> bool:
    """Return True if this thread computes with dual numbers; fused kernels have no forward-mode derivative."""
    return getattr(_thread, "is_dual", False)


class Store:
    """The keys and values of all tokens so far, per layer (P * capacity, H, D)."""

    def __init__(self, trees: int, capacity: int):
        self.trees, self.capacity = trees, capacity
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def write(self, layer: int, key_MHD: torch.Tensor, value_MHD: torch.Tensor, slot_M: torch.Tensor):
        """Write the new tokens to their slots; return all keys and values as (P, capacity, H, D)."""
        if layer not in self._layers:
            rows = self.trees * self.capacity
            self._layers[layer] = tuple(new.new_zeros(rows, *new.shape[1:]) for new in (key_MHD, value_MHD))
        stored = self._layers[layer]
        for old, new in zip(stored, (key_MHD, value_MHD), strict=True):
            old.index_copy_(0, slot_M, new)
        return tuple(old.view(self.trees, self.capacity, *old.shape[1:]) for old in stored)

    def keep(self, trees_P: torch.Tensor) -> None:
        """Keep only `trees_P`."""
        for layer, stored in self._layers.items():
            trees = (old.unflatten(0, (self.trees, self.capacity)).index_select(0, trees_P) for old in stored)
            self._layers[layer] = tuple(tree.flatten(0, 1) for tree in trees)
        self.trees = len(trees_P)


@dataclass
class Layout:
    """The places of the M flat tokens in the (P, Q) grid of queries, and the keys that each query sees."""

    grid_PQ: torch.Tensor
    """Flat token of each cell; cells without a token hold 0."""
    cell_M: torch.Tensor
    """Cell of each flat token, in the flattened grid."""
    visible_PQW: torch.Tensor | None
    """True if the key is the query's ancestor or the query itself. A cell without a token sees an arbitrary key.
    `None`: the trees are chains, so a token sees all earlier cells and its own."""
    query_at_PQ: torch.Tensor
    """Position of each query in its sequence; sliding windows need it."""
    key_at_PW: torch.Tensor
    """Position of each key in its sequence."""
    store: Store | None = None
    """Keys and values of earlier tokens. `None`: the tokens only see each other."""
    slot_S: torch.Tensor | None = None
    """With a store: the slots that are filled, tree * capacity + column."""
    source_S: torch.Tensor | None = None
    """With a store: the flat token of each filled slot; the tokens then see each other. `None`: all tokens fill the
    slots in their order, and they see the content of the store."""
    key_PW: torch.Tensor | None = None
    """Flat token of each key, if the tokens only see each other. `None`: the keys are the cells of the grid."""
    _masks: dict = field(default_factory=dict)

    def keys_values(self, layer: int, key_MHD: torch.Tensor, value_MHD: torch.Tensor):
        """Return the keys and values that the queries may see, each (P, W, H, D)."""
        if self.source_S is not None:
            self.store.write(layer, *(new.index_select(0, self.source_S) for new in (key_MHD, value_MHD)), self.slot_S)
        if self.store is None or self.source_S is not None:
            keys_PW = self.grid_PQ if self.key_PW is None else self.key_PW
            return tuple(new.index_select(0, keys_PW.flatten()).unflatten(0, keys_PW.shape)
                         for new in (key_MHD, value_MHD))  # fmt: skip
        width = self.visible_PQW.shape[2]
        return tuple(stored[:, :width] for stored in self.store.write(layer, key_MHD, value_MHD, self.slot_S))

    def mask(self, repeats: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Return the mask (P, 1, repeats * Q, W), 0 if visible, else -inf; it is built once per forward pass."""
        if (repeats, window, dtype) not in self._masks:
            visible = self.visible_PQW
            if visible is None:
                visible = torch.ones(*self.grid_PQ.shape, self.grid_PQ.shape[1], dtype=torch.bool).tril()
                visible = visible.to(self.grid_PQ.device)
            if window is not None:
                visible = visible & (self.query_at_PQ[:, :, None] - self.key_at_PW[:, None, :] < window)
            mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
            self._masks[repeats, window, dtype] = mask.repeat(1, repeats, 1).unsqueeze(1)
        return self._masks[repeats, window, dtype]


def laid_out(
    tries: Sequence[Trie], put: Callable[[np.ndarray], torch.Tensor], **stored
) -> tuple[torch.Tensor, torch.Tensor, Layout]:
    """Return (ids_M, at_M, layout) of tries whose tokens see each other.

    The nodes of the tries are the flat tokens, one trie after the other. `stored` holds the layout's store and slots.
    """
    sizes_P = np.array([len(trie) for trie in tries])
    real_PQ = np.arange(sizes_P.max()) < sizes_P[:, None]
    grid_PQ = np.where(real_PQ, (np.cumsum(sizes_P) - sizes_P)[:, None] + np.arange(real_PQ.shape[1]), 0)
    at_PQ = np.zeros(real_PQ.shape, np.int64)
    at_PQ[real_PQ] = np.concatenate([trie.positions for trie in tries])
    visible = None
    if any(trie.parents != list(range(ROOT, len(trie) - 1)) for trie in tries):  # a node has two children
        visible_PQQ = np.zeros((*real_PQ.shape, real_PQ.shape[1]), bool)
        visible_PQQ[:, :, 0] = True
        for visible_QQ, trie in zip(visible_PQQ, tries, strict=True):
            visible_QQ[: len(trie), : len(trie)] = trie.visible()
        visible = put(visible_PQQ)
    at = put(at_PQ)
    layout = Layout(put(grid_PQ), put(np.flatnonzero(real_PQ)), visible, at, at, **stored)
    return put(np.concatenate([np.asarray(trie.ids) for trie in tries])), put(at_PQ[real_PQ]), layout


def by_branches(layout: Layout, tries: Sequence[Trie], put: Callable[[np.ndarray], torch.Tensor]) -> Layout:
    """Return a layout with a row for each branch of the tries instead of one for each trie, if its scores are fewer.

    A branch is a chain of nodes from a fork to the next. Its keys are its ancestors and its own nodes. Candidates then
    do not compute scores for each other's tokens, which are masked in the layout by tries.
    """
    branches, paths, start = [], [], 0
    for trie in tries:
        parents = np.array(trie.parents)
        forks = np.flatnonzero(np.bincount(parents + 1, minlength=len(trie) + 1) > 1) - 1
        first = np.flatnonzero((parents != np.arange(-1, len(trie) - 1)) | np.isin(parents, forks))
        ending: dict[int, np.ndarray] = {ROOT: np.empty(0, int)}  # a branch begins where another one ends
        for own in np.split(np.arange(len(trie)), first[first > 0]):
            ending[own[-1]] = np.append(ending[parents[own[0]]], own)
            branches.append(start + own)
            paths.append(start + ending[own[-1]])
        start += len(trie)
    sizes_P, widths_P = (np.array(list(map(len, rows))) for rows in (branches, paths))
    P, Q, W = len(branches), sizes_P.max(), widths_P.max()
    if layout.grid_PQ.shape[0] * layout.grid_PQ.shape[1] ** 2 <= P * Q * W:
        return layout
    real_PQ = np.arange(Q) < sizes_P[:, None]
    grid_PQ, key_PW = np.zeros((P, Q), int), np.zeros((P, W), int)
    grid_PQ[real_PQ], key_PW[np.arange(W) < widths_P[:, None]] = np.concatenate(branches), np.concatenate(paths)
    query_at_PQ = np.where(real_PQ, (widths_P - sizes_P)[:, None] + np.arange(Q), 0)
    visible_PQW = np.arange(W) <= query_at_PQ[:, :, None]
    cell_M = np.flatnonzero(real_PQ)  # the branches hold the flat tokens in their order
    return Layout(
        *map(put, (grid_PQ, cell_M, visible_PQW, query_at_PQ, np.tile(np.arange(W), (P, 1)))), key_PW=put(key_PW)
    )


def tree_attention(
    module, query, key, value, attention_mask, scaling=None, softcap=None, sliding_window=None, tree=None, **_
):
    """Return the attention output (1, M, H, D) of queries (1, H, M, D), and `None` for the attention weights.

    Heads that share a key (grouped queries) are folded into the query axis, so keys are not repeated. Chains need no
    mask, which would be as large as the square of their length. The signature is that of the attention functions of
    transformers.
    """
    query, key, value = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
    key, value = tree.keys_values(module.layer_idx, key, value)
    (P, Q), H, D = tree.grid_PQ.shape, key.shape[2], query.shape[2]
    R = query.shape[1] // H
    query = query.index_select(0, tree.grid_PQ.flatten()).view(P, Q, H, R, D)
    if tree.visible_PQW is None and sliding_window is None and softcap is None and not in_forward_mode():
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query.flatten(2, 3).transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
            is_causal=True, scale=scaling, enable_gqa=R > 1,
        )  # fmt: skip
        return mixed.transpose(1, 2).flatten(0, 1).index_select(0, tree.cell_M).unsqueeze(0), None
    query = query.permute(0, 2, 3, 1, 4).reshape(P, H, R * Q, D)
    mask = tree.mask(R, sliding_window, query.dtype)
    key, value = key.transpose(1, 2), value.transpose(1, 2)
    is_small = tree.key_PW is not None and not query.is_cuda and mask.numel() * H <= SMALL_SCORES
    if softcap is not None or in_forward_mode() or is_small:
        mixed = _attend_plainly(query, key, value, mask, scaling, softcap)
    else:
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    mixed = mixed.view(P, H, R, Q, -1).permute(0, 3, 1, 2, 4).reshape(P * Q, H * R, -1)
    return mixed.index_select(0, tree.cell_M).unsqueeze(0), None


def _attend_plainly(query, key, value, mask, scaling, softcap):
    """Compute attention with one operation after the other.

    Fused kernels lack a soft cap on the scores and forward-mode derivatives. For branches on a CPU they are slower.
    """
    scores = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    with torch.autocast(query.device.type, enabled=False):  # else a copy in float32, which the kernel does not need
        return torch.softmax(scores + mask, -1).to(value.dtype) @ value


ALL_ATTENTION_FUNCTIONS.register(NAME, tree_attention)


@contextmanager
def attending(config, how: str = NAME) -> Iterator[None]:
    """Make models with this config use the attention function `how` inside the `with` block."""
    before = config._attn_implementation
    config._attn_implementation = how
    try:
        yield
    finally:
        config._attn_implementation = before


def forward(net: Callable, config, ids_M, at_M, layout: Layout, keep_U) -> torch.Tensor:
    """Return the logits (U, V) of the flat tokens `keep_U`; `at_M` are the positions of all tokens."""
    with attending(config):
        answer = net(
            input_ids=ids_M[None], position_ids=at_M[None], use_cache=False, logits_to_keep=keep_U, tree=layout
        )
    return answer.logits.squeeze(0)  # the gradient of an index would fill a buffer of this size


def hidden(net, ids_M, at_M, layout: Layout) -> torch.Tensor:
    """Return the last hidden states (M, h), before the output embedding."""
    with attending(net.config):
        states = net.base_model(input_ids=ids_M[None], position_ids=at_M[None], use_cache=False, tree=layout)[0]
    return states.squeeze(0)
