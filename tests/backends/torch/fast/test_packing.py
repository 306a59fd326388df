"""Trees of samples: what shares a node, what is cut, and when a tree costs less (with `fast.tree_attention`)."""

import numpy as np
import pytest
import torch
from transformers import GraniteConfig, GraniteForCausalLM, Qwen3Config, Qwen3ForCausalLM

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


@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
def test_a_row_for_each_branch_gives_the_same_logits(kind):
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=16, hidden_size=12, intermediate_size=20, num_hidden_layers=2, head_dim=6,
                         num_attention_heads=4, num_key_value_heads=2, layer_types=["full_attention", kind],
                         sliding_window=3, use_sliding_window=True)  # fmt: skip
    net = Qwen3ForCausalLM(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    texts = [[1, 2, 3, 4, 5, 6], [1, 2, 7, 8], [1, 2, 7, 8, 9, 9, 9], [1, 2, 3, 4, 5, 6, 1]], [[9, 3]], [[1], [2, 4, 4]]
    tries = [Trie() for _ in texts]
    for trie, branches in zip(tries, texts, strict=True):
        for branch in branches:
            trie.walk(branch)
    put = lambda values: torch.from_numpy(np.ascontiguousarray(values))  # noqa: E731
    ids_M, at_M, layout = tree_attention.laid_out(tries, put)
    branched = tree_attention.by_branches(layout, tries, put)
    assert branched.key_PW is not None and branched.grid_PQ.shape == (7, 5)
    logits = [
        tree_attention.forward(net, net.config, ids_M, at_M, one, torch.arange(len(ids_M)))
        for one in (layout, branched)
    ]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)


def test_tokens_are_picked_from_16_bits_a_few_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(packing_module, "CACHED_LOGITS", 3 * 50)
    torch.manual_seed(0)
    logits_UV, temperature_U = (3 * torch.randn(10, 50)).bfloat16().requires_grad_(), torch.rand(10) + 0.5
    from_N, id_N, slope_N = torch.tensor([9, 2, 2, 2, 0, 7]), torch.tensor([4, 5, 5, 6, 0, 1]), torch.randn(6)
    known_UV = logits_UV.detach().float().requires_grad_()
    found = [packing_module._pick(one, temperature_U, from_N, id_N, False) for one in (logits_UV, known_UV)]
    for values in zip(*found, strict=True):
        torch.testing.assert_close(*values)
    for logprobs_N, _ in found:
        (logprobs_N * slope_N).sum().backward()
    torch.testing.assert_close(logits_UV.grad.float(), known_UV.grad, atol=1e-3, rtol=1e-2)
