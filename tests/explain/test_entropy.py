"""Entropies of tokens against a full softmax in plain torch, and the warning under other weights."""

import warnings

import numpy as np
import pandas as pd
import plain_torch
import pytest
import torch
from small import AGENTS, KINDS, Relay, make_team

import mas_lab as lab

RELAY = Relay()
COLD = {"doer": lab.Sampling(temperature=0.7)}


def played(team):
    return lab.rollout(RELAY, team, RELAY.tasks(2, "train", 0), lab.tree(3))


@pytest.mark.parametrize("kind", KINDS)
def test_entropies_are_those_of_the_full_softmax_at_the_rows_temperature(kind, models):
    team = make_team(kind, models)
    team = lab.Team({agent: team[agent] for agent in AGENTS}, sampling=COLD)
    turns = played(team).iloc[::-1]  # an index of its own, which stays
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = lab.entropies(team, turns)
    assert found.index.equals(turns.index) and list(found)[-1] == "entropies" and "entropies" not in turns
    assert set(found["temperature"]) == {1.0, 0.7}
    for name, own in found.groupby("policy"):
        team.policies[name].activate()
        with torch.no_grad():
            entropy_N = plain_torch.token_logprobs(team.policies[name].shared.net, own.to_dict("records"))[1]
        assert np.concatenate(own["entropies"].tolist()) == pytest.approx(entropy_N.numpy(), abs=1e-5)
    assert found["entropies"].map(len).equals(found["completion_ids"].map(len))


def test_other_weights_are_told(models):
    team = make_team("unlike", models)
    turns = lab.RECIPES["at_grpo"].advantages(played(team))
    lab.update(team, turns, max_norm=None, lr_scale=10)
    with pytest.warns(UserWarning, match="policy 'asker' gives a token a log-probability that differs by [0-9]"):
        after = lab.entropies(team, turns)
    assert np.isfinite(np.concatenate(after["entropies"].tolist())).all()


def test_greedy_tokens_have_none_and_a_person_has_no_tokens(models):
    team = make_team("shared", models)
    policy, turns = team["asker"], played(team)
    policy.set_gradients([torch.full_like(p, 0.5) for p in policy.parameters.values()])
    version = policy.version
    turns.loc[0, "temperature"] = 0.0
    person = turns.iloc[[1]].assign(policy="person", temperature=float("nan"))
    person = person.assign(**{name: [[]] for name in ("prompt_ids", "completion_ids", "logprobs")})
    found = lab.entropies(team, pd.concat([turns, person], ignore_index=True))["entropies"]
    assert found[0] == [0.0] * len(turns["completion_ids"][0]) and found.iloc[-1] == []
    assert policy.version == version and all((p.grad == 0.5).all() for p in policy.parameters.values())
    with pytest.raises(lab.TableError, match="policy 'who' is none of the team's \\(shared\\)"):
        lab.entropies(team, turns.assign(policy="who"))
