"""Trees of samples: what shares a node, what is cut, and when a tree costs less; lean norms and the forward pass in few
operations are the model's own, and other models keep theirs."""

import numpy as np
import pytest
import torch
from backends.drawn import gap, requests
from torch.autograd import forward_ad
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

import mas_lab.backends.torch.fast.packing as packing_module
from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.fast import tree_attention
from mas_lab.backends.torch.fast.fused import FusedForward, lean_norms
from mas_lab.backends.torch.fast.tree_attention import Trie, forward_mode, merge_prefixes
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


def test_prompts_share_a_tree_where_that_costs_less(monkeypatch):
    sizes = {prompt: len(prompt) + 2 for prompt in FEW}
    assert list(merge_prefixes(sizes, LINEAR)) == [[(4, 8, 3, 3, 5), (4, 9, 6), (4, 9, 7), (4, 9, 7, 5)], [(8, 9, 6)]]
    assert [len(one) for one in merge_prefixes(sizes, SQUARE)] == [1] * 5, "who sees whom is a square"
    monkeypatch.setattr(tree_attention, "MERGED", 12)
    assert [len(one) for one in merge_prefixes(sizes, LINEAR)] == [2, 2, 1]
    assert list(merge_prefixes({}, LINEAR)) == []


SIZES = {"vocab_size": 16, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 6}  # fmt: skip
WINDOW = {"sliding_window": 3, "use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}


@pytest.mark.parametrize("config", [
    Qwen3Config(**SIZES), Qwen3Config(**SIZES, **WINDOW),
    LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
])  # fmt: skip
def test_a_row_for_each_branch_and_fewer_operations_give_the_same_logits(config):
    torch.manual_seed(0)
    net = AutoModelForCausalLM.from_config(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    texts = [[1, 2, 3, 4, 5, 6], [1, 2, 7, 8], [1, 2, 7, 8, 9, 9, 9], [1, 2, 3, 4, 5, 6, 1]], [[9, 3]], [[1], [2, 4, 4]]
    tries = [Trie() for _ in texts]
    for trie, branches in zip(tries, texts, strict=True):
        for branch in branches:
            trie.walk(branch)
    put = lambda values: torch.from_numpy(np.ascontiguousarray(values))  # noqa: E731
    ids_M, at_M, layout = tree_attention.laid_out(tries, put)
    branched, keep_U = tree_attention.by_branches(layout, tries, put), torch.arange(len(ids_M))
    assert branched.key_PW is not None and branched.grid_PQ.shape == (7, 5)
    with torch.inference_mode():
        own, found = (tree_attention.forward(net, config, ids_M, at_M, one, keep_U) for one in (layout, branched))
        torch.testing.assert_close(found, own, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(FusedForward(net)(ids_M, at_M, layout, keep_U), own, atol=1e-5, rtol=1e-5)


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


@pytest.mark.parametrize("kind, fuses", [("qwen3", True), ("gemma2", False)])
def test_other_models_and_adapters_in_32_bits_keep_their_own(model_dirs, kind, fuses):
    assert load_policy(model_dirs[kind], lora=2, dtype="bfloat16").shared.ways.fused == fuses
    assert not load_policy(model_dirs[kind], lora=2).shared.ways.fused


def test_it_uses_the_weights_of_now(qwen3, monkeypatch):
    policy, made = load_policy(qwen3), []
    init = FusedForward.__init__
    monkeypatch.setattr(FusedForward, "__init__", lambda self, net, dtype: made.append(net) or init(self, net, dtype))
    for _ in range(2):
        asked = requests(temperatures=(1.0,))
        assert gap(policy, asked, policy.sample(asked)) < 1e-4 and policy.shared.net in made
        with torch.no_grad():
            for parameter in policy.parameters.values():
                parameter.mul_(1.5)


def test_other_norms_and_forward_mode_keep_their_own():
    """What lean norms compute, and their gradients, are compared in `test_architectures`."""
    configs = Qwen3Config(**SIZES), Gemma2Config(**SIZES)
    net, gemma = (AutoModelForCausalLM.from_config(config) for config in configs)
    lean_norms(net)
    lean_norms(gemma)
    assert "forward" in vars(net.model.norm) and "forward" not in vars(gemma.model.norm)
    layer, plain, x = net.model.norm, Qwen3RMSNorm(12, eps=net.config.rms_norm_eps), torch.randn(3, 12)
    torch.nn.init.normal_(layer.weight)
    plain.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), plain(x))
    with forward_mode():
        ours, own = (forward_ad.unpack_dual(one(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
                     for one in (layer, plain))  # fmt: skip
        torch.testing.assert_close(ours, own)
    torch.testing.assert_close(layer.bfloat16()(x.bfloat16()), plain.bfloat16()(x.bfloat16()))
