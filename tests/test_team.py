"""Teams as folders: `Team.save` writes what transformers and PEFT open, and `Team.load` makes the same team."""

import json
from pathlib import Path

import peft
import pytest
import torch
import transformers
from small import AGENTS, make_team

import mas_lab as lab

HAND_OVER = Path(__file__).resolve().parents[1] / "docs" / "hand_over.md"


def state(team):
    return {
        name: [
            tensor
            for weights in policy.parameters.values()
            for tensor in (weights, *(kept for _, kept in sorted(policy.optimizer.state[weights].items())))
        ]
        for name, policy in team.policies.items()
    }


@pytest.mark.parametrize("kind", ["shared", "per_agent", "lora"])
def test_a_saved_team_is_the_same_team(kind, models, tmp_path):
    made = make_team(kind, models)
    team = lab.Team(dict(made), sampling={AGENTS[0]: lab.Sampling(0.5, 3)}, frozen=AGENTS[1])
    for policy in team.policies.values():
        policy.set_gradients([torch.ones_like(one) for one in policy.parameters.values()])
        policy.optim_step(1.0)
    loaded = lab.Team.load(team.save(tmp_path / "team"))
    assert (loaded.sampling, loaded.frozen, list(loaded.policies)) == (team.sampling, team.frozen, list(team.policies))
    for name, tensors in state(team).items():
        assert all(torch.equal(a, b) for a, b in zip(tensors, state(loaded)[name], strict=True))
    with pytest.raises(FileExistsError, match="has files; give a new folder"):
        team.save(tmp_path / "team")


@pytest.mark.parametrize("kind", ["per_agent", "lora"])
def test_each_folder_is_an_ordinary_one(kind, models, tmp_path):
    team = make_team(kind, models)
    folders = json.loads((team.save(tmp_path / "team") / "team.json").read_text(encoding="utf-8"))["folders"]
    for name, policy in team.policies.items():
        folder = tmp_path / "team" / folders[name]
        if kind == "lora":
            base = transformers.AutoModelForCausalLM.from_pretrained(models / "a")
            net = peft.PeftModel.from_pretrained(base, folder)
        else:
            net = transformers.AutoModelForCausalLM.from_pretrained(folder)
        ids = torch.tensor([[1, 2, 3]])
        policy.activate()
        assert torch.allclose(net(ids).logits, policy.shared.net(ids).logits, atol=1e-5)


@pytest.mark.skipif(not HAND_OVER.is_file(), reason="docs/ is part of the checkout alone")
def test_plain_peft_says_what_the_adapter_says(models, tmp_path, monkeypatch):
    """The lines of docs/hand_over.md, word for word."""
    policy = make_team("lora", models)[AGENTS[0]]
    policy.set_gradients([torch.ones_like(one) for one in policy.parameters.values()])
    policy.optim_step(None)
    monkeypatch.chdir(tmp_path)
    block = HAND_OVER.read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    exec(compile(block, HAND_OVER.name, "exec"), names := {"policy": policy, "base": str(models / "a")})
    told, length = names["told"], names["ids"]["input_ids"].shape[1]
    policy.activate()
    logits = policy.shared.net(told).logits[0, length - 1 : -1]
    assert told.shape[1] > length and logits.argmax(-1).tolist() == told[0, length:].tolist()
    bare = transformers.AutoModelForCausalLM.from_pretrained(models / "a")(told).logits[0, length - 1 : -1]
    assert not torch.allclose(bare, logits, atol=1e-3), "the adapter changes what is said"


def test_a_name_with_any_letters_is_a_folder_below(models, tmp_path):
    policy = make_team("shared", models)[AGENTS[0]]
    lab.Team({"../../x": policy}).save(tmp_path / "deep" / "team")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert list(lab.Team.load(tmp_path / "deep" / "team")) == ["../../x"]
