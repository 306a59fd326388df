"""The lean RMSNorm and the forward pass in few operations are the model's own, and other models keep theirs."""

import pytest
import torch
from backends.drawn import gap, requests
from torch.autograd import forward_ad
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.fast.fused import FusedForward, lean_norms
from mas_lab.backends.torch.fast.tree_attention import Trie, forward, forward_mode, laid_out

SIZES = {"vocab_size": 16, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 6}  # fmt: skip
WINDOW = {"sliding_window": 3, "use_sliding_window": True, "layer_types": ["full_attention", "sliding_attention"]}


@pytest.mark.parametrize(
    "make, config",
    [
        (Qwen3ForCausalLM, Qwen3Config(**SIZES)),
        (Qwen3ForCausalLM, Qwen3Config(**SIZES, **WINDOW)),
        (Qwen2ForCausalLM, Qwen2Config(**{**SIZES, "hidden_size": 16, "head_dim": 4})),
        (LlamaForCausalLM, LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    ],
)
def test_its_logits_are_the_models_own(make, config):
    torch.manual_seed(0)
    net = make(config).eval()
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tries = [Trie(), Trie()]
    for trie, branches in zip(tries, ([[1, 2, 3, 4, 5, 6], [1, 2, 7, 8]], [[9, 3]]), strict=True):
        for branch in branches:
            trie.walk(branch)
    ids_M, at_M, layout = laid_out(tries, torch.from_numpy)
    keep_U = torch.arange(len(ids_M))
    with torch.inference_mode():
        own = forward(net, net.config, ids_M, at_M, layout, keep_U)
        torch.testing.assert_close(FusedForward(net)(ids_M, at_M, layout, keep_U), own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind, fuses", [("qwen3", True), ("llama", True), ("gpt2", False), ("gemma2", False)])
def test_other_models_keep_their_own(model_dirs, kind, fuses):
    assert load_policy(model_dirs[kind]).shared.ways.fused == fuses
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


# RMSNorm


def norm(shape, lean):
    layer = Qwen3RMSNorm(shape[-1], eps=1e-3)
    torch.manual_seed(0)
    torch.nn.init.normal_(layer.weight)
    x = torch.randn(shape, requires_grad=True)
    assert not lean or lean_norms(layer) == 1
    return layer, x


@pytest.mark.parametrize("shape", [(5, 16), (1, 7, 16), (1, 6, 4, 8)])
def test_it_is_the_models_own(shape):
    found = []
    for lean in (False, True):
        layer, x = norm(shape, lean)
        y = layer(x)
        y.backward(torch.linspace(-1, 1, y.numel()).view(shape))
        found.append((y.detach(), x.grad, layer.weight.grad))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_other_norms_and_forward_mode_keep_their_own():
    (layer, x), (plain, _) = norm((3, 8), lean=True), norm((3, 8), lean=False)
    with forward_mode():
        ours, own = (forward_ad.unpack_dual(one(forward_ad.make_dual(x.detach(), torch.ones_like(x)))).tangent
                     for one in (layer, plain))  # fmt: skip
        torch.testing.assert_close(ours, own)
    gemma = Gemma2RMSNorm(8)
    torch.nn.init.normal_(gemma.weight)
    assert lean_norms(gemma) == 0 and "forward" not in vars(gemma)
    assert lean_norms(Qwen3RMSNorm(8).bfloat16()) == 0
    assert lean_norms(torch.nn.LayerNorm(8)) == 0
