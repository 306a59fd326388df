"""Policies on different devices learn at the same time, and what they learn is what they would learn in turn.

The CPU has two names here, `cpu` and `cpu:0`, which torch takes for two devices.
"""

import threading

import pandas as pd
import pytest
import small
import torch

import mas_lab as lab

TOGETHER = 60.0
"""Seconds that one policy waits for the other to begin."""


def make_team(models, second: str) -> lab.Team:
    devices = {"asker": "cpu", "doer": second}
    return lab.Team.per_agent(lambda agent: lab.load_policy(models / "a", lr=1e-2, device=devices[agent]), small.AGENTS)


def learn(team: lab.Team, **options):
    env = small.Relay()
    turns = lab.rollout(env, team, env.tasks(3, "train", 0), lab.tree(3))
    stats = lab.update(team, small.RECIPE.advantages(turns), minibatches=2, **options)
    return turns, stats, [parameter.detach() for agent in team for parameter in team[agent].parameters.values()]


def watch_threads(team: lab.Team, wait=lambda: None) -> dict[str, set[int]]:
    """In which threads each policy makes its passes; `wait` is called first."""
    seen: dict[str, set[int]] = {agent: set() for agent in team}

    def watched(agent, forward_backward):
        def passes(samples, loss):
            if samples:
                seen[agent].add(threading.get_ident())
                wait()
            return forward_backward(samples, loss)

        return passes

    for agent, policy in team.items():
        policy.forward_backward = watched(agent, policy.forward_backward)
    return seen


def test_two_devices_at_once_give_what_one_gives(models):
    in_turn, at_once = make_team(models, "cpu"), make_team(models, "cpu:0")
    assert at_once["asker"].device != at_once["doer"].device
    both = threading.Barrier(2, timeout=TOGETHER)  # each waits until the other has begun: in turn, neither would end
    seen = watch_threads(at_once, both.wait)
    results = [learn(team) for team in (in_turn, at_once)]
    for one, other in zip(results[0][:2], results[1][:2], strict=True):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert all(torch.equal(one, other) for one, other in zip(results[0][2], results[1][2], strict=True))
    assert threading.get_ident() not in seen["asker"] | seen["doer"]


@pytest.mark.parametrize("kind", ["per_agent", "lora"])
def test_one_device_is_one_after_the_other(kind, models):
    team = small.make_team(kind, models)
    seen = watch_threads(team)
    learn(team)
    assert seen == {agent: {threading.get_ident()} for agent in team}


def test_an_error_on_one_device_ends_the_step_for_all(models):
    team = make_team(models, "cpu:0")
    with torch.no_grad():
        team["doer"].model.get_input_embeddings().weight[5] = float("nan")
    before = [parameter.clone() for parameter in team["asker"].parameters.values()]
    env = small.Relay()
    turns = lab.rollout(env, make_team(models, "cpu"), env.tasks(3, "train", 0), lab.tree(3))
    with pytest.raises(lab.UpdateError, match="policy 'doer' is not finite"):
        lab.update(team, small.RECIPE.advantages(turns))
    after = team["asker"].parameters.values()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(parameter.grad is None for agent in team for parameter in team[agent].parameters.values())
