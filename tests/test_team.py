"""Teams as folders: `Team.save` writes what transformers and PEFT open, and `Team.load` makes the same team."""

import json

import peft
import pytest
import torch
import transformers
from small import AGENTS, make_team

import mas_lab as lab


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


def test_a_name_with_any_letters_is_a_folder_below(models, tmp_path):
    policy = make_team("shared", models)[AGENTS[0]]
    lab.Team({"../../x": policy}).save(tmp_path / "deep" / "team")
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert list(lab.Team.load(tmp_path / "deep" / "team")) == ["../../x"]
