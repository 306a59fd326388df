"""Trees of samples: what shares a node, what is cut, and when a tree costs less (with `fast.tree_attention`)."""

import numpy as np
import torch
from transformers import GraniteConfig, GraniteForCausalLM

import mas_lab.backends.torch.fast.packing as packing_module
from mas_lab.backends.torch.fast import tree_attention
from mas_lab.backends.torch.fast.tree_attention import Trie, merge_prefixes
from mas_lab.policy import Sample

LINEAR, SQUARE = packing_module.Cost(linear=1.0, attention=0.0), packing_module.Cost(linear=0.0, attention=1.0)
FEW = [(4, 9, 6), (4, 9, 7, 5), (4, 9, 7), (8, 9, 6), (4, 8, 3, 3, 5)]


def test_auto_packs_short_completions_and_not_long_ones():
    cost = packing_module.Cost(linear=1000.0, attention=1.0)
    short = [Sample(range(4, 54), [5 + k, 6], [0.0] * 2, 1.0, 1.0, 1.0) for k in range(8)]
    long = [Sample([4], [5 + k] * 4000, [0.0] * 4000, 1.0, 1.0, 1.0) for k in range(8)]
    assert [len(packing_module.pack_prefix_trees(samples, "auto", cost, 4096)) for samples in (short, long)] == [1, 8]


def test_a_tree_above_the_budget_is_cut_between_completions():
    """Each part repeats the prompt. A sample that is too long on its own is a chain, which needs no mask."""
    cost = packing_module.Cost(linear=1000.0, attention=1.0)
    samples = [Sample(range(4, 54), [5 + k, *range(6, 15)], [0.0] * 10, 1.0, 1.0, 1.0) for k in range(8)]
    for budget, count in ((130, 1), (77, 3), (70, 4), (20, 8)):
        trees = packing_module.pack_prefix_trees(samples, "auto", cost, budget)
        assert len(trees) == count and all(len(tree) <= budget or len(tree.tokens) == 1 for tree in trees)
        assert sorted(np.concatenate([token for tree in trees for token in tree.tokens])) == list(range(80))
        chains = len(trees) == len(samples)
        layout = tree_attention.laid_out(trees, torch.from_numpy)[2]
        assert (layout.visible_PQW is None) == chains


def test_a_head_that_scales_its_logits_is_computed_from_hidden_states():
    torch.manual_seed(0)
    net = GraniteForCausalLM(GraniteConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                                           num_attention_heads=2, logits_scaling=3.0)).eval()  # fmt: skip
    ids = torch.arange(4)[None]
    hidden = net.base_model(input_ids=ids, use_cache=False)[0][0]
    torch.testing.assert_close(packing_module.head_of(net)(hidden), net(input_ids=ids).logits[0])
    assert net.base_model is net.model


def test_each_distinct_beginning_is_one_node():
    tree = Trie()
    assert tree.walk((4, 9, 7, 5)) == [-1, 0, 1, 2, 3] and tree.walk((4, 9, 6)) == [-1, 0, 1, 4]
    assert tree.walk((8,), start=2) == [2, 5] and tree.walk((8, 9)) == [-1, 6, 7], "another root"
    assert tree.ids == [4, 9, 7, 5, 6, 8, 8, 9] and tree.parents == [-1, 0, 1, 2, 1, 2, -1, 6]
    assert tree.positions == [0, 1, 2, 3, 2, 3, 0, 1]
    assert [np.flatnonzero(tree.visible()[node]).tolist() for node in (5, 7)] == [[0, 1, 2, 5], [6, 7]]


def test_prompts_share_a_tree_where_that_costs_less(monkeypatch):
    sizes = {prompt: len(prompt) + 2 for prompt in FEW}
    assert list(merge_prefixes(sizes, LINEAR)) == [[(4, 8, 3, 3, 5), (4, 9, 6), (4, 9, 7), (4, 9, 7, 5)], [(8, 9, 6)]]
    assert [len(one) for one in merge_prefixes(sizes, SQUARE)] == [1] * 5, "who sees whom is a square"
    monkeypatch.setattr(tree_attention, "MERGED", 12)
    assert [len(one) for one in merge_prefixes(sizes, LINEAR)] == [2, 2, 1]
    assert list(merge_prefixes({}, LINEAR)) == []
