"""Saving, loading, restoring: the run goes on bit for bit, and what is missing or changed is said."""

import json
import shutil

import huggingface_hub
import pytest
import torch
from backends.drawn import same, step, weights
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy, restore_policies
from mas_lab.backends.torch.source import Source
from mas_lab.policy import PolicyError, Sample

SAMPLE = Sample((5, 6), (7, 8), (-1.0, -1.0), 1.0, 1.0, 1.0)
TO_REFERENCE = lab.reinforce(kl=0.1)


def restore_policy(directory, base=()):
    return restore_policies({"policy": directory}, base)["policy"]


def make(kind, model_dirs):
    if kind == "lora":
        base = load_base(model_dirs["qwen3"], adapters=2, rank=4, lr=1e-2)
        return [base.adapter(agent) for agent in ("first", "second")][1]
    options = {"optimizer": "sgd"} if kind == "sgd" else {}
    return load_policy(model_dirs["qwen3" if kind == "sgd" else kind], lr=1e-2, **options)


def test_where_a_file_put_the_weights_does_not_show(qwen3, tmp_path):
    """The same numbers behind a longer header: mapped into memory, they would begin elsewhere."""
    moved = shutil.copytree(qwen3, tmp_path / "moved")
    save_file(load_file(moved / "model.safetensors"), moved / "model.safetensors", {"format": "pt", "x": "x" * 24})
    one, other = load_policy(qwen3, lr=1e-2), load_policy(moved, lr=1e-2)
    for seed in range(2):
        assert step(one, seed) == step(other, seed)
        assert same(weights(one), weights(other))
    assert {parameter.data_ptr() % 64 for parameter in other.parameters.values()} == {0}


@pytest.mark.parametrize("kind", ["qwen3", "gpt2", "lora", "sgd"])
def test_a_step_after_loading_is_the_step_without(model_dirs, tmp_path, kind):
    policy = make(kind, model_dirs)
    policy.save(tmp_path / "new")  # one that never stepped can be kept too
    first = step(policy, 0), step(policy, 1)
    policy.save(tmp_path / "kept")
    saved = weights(policy)
    expected = step(policy, 2), step(policy, 3), weights(policy)
    other, new = make(kind, model_dirs), restore_policy(tmp_path / "new")
    assert (step(new, 0), step(new, 1)) == first
    step(other, 9)
    other.load(tmp_path / "kept")
    for again in (other, restore_policy(tmp_path / "kept")):
        assert same(weights(again), saved) and again.describe() == policy.describe()
        assert (step(again, 2), step(again, 3)) == expected[:2]
        assert same(weights(again), expected[2])


def test_what_is_kept_is_safetensors_and_json(qwen3, tmp_path):
    policy = load_policy(qwen3, lr=1e-2)
    policy.save(tmp_path)
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} <= {".safetensors", ".json", ".jinja"}
    assert [path.name for path in tmp_path.glob("*.safetensors")] == ["model.safetensors"]  # vLLM would load others too
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert same(dict(plain.named_parameters()), weights(policy))


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_base_that_vanished_or_changed_is_said(qwen3, tmp_path, kind):
    moved = shutil.copytree(qwen3, tmp_path / "model")
    if kind == "bin":
        torch.save(load_file(moved / "model.safetensors"), moved / "pytorch_model.bin")
        (moved / "model.safetensors").unlink()
    load_policy(moved, lora=4).save(tmp_path / "kept")
    other = load_policy(moved, lr=1e-2)
    step(other)
    if kind == "bin":
        torch.save(other.model.state_dict(), moved / "pytorch_model.bin")
    else:
        other.save(moved)
    with pytest.raises(PolicyError, match=r"have changed or .* \(sha256"):
        restore_policy(tmp_path / "kept")
    shutil.rmtree(moved)
    with pytest.raises(PolicyError, match=r"no longer there"):
        restore_policy(tmp_path / "kept")


def test_the_reference_of_restored_full_weights_is_their_source(qwen3, tmp_path):
    moved = shutil.copytree(qwen3, tmp_path / "model")
    policy = load_policy(moved, lr=1e-2)
    start_N = policy.logprobs([SAMPLE])[0].detach()
    step(policy)
    policy.save(tmp_path / "kept")
    found = restore_policy(tmp_path / "kept").forward_backward([SAMPLE], TO_REFERENCE).reference_N
    torch.testing.assert_close(found, start_N, atol=1e-6, rtol=0)
    shutil.rmtree(moved)
    again = restore_policy(tmp_path / "kept")
    assert same(weights(again), weights(policy))
    with pytest.raises(PolicyError, match="no longer there"):
        again.forward_backward([SAMPLE], TO_REFERENCE)


def test_a_folder_that_was_used_keeps_nothing_and_one_that_is_cut_changes_nothing(qwen3, tmp_path):
    load_policy(qwen3, lora=4).save(tmp_path / "warm")
    former, policy = load_policy(qwen3, lora=4, start=tmp_path / "warm"), load_policy(qwen3, lora=4, seed=1)
    former.kept = {3: former.copy_weights()}
    former.save(tmp_path / "used")
    policy.save(tmp_path / "used")
    policy.load(tmp_path / "used")
    assert policy.kept == {} and policy.first_weights is None
    before = weights(policy)
    (tmp_path / "warm" / "training" / "optimizer.safetensors").unlink()
    with pytest.raises(PolicyError, match=r"warm: the files in training/ cannot be read"):
        policy.load(tmp_path / "warm")
    assert same(weights(policy), before)


def test_a_description_names_no_place_and_records_of_another_make_are_refused(qwen3, tmp_path):
    text = json.dumps(load_policy(qwen3, template={"enable_thinking": False}).describe())
    assert qwen3 not in text and "enable_thinking" in text
    four, eight = (load_policy(qwen3, lora=rank) for rank in (4, 8))
    four.save(tmp_path)
    assert four.describe() != eight.describe()
    with pytest.raises(PolicyError, match="of another make"):
        eight.load(tmp_path)
    (tmp_path / "policy.json").unlink()
    with pytest.raises(PolicyError, match=r"policy\.json was not written by `policy.save`.*FileNotFoundError"):
        restore_policy(tmp_path)


@pytest.mark.parametrize(("options", "why"), [
    ({"backend": "jax"}, "unknown back end 'jax'; known: torch, unsloth, vllm, tinker"),
    ({"name": "nowhere"}, r"no model 'nowhere'.*pocket models"),
    ({"budget": 3}, "no option 'budget'; it has: device"),
])  # fmt: skip
def test_unknown_names_list_the_known_ones(qwen3, options, why):
    with pytest.raises(PolicyError, match=why):
        load_policy(**{"name": qwen3} | options)


def recorded(directory, **changes):
    path = directory / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return directory


OLD, NEW = "a" * 40, "b" * 40


@pytest.fixture
def hub(model_dirs, tmp_path, monkeypatch):
    """A folder of what was fetched: "own/model" had the weights of qwen3 in its first commit, and now has others."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    folder = tmp_path / "hub" / "models--own--model"
    (folder / "refs").mkdir(parents=True)
    for commit, factor in ((OLD, 1.0), (NEW, 2.0)):
        file = shutil.copytree(model_dirs["qwen3"], folder / "snapshots" / commit) / "model.safetensors"
        save_file({name: factor * w for name, w in load_file(file).items()}, file, {"format": "pt"})
    return lambda commit: (folder / "refs" / "main").write_text(commit)


def test_a_model_of_the_hub_is_that_of_its_commit(hub, tmp_path):
    hub(OLD)
    load_policy("own/model").save(tmp_path / "full")
    policy = load_policy("own/model", lora=4)
    assert policy.describe()["source"] == {"kind": "hub", "name": "own/model", "digest": OLD}
    expected_N = policy.logprobs([SAMPLE])[0].detach()
    policy.save(tmp_path / "adapter")
    hub(NEW)
    assert restore_policy(tmp_path / "full").describe()["source"]["digest"] == OLD
    restored = restore_policy(tmp_path / "adapter", "own/model")
    assert restored.describe() == policy.describe()
    torch.testing.assert_close(restored.logprobs([SAMPLE])[0].detach(), expected_N, atol=0, rtol=0)
    with pytest.raises(PolicyError, match=f"the base is 'own/model' .*commit: {OLD} and {NEW}"):
        load_policy("own/model", lora=4, start=tmp_path / "adapter")
    unknown = {"kind": "hub", "name": "own/model", "digest": "refs/pr/1"}
    with pytest.raises(PolicyError, match="'refs/pr/1', which is no commit"):
        restore_policy(recorded(tmp_path / "adapter", source=unknown), "own/model")


@pytest.mark.parametrize("digest", [OLD, None])
def test_a_model_of_the_hub_is_not_loaded_unasked(qwen3, tmp_path, monkeypatch, digest):
    asked = []
    load_policy(qwen3, lora=4 if digest else None).save(tmp_path)
    for name in ("pinned", "check"):
        monkeypatch.setattr(Source, name, lambda self, *files: asked.append(self.name) or 1 / 0)
    recorded(tmp_path, source={"kind": "hub", "name": "stranger/model", "digest": digest})
    words = r"policy\.json names the model 'stranger/model' of the hub.*\.team\(base='stranger/model'\)"
    for base in ((), "another/model"):
        with pytest.raises(PolicyError, match=words):
            restore_policy(tmp_path, base)
    assert asked == []
    with pytest.raises(ZeroDivisionError):  # once it is asked for, it is loaded
        restore_policy(tmp_path, "stranger/model")
    assert asked


def test_the_reference_of_an_adapter_is_its_first_weights(qwen3, tmp_path):
    """A new adapter starts as the base; one that was loaded starts as it was loaded, and so after a resume."""
    first = load_policy(qwen3, lora=4, lr=1e-1)
    base_N = first.logprobs([SAMPLE])[0].detach()
    step(first)
    first.save(tmp_path / "trained")
    second = load_policy(qwen3, lora=4, lr=1e-1)
    second.load_weights(tmp_path / "trained")
    start_N = second.logprobs([SAMPLE])[0].detach()
    assert (start_N - base_N).abs().max() > 1e-2
    step(second)
    second.save(tmp_path / "kept")
    resumed = restore_policy(tmp_path / "kept")
    for policy, reference_N in ((first, base_N), (second, start_N), (resumed, start_N)):
        found = policy.forward_backward([SAMPLE], TO_REFERENCE)
        torch.testing.assert_close(found.reference_N, reference_N, atol=1e-6, rtol=0)
        assert (found.logprobs_N - reference_N).abs().max() > 1e-2  # the weights that learn are back in their place
    assert same(weights(resumed), weights(second))
