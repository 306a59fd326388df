"""What begins alike goes through the model once, in the update and in the sampler, and comes to the same."""

import numpy as np

from mas_lab.backends.torch.fast import trie
from mas_lab.backends.torch.fast.packing import Cost
from mas_lab.backends.torch.fast.trie import Trie, merge_prefixes

LINEAR, SQUARE = Cost(linear=1.0, attention=0.0), Cost(linear=0.0, attention=1.0)
FEW = [(4, 9, 6), (4, 9, 7, 5), (4, 9, 7), (8, 9, 6), (4, 8, 3, 3, 5)]


def test_each_distinct_beginning_is_one_node():
    tree = Trie()
    assert tree.walk((4, 9, 7, 5)) == [-1, 0, 1, 2, 3] and tree.walk((4, 9, 6)) == [-1, 0, 1, 4]
    assert tree.walk((8,), start=2) == [2, 5] and tree.walk((8, 9)) == [-1, 6, 7], "another root"
    assert tree.ids == [4, 9, 7, 5, 6, 8, 8, 9] and tree.parents == [-1, 0, 1, 2, 1, 2, -1, 6]
    assert tree.positions().tolist() == [0, 1, 2, 3, 2, 3, 0, 1]
    assert [np.flatnonzero(tree.visible()[node]).tolist() for node in (5, 7)] == [[0, 1, 2, 5], [6, 7]]


def test_prompts_share_a_tree_where_that_costs_less(monkeypatch):
    sizes = {prompt: len(prompt) + 2 for prompt in FEW}
    assert list(merge_prefixes(sizes, LINEAR)) == [[(4, 8, 3, 3, 5), (4, 9, 6), (4, 9, 7), (4, 9, 7, 5)], [(8, 9, 6)]]
    assert [len(one) for one in merge_prefixes(sizes, SQUARE)] == [1] * 5, "who sees whom is a square"
    monkeypatch.setattr(trie, "MERGED", 12)
    assert [len(one) for one in merge_prefixes(sizes, LINEAR)] == [2, 2, 1]
    assert list(merge_prefixes({}, LINEAR)) == []
