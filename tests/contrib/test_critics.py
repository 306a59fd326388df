"""Critics: targets by hand, heads that learn, and hidden states that are those of the model."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import small
import torch

import mas_lab as lab
from mas_lab.contrib import critics
from mas_lab.locks import ModelLock
from mas_lab.policy import Capabilities, PolicyError, samples_of

RELAY = small.Relay()
TEAM = ("a", "b")
VALUES = {"a": (0.5, 1.5), "b": (0.25, 2.0)}
PLAYED = pd.DataFrame(
    [("e", 0, "a", 0.0, 0.5), ("e", 1, "b", 1.0, 0.25), ("e", 2, "a", 2.0, 1.5), ("e", 3, "b", 4.0, 2.0)],
    columns=["episode", "depth", "agent", "team_reward", "hidden"],
).assign(prompt_ids=[[1]] * 4, completion_ids=[[1]] * 4, logprobs=[[0.0]] * 4, temperature=1.0)
UNIT = [[[[1.0, 1.0]]], [[0.0]]]
"""A head with weights 1, 1 and bias 0."""


@pytest.fixture
def known(monkeypatch):
    """The hidden state of a row stands in its column `hidden`."""
    monkeypatch.setattr(critics, "_hidden", lambda team, rows: torch.tensor(rows["hidden"].to_list())[:, None].float())


def ready(heads, **options):
    return lab.critic(**options, state={name: [[[[1.0] * size]], [[0.0]]] for name, size in heads.items()})


@pytest.mark.parametrize(("lam", "expected"), [
    (0.0, [1 + 0.5 * 1.5 - 0.5, 3 + 0.5 * 2 - 0.25, 6 - 1.5, 4 - 2.0]),
    (1.0, [1.25 + 0.5 * 4.5, 3.75 + 0.5 * 2, 4.5, 2.0]),
])  # fmt: skip
def test_an_independent_critic_by_hand(known, lam, expected):
    """Agent a earns 0 + 1 until its next turn, then 2 + 4; agent b earns 1 + 2, then 4."""
    found = ready({"a": 1, "b": 1}, gamma=0.5, lam=lam)(PLAYED, TEAM)
    assert found["credit"].tolist() == pytest.approx(expected)
    assert found["value"].tolist() == [0.5, 0.25, 1.5, 2.0]
    assert found["target"].tolist() == pytest.approx([a + v for a, v in zip(expected, PLAYED["hidden"], strict=True)])


def test_a_central_critic_sees_the_last_prompt_of_every_agent(known):
    """V is the sum of what a and b saw last: 0.5, 0.75, 1.75, 3.5; rewards 0, 1, 2, 4."""
    found = ready({"all": 2}, central=True, gamma=0.5)(PLAYED, TEAM)
    assert found["value"].tolist() == [0.5, 0.75, 1.75, 3.5]
    assert found["credit"].tolist() == pytest.approx([-0.125, 1.125, 2.0, 0.5])


def test_agents_that_act_together_share_one_advantage(known):
    together = PLAYED.assign(depth=[0, 0, 1, 1], team_reward=[1.0, 1.0, 2.0, 2.0])
    credit = ready({"all": 2}, central=True)(together, TEAM)["credit"].tolist()
    assert credit == pytest.approx([1 + 3.5 - 0.75, 1 + 3.5 - 0.75, 2 - 3.5, 2 - 3.5])
    assert ready({"a": 1, "b": 1})(together, TEAM)["credit"].tolist() == pytest.approx([2, 1 + 2 - 0.25, 0.5, 0])


def test_a_critic_of_another_team_is_refused(known):
    with pytest.raises(ValueError, match="value head 'all' belongs to another team"):
        ready({"all": 3}, central=True)(PLAYED, TEAM)


def test_rows_in_another_order_have_the_same_numbers(known):
    for options in ({}, {"central": True}):
        heads = {"all": 2} if options else {"a": 1, "b": 1}
        twice = pd.concat([PLAYED, PLAYED.assign(episode="d", hidden=[1.0, -1.0, 0.5, 0.0])], ignore_index=True)
        one, other = (ready(heads, lam=0.5, **options)(rows, TEAM) for rows in (twice, twice[::-1]))
        pd.testing.assert_frame_equal(one, other.sort_index())


def test_heads_learn_and_go_on_from_their_state(known):
    made = lab.critic(lam=1.0, lr=0.1, steps=50)
    errors = []
    for _ in range(8):
        found = made(PLAYED, TEAM)
        errors.append((found["target"] - found["value"]).abs().mean())
        made = made.after(PLAYED, TEAM)
    assert errors[-1] < 0.1 * errors[0]
    again = replace(made, state=json.loads(json.dumps(made.state)))
    pd.testing.assert_frame_equal(made(PLAYED, TEAM), again(PLAYED, TEAM))
    assert made.after(PLAYED, TEAM).state == again.after(PLAYED, TEAM).state != made.state
    assert lab.critic(lr=0.1) == lab.critic(lr=0.1)


@pytest.mark.parametrize("plain", [False, True])
def test_hidden_states_are_those_that_predict_the_tokens(plain, models):
    policy = lab.load_policy(models / "a", plain=plain, train_tokens=16)
    team = lab.Team.shared(policy, small.AGENTS)
    turns = lab.rollout(RELAY, team, RELAY.tasks(3, "train", 0), lab.episodes(2))
    samples = samples_of(turns, advantage=0.0, weight=0.0)
    hidden_Nh = policy.features(samples, every_token=True)
    logits_NV = policy.shared.net.get_output_embeddings()(hidden_Nh)
    ids_N = torch.tensor([i for one in samples for i in one.completion_ids])
    found_N = logits_NV.log_softmax(-1).gather(1, ids_N[:, None])[:, 0]
    torch.testing.assert_close(found_N, policy.forward(samples).logprobs_N, rtol=0, atol=1e-4)
    firsts = [sum(len(one.completion_ids) for one in samples[:place]) for place in range(len(samples))]
    torch.testing.assert_close(policy.features(samples), hidden_Nh[firsts], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["iac", "maac"])
def test_a_run_goes_on_with_its_critic(name, models, tmp_path):
    recipe = lab.RECIPES[name].replace(plan=lab.episodes(3))
    ends = []
    for folder, stops in (("whole", [3]), ("cut", [2, 3])):
        team = small.make_team("per_agent", models)
        for stop in stops:
            *_, report = lab.train(RELAY, team, recipe, stop, run=tmp_path / folder, tasks=2, check=False)
        ends.append(report.turns)
    assert ends[0]["value"].abs().max() > 0
    own = report.turns[report.turns["agent"] == "asker"]
    left = 1 - np.var(own["target"] - own["value"]) / np.var(own["target"])
    assert report.stats.set_index("agent").loc["asker", "explained_variance"] == pytest.approx(left)
    pd.testing.assert_frame_equal(*ends)
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "whole")


def test_a_critic_needs_hidden_states(models):
    with pytest.raises(ValueError, match=r"group: critic\(.* needs the team that played .*recipe.advantages\("):
        lab.RECIPES["iac"].advantages(PLAYED)
    tinker = SimpleNamespace(capabilities=Capabilities())
    with pytest.raises(PolicyError, match=r"policy 'shared': a critic reads hidden states, .* use torch"):
        lab.critic()(PLAYED, SimpleNamespace(policies={"shared": tinker}))


def test_small_and_large_models_share_a_width():
    """States 3 and (4, 5, 6, 7), divided by 1 and 2."""

    def policy(states):
        config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(hidden_size=len(states)))
        return SimpleNamespace(
            capabilities=Capabilities(features=True), model=SimpleNamespace(config=config), lock=ModelLock(),
            features=lambda samples: torch.tensor([states] * len(samples)),
        )  # fmt: skip

    policies = {"a": policy([3.0]), "b": policy([4.0, 5.0, 6.0, 7.0])}
    team = SimpleNamespace(policies=policies, name_of=lambda agent: agent)
    assert critics._hidden(team, PLAYED[1:3].reset_index(drop=True)).tolist() == [[2, 2.5, 3, 3.5], [3, 0, 0, 0]]


def test_a_central_critic_keeps_its_places_if_an_agent_is_silent(known):
    """A team of a, b and c: c never speaks and counts 0."""
    found = ready({"all": 3}, central=True, gamma=0.5)(PLAYED, ("c", *TEAM))
    assert found["value"].tolist() == [0.5, 0.75, 1.75, 3.5]


def test_a_critic_needs_one_episode_a_task(models):
    recipe = lab.RECIPES["iac"].replace(plan=lab.episodes(1))
    [report] = lab.train(RELAY, small.make_team("shared", models), recipe, 1, tasks=4, check=False)
    assert report.stats["grad_norm"].min() > 0
