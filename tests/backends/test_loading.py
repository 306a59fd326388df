"""Rank and learning rate of each adapter, the rate of a model for which none is named, and SGD; model folders that are
broken are refused with the file and the remedy."""

import json
import shutil
from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from backends.drawn import drawn, requests, same, step, weights

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy, restore_policies
from mas_lab.backends.torch.source import Source
from mas_lab.paths import data_dir
from mas_lab.policy import PolicyError


def ranks(policy) -> set[int]:
    return {p.shape[0] for name, p in policy.parameters.items() if "lora_A" in name}


def test_each_adapter_has_its_own_rank_and_rate_and_keeps_them(qwen3, tmp_path):
    base = load_base(qwen3, adapters=3, rank=8, lr=1e-2)
    verifier = base.adapter("verifier", rank=2, lr=5e-3)
    policies = {"solver": base.adapter("solver"), "verifier": verifier, "fixer": base.adapter("fixer", 4)}
    assert [ranks(policy) for policy in policies.values()] == [{8}, {2}, {4}]
    assert [policy.lr for policy in policies.values()] == [1e-2, 5e-3, 1e-2]
    for name, policy in policies.items():
        before = weights(policy)
        step(policy, loss=lab.clipped(0.2))
        moved = max((p - before[key]).abs().max().item() for key, p in policy.parameters.items())
        assert moved == pytest.approx(policy.lr, rel=1e-3)  # Adam's first step is the learning rate
        policy.save(tmp_path / name)
    assert base.adapter("verifier", rank=2) is verifier
    assert {policy.adapter for policy in policies.values()} == set(verifier.model.peft_config)
    shutil.copytree(tmp_path / "solver", tmp_path / "older")
    restored = restore_policies({name: tmp_path / name for name in (*policies, "older")})
    assert restored["solver"].shared is restored["verifier"].shared is not restored["older"].shared
    assert restored["solver"].engine is restored["verifier"].engine
    assert restored["older"].name == "solver" and same(weights(restored["older"]), weights(policies["solver"]))
    for name, policy in policies.items():
        again = restored[name]
        assert ranks(again) == ranks(policy) and again.lr == policy.lr and again.describe() == policy.describe()
        assert step(policy) == step(again) and same(weights(policy), weights(again))


def test_ranks_and_adapters_that_cannot_be_had_are_refused(qwen3):
    base = load_base(qwen3, adapters=2, rank=4)
    with pytest.raises(PolicyError, match=r"agent 'a' requests rank 8; the base was loaded with rank=4"):
        base.adapter("a", rank=8)
    assert base.adapter("a", rank=2) is base.adapter("a") is not base.adapter("b")
    with pytest.raises(PolicyError, match=r"agent 'a' requests rank 3; its adapter was made before"):
        base.adapter("a", rank=3)
    with pytest.raises(PolicyError, match=r"agent 'c' requests an adapter; .*adapters=2, taken by a, b"):
        base.adapter("c")


@pytest.fixture
def served(qwen3, tmp_path, monkeypatch):
    """A loader of adapters of a model that a Tinker server has; two tokens end its turns."""
    client = MagicMock()
    client.get_server_capabilities.return_value.supported_models = [SimpleNamespace(model_name="served")]
    client.create_lora_training_client.return_value = client
    client.save_state.side_effect = lambda name: SimpleNamespace(path=f"tinker://{name}")
    service = SimpleNamespace(client=client, of=lambda what, call, *arguments, **options: call(*arguments, **options))
    monkeypatch.setattr("mas_lab.contrib.tinker.policy.Service", lambda *where: service)
    folder = shutil.copytree(qwen3, tmp_path / "served")
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 7]}')
    return partial(load_base, folder, backend="tinker", model="served", rank=2)


def test_policies_of_a_server_are_restored_as_they_were(served, tmp_path):
    base = served(adapters=2)
    policies = {"b": base.adapter("b"), "a": base.adapter("a", lr=0.5), "one": served(adapters=1).adapter("one"),
                "two": served(adapters=1).adapter("two"),
                "other": served(adapters=2, template={"chat_template": "w5"}).adapter("other")}  # fmt: skip
    for name, policy in policies.items():
        policy.save(tmp_path / name)
    restored = restore_policies({name: tmp_path / name for name in sorted(policies)})
    assert {name: one.describe() for name, one in restored.items()} == {n: p.describe() for n, p in policies.items()}
    assert restored["a"].shared is restored["b"].shared and len({one.shared for one in restored.values()}) == 4
    assert restored["a"].shared.eos_ids() == load_policy(base.source.name).shared.eos_ids() == {1, 2, 7}


def test_a_rate_is_the_one_passed_or_kept_or_of_the_provenance_or_that_of_large_models(qwen3, tmp_path):
    own_model = shutil.copytree(qwen3, tmp_path / "own")
    (own_model / "provenance.json").write_text(json.dumps({"learning_rate": {"full": 4e-4, "lora": 3e-3}}))
    assert load_policy(own_model).lr == 4e-4 and load_policy(own_model, lora=2).lr == 3e-3
    assert load_policy(own_model, lr=0.5).lr == 0.5 and load_policy(own_model, lora=2, lr=0.25).lr == 0.25
    assert load_policy(qwen3).lr == 1e-6 and load_policy(qwen3, lora=2).lr == 2e-5
    load_policy(own_model, lr=2e-4).save(tmp_path / "saved")
    assert load_policy(tmp_path / "saved").lr == 2e-4 and load_policy(tmp_path / "saved", lora=2).lr == 3e-3
    pocket = Source.find("plan_path")
    assert (pocket.default_lr(lora=False), pocket.default_lr(lora=True)) == (1e-3, 5e-3)


def test_code_that_comes_with_a_model_is_not_run_and_nobody_is_asked(qwen3, tmp_path, monkeypatch):
    """Its config and tokenizer bring code along; what it would do can be seen."""
    folder = shutil.copytree(qwen3, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Net"}
    config |= {"_attn_implementation": "eager", "linear_conv_kernel_dim": 4}  # which name none
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "custom_generate").mkdir()
    for name in ("theirs.py", "custom_generate/generate.py"):
        (folder / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    load_policy(folder).sample(requests()[:1])
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "theirs"}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    with pytest.raises(PolicyError, match="wants code of its own to be run, which is not done here"):
        load_policy(folder)
    assert not (tmp_path / "ran").exists()


def test_sgd_steps_against_the_clipped_gradient_and_by_nothing_else(qwen3):
    """AdamW divides the size of a gradient out, SGD does not."""
    policy = load_policy(qwen3, lr=0.1, optimizer="sgd")
    before = weights(policy)
    policy.forward_backward(drawn(policy), lab.reinforce())
    gradients = {name: gradient.clone() for name, gradient in policy.gradients()}
    bound = policy.gradient_norm() / 2
    norm, clipped = policy.optim_step(bound, lr_scale=0.5)
    assert norm == pytest.approx(2 * bound) and clipped == pytest.approx(bound)
    for name, parameter in policy.parameters.items():
        expected = before[name] - 0.05 * gradients[name] / 2
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


@pytest.fixture
def folder(tmp_path):
    """A copy of a pocket model with 49 tokens."""
    return shutil.copytree(data_dir() / "pocket" / "plan_path", tmp_path / "model")


def written(name, text):
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:100])


def removed(name):
    return lambda folder: (folder / name).unlink()


def entry(key, value):
    def change(folder):
        data = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(data | {key: value}), encoding="utf-8")

    return change


BROKEN = {
    "config is no object": (written("config.json", "[]"), r"config\.json cannot be read"),
    "config is cut": (cut("config.json"), r"config\.json cannot be read"),
    "unknown type": (entry("model_type", "zork"), r"config\.json cannot be read .*zork"),
    "type of no text": (entry("model_type", "vit"), r"config\.json.* cannot be read"),
    "other vocabulary": (entry("vocab_size", 7), "1 weights are missing, of another shape or not .*'model.embed_tok"),
    "no weights": (removed("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "weights are cut": (cut("model.safetensors"), r"model\.safetensors\) cannot be read"),
    "no tokenizer": (removed("tokenizer.json"), r"tokenizer\.json or tokenizer_config\.json cannot be read"),
    "tokenizer is cut": (cut("tokenizer.json"), r"tokenizer\.json cannot be read"),
    "generation config is cut": (cut("generation_config.json"), r"generation_config\.json cannot be read"),
    "record of another hand": (written("policy.json", "{}"), r"policy\.json was not written by `policy\.save`"),
    "adapter": (written("adapter_config.json", '{"base_model_name_or_path": "a/b"}'), "load that one with lora="),
}  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), BROKEN.values(), ids=BROKEN)
def test_a_broken_folder_is_refused_with_the_file_and_a_remedy(folder, change, sentence):
    change(folder)
    with pytest.raises(PolicyError, match=sentence):
        lab.load_policy(folder)
