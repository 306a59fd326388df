"""A model with wider heads says the same, whole or through an adapter; no engine is needed to see it."""

import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from mas_lab.backends.loading import load_base, load_policy
from mas_lab.backends.vllm.weights import Heads, save_for_vllm, tensors_for_vllm
from mas_lab.policy import PolicyError

IDS = torch.tensor([[4, 9, 10, 3, 7, 20, 33, 5, 61]])
SIZES = [32, 64, 80]


def logits(net):
    with torch.no_grad():
        return net.eval()(input_ids=IDS).logits


def test_a_pocket_model_with_wider_heads_is_the_same_model(tmp_path):
    policy = load_policy("plan_path")
    heads = Heads.fitting(policy.model.config, SIZES)
    assert (heads.size, heads.wide) == (24, 32)
    assert Heads.fitting(policy.model.config, [8, 24]) is None
    save_for_vllm(policy, tmp_path, heads)
    wide = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert wide.config.head_dim == 32
    ids = IDS % policy.model.config.vocab_size
    with torch.no_grad():
        torch.testing.assert_close(wide(input_ids=ids).logits, policy.model(input_ids=ids).logits, atol=2e-5, rtol=1e-5)
    loaded = dict(wide.named_parameters())
    sent = dict(tensors_for_vllm(policy, heads))
    assert sent.keys() == loaded.keys() and all(torch.equal(loaded[name], sent[name]) for name in sent)


def test_an_adapter_with_wider_heads_is_the_same_adapter(qwen3, tmp_path):
    base = load_base(qwen3, adapters=2, rank=4, lr=1e-2)
    policy = base.adapter("a")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    heads = Heads.fitting(policy.shared.net.config, SIZES)
    assert (heads.size, heads.wide) == (8, 32)
    shutil.copytree(qwen3, tmp_path / "base")
    heads.widen_model(tmp_path / "base")
    save_for_vllm(policy, tmp_path / "adapter", heads)
    wide = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    policy.model.set_adapter(policy.adapter)
    torch.testing.assert_close(logits(wide), logits(policy.model), atol=2e-5, rtol=1e-5)
    with policy.model.disable_adapter():
        assert (logits(policy.model) - logits(wide)).abs().max() > 0.1


def test_heads_that_cannot_be_widened_are_refused(model_dirs):
    with pytest.raises(PolicyError, match=r"takes attention heads of 4; a qwen3's here have 8"):
        Heads.fitting(load_policy(model_dirs["qwen3"]).model.config, [4])
    with pytest.raises(PolicyError, match="only a Qwen3's can be widened"):
        Heads.fitting(load_policy(model_dirs["llama"]).model.config, SIZES)
