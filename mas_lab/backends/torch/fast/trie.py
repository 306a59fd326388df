"""Store token sequences with common beginnings as trees, in which each distinct beginning is one node.

In a causal model, equal tokens after equal beginnings have equal results, so a node is computed once. Leaves out: the
attention mask (`tree_attention`), samples (`packing`) and candidates (`decoders`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from operator import eq

import numpy as np

ROOT = -1
"""The parent of a first token."""
WIDE = 2**32
"""More than the number of tokens in any vocabulary."""
MERGED = 128
"""Largest number of nodes of a tree of several sequences. The attention mask is square, and on a CPU it costs more than
its number of operations suggests. Among 64, 128, 256 and 512, this was the fastest for pocket models."""


class Trie:
    """A tree of tokens: node i has the token `ids[i]` and the parent `parents[i]`; a chain is a tree."""

    def __init__(self):
        self.ids: list[int] = []
        self.parents: list[int] = []
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
        return self._children[key]

    def walk(self, tokens: Iterable[int], start: int = ROOT) -> list[int]:
        """Return `start` and the node of each of the tokens after it."""
        return list(accumulate(tokens, self.child, initial=start))

    def is_chain(self) -> bool:
        """Return True if no node has two children."""
        return self.parents == list(range(ROOT, len(self) - 1))

    def visible(self) -> np.ndarray:
        """Return booleans (L, L), True if the row's node sees the column's node: an ancestor or itself."""
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


def merge_prefixes(sizes: Mapping[Sequence[int], int], cost: Callable[[int], float]) -> Iterator[list[Sequence[int]]]:
    """Yield groups of sequences that share a tree: they begin alike, and one tree costs no more than a tree for each.

    `sizes` maps a sequence to the number of nodes of its own tree, including completions after its end. Sequences are
    sorted by their tokens, so that each is most similar to the one before it.
    """
    together: list[Sequence[int]] = []
    size = 0
    for sequence in sorted(sizes):
        own = sizes[sequence]
        alike = takewhile(bool, map(eq, together[-1], sequence)) if together else ()
        known = sum(alike)
        merged = size + own - known
        if known and merged <= MERGED and cost(merged) <= cost(size) + cost(own):
            together, size = [*together, sequence], merged
            continue
        if together:
            yield together
        together, size = [sequence], own
    if together:
        yield together
