"""What begins alike goes through the model once, in the update and in the sampler, and comes to the same."""

import numpy as np
import pytest
import torch
from backends.drawn import drawn, old_logprobs

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy
from mas_lab.backends.torch.fast import decoders, packing, trie
from mas_lab.backends.torch.fast.packing import Cost
from mas_lab.backends.torch.fast.trie import Trie, merge_prefixes, shared
from mas_lab.policy import Request

LINEAR, SQUARE = Cost(linear=1.0, attention=0.0), Cost(linear=0.0, attention=1.0)
FEW = [(4, 9, 6), (4, 9, 7, 5), (4, 9, 7), (8, 9, 6), (4, 8, 3, 3, 5)]
COMMON = (4, 9, 6, 7, 5, 8, 3, 10, 11, 12, 9, 9, 5, 4)
PROMPTS = [(*COMMON, 6), (*COMMON, 7, 5), (*COMMON, 7), (8, 9, 6), (*COMMON[:9], 3, 3, 5)]


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
    assert [shared(*pair) for pair in (((), (1,)), ((2,), (1,)), ((1, 2), (1, 2)))] == [0, 0, 2]


def asked(temperature=1.0):
    return [Request(prompt, 5, temperature, seed) for seed in range(4) for prompt in PROMPTS]


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_the_update_is_the_same_with_and_without(model_dirs, kind, monkeypatch):
    found = []
    for merged in (trie.MERGED, 0):
        monkeypatch.setattr(trie, "MERGED", merged)
        policy = load_policy(model_dirs[kind], packing="packed")
        samples = drawn(policy, asked()) + drawn(policy, asked(0.5))
        trees = packing.pack_prefix_trees(samples, "packed", policy.shared.cost)
        tokens = policy.forward_backward(samples, lab.clipped(0.2))
        assert (tokens.logprobs_N - old_logprobs(samples)).abs().max() < 1e-5  # sampled = trained, whatever is shared
        found.append((len(trees), sum(map(len, trees)), tokens, dict(policy.gradients())))
    (few, short, tokens, gradients), (many, long, plain, expected) = found
    assert few < many == 2 * len(PROMPTS) and short < long, "two temperatures share no tree"
    torch.testing.assert_close(tokens.logprobs_N, plain.logprobs_N, atol=1e-5, rtol=0)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4)


def test_the_sampler_draws_the_same_with_and_without_from_one_model_and_from_adapters(qwen3, monkeypatch):
    base = load_base(qwen3, adapters=2, rank=4, seed=3)
    first, second = base.adapter("first"), base.adapter("second")
    for policy in (first, second):
        with torch.no_grad():
            for name, parameter in policy.parameters.items():
                parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
    widths, found = [], []
    laid_out = decoders.laid_out
    monkeypatch.setattr(decoders, "laid_out", lambda tries, *rest, **more: widths.append(len(tries))
                        or laid_out(tries, *rest, **more))  # fmt: skip
    for merged in (trie.MERGED, 0):
        monkeypatch.setattr(trie, "MERGED", merged)
        tickets = first.engine.submit(first, asked()) + second.engine.submit(second, asked())
        answers = dict(first.engine.ready())
        found.append([answers[ticket] for ticket in tickets])
    assert widths[0] < widths[1] == 2 * len(PROMPTS)
    for one, other in zip(*found, strict=True):
        assert one.ids == other.ids and one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
