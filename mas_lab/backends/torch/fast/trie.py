"""Sequences of tokens that begin alike, as trees in which each distinct beginning is one node.

What has the same tokens before it comes to the same in a causal model, so a node goes through it once. Leaves out: what
attends to what (`tree_attention`), samples (`packing`) and candidates (`decoders`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np

ROOT = -1
"""The parent of a first token."""
WIDE = 2**32
"""More than any vocabulary has words."""
MERGED = 128
"""Nodes of a tree of several sequences, at most: who sees whom is a square, and dearer on a CPU than by its operations.
Of 64, 128, 256 and 512 this was the quickest for pocket models."""


class Trie:
    """Node i has the token `ids[i]` and comes after its parent `parents[i]`; a chain is a tree."""

    def __init__(self):
        self.ids: list[int] = []
        self.parents: list[int] = []
        self._children: dict[int, int] = {}
        """By parent and token as one number: pairs, one a token, would keep the garbage collector busy."""

    def __len__(self) -> int:
        return len(self.ids)

    def child(self, parent: int, token: int) -> int:
        key = (parent + 1) * WIDE + token
        if key not in self._children:
            self._children[key] = len(self.ids)
            self.ids.append(token)
            self.parents.append(parent)
        return self._children[key]

    def walk(self, tokens: Iterable[int], start: int = ROOT) -> list[int]:
        """`start`, and the node of each of the tokens after it."""
        return list(accumulate(tokens, self.child, initial=start))

    def visible(self) -> np.ndarray:
        """(L, L) true where a node sees another: its ancestors and itself."""
        seen_LL = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                seen_LL[node, :node] = seen_LL[parent, :node]
        return seen_LL

    def positions(self) -> np.ndarray:
        at_L = np.zeros(len(self), np.int64)
        for node, parent in enumerate(self.parents):
            at_L[node] = at_L[parent] + 1 if parent >= 0 else 0
        return at_L


def alike(sizes: Mapping[Sequence[int], int], cost: Callable[[int], float]) -> Iterator[list[Sequence[int]]]:
    """Which sequences share a tree: those that begin alike, where that costs no more than a tree for each.

    `sizes`: sequence -> the nodes of a tree of its own, with what grows from its end. They are taken in the order of
    their tokens, in which each is the likest to the one before it.
    """
    together: list[Sequence[int]] = []
    size = 0
    for sequence in sorted(sizes):
        own = sizes[sequence]
        known = shared(together[-1], sequence) if together else 0
        merged = size + own - known
        if known and merged <= MERGED and cost(merged) <= cost(size) + cost(own):
            together, size = [*together, sequence], merged
            continue
        if together:
            yield together
        together, size = [sequence], own
    if together:
        yield together


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    unlike = (place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    return next(unlike, min(len(first), len(second)))
