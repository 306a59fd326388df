"""Saving, loading, restoring: the run goes on bit for bit, and what is missing or changed is said."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from mas_lab.backends.loading import load_base, load_policy, restore_policies, restore_policy
from mas_lab.backends.torch import source as source_module
from mas_lab.backends.torch.model import TorchModel
from mas_lab.policy import PolicyError, Request, Sample


class Reinforce:
    needs_entropy = False
    needs_reference = False

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N):
        return -advantages_N * logprobs_N


class ToReference(Reinforce):
    needs_reference = True


def step(policy, seed):
    rng = np.random.default_rng(seed)
    asked = [Request((5 + i % 3, 6, 7), 6, 1.0, int(rng.integers(2**62))) for i in range(12)]
    answers = policy.sample(asked)
    samples = [
        Sample(r.prompt_ids, c.ids, c.logprobs, 1.0, float(rng.normal()), 0.02)
        for r, c in zip(asked, answers, strict=True)
    ]
    policy.forward_backward(samples, Reinforce())
    return policy.optim_step(max_norm=1.0), [c.logprobs for c in answers]


def state(policy):
    return [p.detach().clone() for p in policy.parameters.values()]


def same(one, other):
    return all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def make(kind, model_dirs):
    if kind == "lora":
        base = load_base(model_dirs["qwen3"], adapters=2, rank=4, lr=1e-2)
        base.adapter("first")
        return base.adapter("second")
    if kind == "sgd":
        return load_policy(model_dirs["qwen3"], lr=1e-2, optimizer="sgd")
    return load_policy(model_dirs[kind], lr=1e-2)


@pytest.mark.parametrize("longer", [8, 24])
def test_where_a_file_put_the_weights_does_not_show(model_dirs, tmp_path, longer):
    """The same numbers behind a longer header: mapped into memory, they would begin elsewhere."""
    moved = shutil.copytree(model_dirs["qwen3"], tmp_path / "moved")
    save_file(load_file(moved / "model.safetensors"), moved / "model.safetensors", {"format": "pt", "x": "x" * longer})
    one, other = load_policy(model_dirs["qwen3"], lr=1e-2), load_policy(moved, lr=1e-2)
    for seed in range(3):
        assert step(one, seed) == step(other, seed)
        assert same(state(one), state(other))
    assert {parameter.data_ptr() % 64 for parameter in other.parameters.values()} == {0}


@pytest.mark.parametrize("how", ["load", "restore"])
@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2", "lora", "sgd"])
def test_a_step_after_loading_is_the_step_without(model_dirs, tmp_path, kind, how):
    policy = make(kind, model_dirs)
    step(policy, 0)
    step(policy, 1)
    policy.save(tmp_path / "kept")
    saved = state(policy)
    expected = step(policy, 2), step(policy, 3), state(policy)
    if how == "load":
        again = make(kind, model_dirs)
        step(again, 9)
        again.load(tmp_path / "kept")
    else:
        again = restore_policy(tmp_path / "kept")
    assert same(state(again), saved) and again.describe() == policy.describe()
    found = step(again, 2), step(again, 3), state(again)
    assert found[:2] == expected[:2]
    assert same(found[2], expected[2])


def test_a_policy_that_never_stepped_can_be_kept(qwen3, tmp_path):
    policy = load_policy(qwen3, lr=1e-2)
    policy.save(tmp_path)
    again = restore_policy(tmp_path)
    assert step(again, 0) == step(policy, 0) and same(state(again), state(policy))


def test_what_is_kept_is_safetensors_and_json(qwen3, tmp_path):
    policy = load_policy(qwen3, lr=1e-2)
    step(policy, 0)
    policy.save(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".safetensors", ".json", ".jinja"}
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]  # vLLM would load others too
    plain = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    assert all(torch.equal(p, policy.parameters[name]) for name, p in plain.named_parameters())
    with torch.no_grad():
        torch.testing.assert_close(plain(input_ids=ids).logits, policy.model(input_ids=ids).logits)


def test_adapters_that_shared_a_base_share_it_again(qwen3, tmp_path):
    base = load_base(qwen3, adapters=2, rank=4, lr=1e-2)
    for seed, agent in enumerate(("a", "b")):
        step(base.adapter(agent), seed)
        base.adapter(agent).save(tmp_path / agent)
    shutil.copytree(tmp_path / "a", tmp_path / "older")
    found = restore_policies({"one": tmp_path / "b", "two": tmp_path / "a", "three": tmp_path / "older"})
    assert found["one"].shared is found["two"].shared and found["one"].engine is found["two"].engine
    assert found["three"].shared is not found["one"].shared
    assert [found[name].name for name in ("one", "two", "three")] == ["b", "a", "a"]
    for name, agent in (("one", "b"), ("two", "a"), ("three", "a")):
        assert same(state(found[name]), state(base.adapter(agent)))


def test_a_base_that_vanished_or_changed_is_said(qwen3, tmp_path):
    moved = tmp_path / "model"
    shutil.copytree(qwen3, moved)
    policy = load_policy(moved, lora=4)
    policy.save(tmp_path / "kept")
    other = load_policy(moved, lr=1e-2)
    step(other, 0)
    other.save(moved)
    with pytest.raises(PolicyError, match="has changed: sha256"):
        restore_policy(tmp_path / "kept")
    shutil.rmtree(moved)
    with pytest.raises(PolicyError, match=r"no longer at .*model"):
        restore_policy(tmp_path / "kept")


def test_full_weights_need_their_source_only_as_the_reference(qwen3, tmp_path):
    moved = tmp_path / "model"
    shutil.copytree(qwen3, moved)
    policy = load_policy(moved, lr=1e-2)
    step(policy, 0)
    policy.save(tmp_path / "kept")
    shutil.rmtree(moved)
    again = restore_policy(tmp_path / "kept")
    assert same(state(again), state(policy))
    sample = Sample((5, 6), (7, 8), (-1.0, -1.0), 1.0, 1.0, 1.0)
    with pytest.raises(PolicyError, match="no longer at"):
        again.forward_backward([sample], ToReference())


def test_the_reference_of_a_restored_policy_is_the_first_start(qwen3, tmp_path):
    sample = Sample((5, 6), (7, 8), (-1.0, -1.0), 1.0, 1.0, 1.0)
    policy = load_policy(qwen3, lr=1e-2)
    start_N = policy.logprobs([sample]).detach()
    step(policy, 0)
    policy.save(tmp_path)
    again = restore_policy(tmp_path)
    torch.testing.assert_close(again.forward_backward([sample], ToReference()).reference_N, start_N, atol=1e-6, rtol=0)


def test_an_adapter_of_another_make_is_refused(qwen3, tmp_path):
    load_policy(qwen3, lora=4).save(tmp_path)
    with pytest.raises(PolicyError, match="of another make"):
        load_policy(qwen3, lora=8).load(tmp_path)


def test_a_directory_without_a_record_is_refused(tmp_path):
    with pytest.raises(PolicyError, match=r"policy\.json is not there"):
        restore_policy(tmp_path)


def test_describe_is_plain_data_and_names_no_place(qwen3):
    policy = load_policy(qwen3, template={"enable_thinking": False})
    text = json.dumps(policy.describe())
    assert qwen3 not in text and "enable_thinking" in text
    assert load_policy(qwen3, lora=4).describe() != load_policy(qwen3, lora=8).describe()


def test_unknown_names_list_the_known_ones(qwen3):
    with pytest.raises(PolicyError, match="unknown back end 'jax'; known: torch, unsloth, vllm"):
        load_policy(qwen3, backend="jax")
    with pytest.raises(PolicyError, match=r"no model 'nowhere'.*pocket models"):
        load_policy("nowhere")
    with pytest.raises(PolicyError, match="no option 'budget'; it has: device"):
        load_policy(qwen3, budget=3)
    with pytest.raises(PolicyError, match="packing 'tight'; known: auto, packed, padded"):
        load_policy(qwen3, packing="tight")


def recorded(directory, **changes):
    path = directory / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


@pytest.mark.parametrize("digest", ["0" * 40, None])
def test_a_model_of_the_hub_is_not_loaded_unasked(qwen3, tmp_path, monkeypatch, digest):
    asked = []
    load_policy(qwen3, lora=4 if digest else None).save(tmp_path)
    monkeypatch.setattr(source_module, "model_config", lambda where: asked.append(where))
    monkeypatch.setattr(TorchModel, "read", lambda self, where, dtype: asked.append(where) or 1 / 0)
    recorded(tmp_path, source={"kind": "hub", "name": "stranger/model", "digest": digest})
    words = r"policy\.json names the model 'stranger/model' of the hub.*\.team\(base='stranger/model'\)"
    for base in ((), "another/model"):
        with pytest.raises(PolicyError, match=words):
            restore_policy(tmp_path, base)
    assert asked == []
    with pytest.raises(ZeroDivisionError):  # once it is asked for, it is loaded
        restore_policy(tmp_path, "stranger/model")
    assert asked


def test_full_weights_that_began_on_the_hub_need_nothing_of_it(qwen3, tmp_path):
    policy = load_policy(qwen3, lr=1e-2)
    policy.save(tmp_path)
    recorded(tmp_path, source={"kind": "hub", "name": "owner/model", "digest": "0" * 40})
    assert same(state(restore_policy(tmp_path)), state(policy))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"source": 3}', '{"source": {"kind": "hub"}}', "[" * 100_000],
)
def test_a_record_of_another_hand_is_named(qwen3, tmp_path, text):
    load_policy(qwen3).save(tmp_path)
    (tmp_path / "policy.json").write_text(text)
    with pytest.raises(PolicyError, match=r"policy\.json.*was not written by `policy\.save`"):
        restore_policy(tmp_path)
    load_policy(qwen3).save(tmp_path)
    with pytest.raises(PolicyError, match=r"policy\.json: lora is 7; it was not written"):
        restore_policy(recorded(tmp_path, lora=7))
