"""What begins alike goes through the model once, in the update and in the sampler, and comes to the same."""

import numpy as np
import pytest
import torch

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy
from mas_lab.backends.torch.fast import decoders, packing, trie
from mas_lab.backends.torch.fast.packing import Cost
from mas_lab.backends.torch.fast.trie import Trie, merge_prefixes, shared
from mas_lab.policy import Request, Sample

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
    assert np.flatnonzero(tree.visible()[5]).tolist() == [0, 1, 2, 5]
    assert np.flatnonzero(tree.visible()[7]).tolist() == [6, 7]


def test_prompts_share_a_tree_where_that_costs_less(monkeypatch):
    sizes = {prompt: len(prompt) + 2 for prompt in FEW}
    assert list(merge_prefixes(sizes, LINEAR)) == [[(4, 8, 3, 3, 5), (4, 9, 6), (4, 9, 7), (4, 9, 7, 5)], [(8, 9, 6)]]
    assert [len(one) for one in merge_prefixes(sizes, SQUARE)] == [1] * 5, "who sees whom is a square"
    monkeypatch.setattr(trie, "MERGED", 12)
    assert [len(one) for one in merge_prefixes(sizes, LINEAR)] == [2, 2, 1]
    assert (
        list(merge_prefixes({}, LINEAR)) == []
        and shared((), (1,)) == 0 == shared((2,), (1,))
        and shared((1, 2), (1, 2)) == 2
    )


def samples(policy, temperature=1.0):
    requests = [Request(prompt, 5, temperature, seed) for seed in range(4) for prompt in PROMPTS]
    said = policy.sample(requests)
    return [Sample(r.prompt_ids, c.ids, c.logprobs, temperature, (-1.0) ** i, 0.1 + i / 50)
            for i, (r, c) in enumerate(zip(requests, said, strict=True))]  # fmt: skip


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_the_update_is_the_same_with_and_without(model_dirs, kind, monkeypatch):
    found = []
    for merged in (trie.MERGED, 0):
        monkeypatch.setattr(trie, "MERGED", merged)
        policy = load_policy(model_dirs[kind], packing="packed")
        said = samples(policy) + samples(policy, 0.5)
        trees = packing.pack_prefix_trees(said, "packed", policy.shared.cost)
        tokens = policy.forward_backward(said, lab.clipped(0.2))
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
    requests = [Request(prompt, 6, 1.0, seed) for prompt in PROMPTS for seed in range(3)]
    widths = []
    laid_out = decoders.laid_out
    monkeypatch.setattr(decoders, "laid_out", lambda tries, *rest, **more: widths.append(len(tries))
                        or laid_out(tries, *rest, **more))  # fmt: skip
    found = []
    for merged in (trie.MERGED, 0):
        monkeypatch.setattr(trie, "MERGED", merged)
        tickets = first.engine.submit(first, requests) + second.engine.submit(second, requests)
        answers = dict(first.engine.ready())
        found.append([answers[ticket] for ticket in tickets])
    assert widths[0] < widths[1] == 2 * len(PROMPTS)
    assert [one.ids for one in found[0]] == [one.ids for one in found[1]]
    for one, other in zip(*found, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_what_is_kept_of_shared_beginnings_serves_the_update_too(qwen3):
    """Sampled and trained log-probabilities agree, whatever shares a tree with what."""
    policy = load_policy(qwen3)
    said = samples(policy)
    logprobs = policy.logprobs(said).detach().numpy()
    assert logprobs == pytest.approx(np.concatenate([sample.logprobs for sample in said]), abs=1e-5)
    assert len(packing.pack_prefix_trees(said, "auto", policy.shared.cost)) < len(PROMPTS)
