"""Shares and norms of gradients against gradients made again, and the lemma on a batch."""

import numpy as np
import pandas as pd
import pytest
import torch
from small import Relay, make_team

import mas_lab as lab
from mas_lab.cells.update import compute_gradients, policy_batches
from mas_lab.explain.diagnostics import norm_without
from mas_lab.explain.moments import both_baselines

RELAY = Relay()


@pytest.fixture(scope="module")
def sampled(models):
    """Whole episodes, with both baselines' advantages apart: the doer of one episode in three is left out."""
    turns = lab.rollout(RELAY, make_team("shared", models), RELAY.tasks(3, "train", 0), lab.episodes(5), seed=1)
    turns = turns[(turns["agent"] == "asker") | ~turns["episode"].str.endswith(("1", "3"))].reset_index(drop=True)
    return lab.RECIPES["dr_mas"].advantages(turns)


def gradient_norms(team, turns, **options):
    found = {}
    lab.update(team, turns, watch=lambda batch: found.setdefault(batch.name, batch.norm), **options)
    return found


@pytest.mark.parametrize("kind", ["shared", "per_agent", "lora"])
def test_shares_sum_to_one_and_nothing_moves(kind, sampled, models):
    team = make_team(kind, models)
    for policy in team.policies.values():
        policy.set_gradients([torch.full_like(p, 0.5) for p in policy.parameters.values()])
    before = [p.detach().clone() for policy in team.policies.values() for p in policy.parameters.values()]
    shares = lab.attribute(team, sampled, aggregate="agent")
    assert shares.groupby("policy")["share"].sum().tolist() == pytest.approx([1.0] * len(team.policies), abs=1e-4)
    after = [p for policy in team.policies.values() for p in policy.parameters.values()]
    assert all(torch.equal(old, new) and (new.grad == 0.5).all() for old, new in zip(before, after, strict=True))
    assert list(shares) == ["policy", "agent", "group", "row", "token", "share", "exact"] and shares["exact"].all()
    assert (sampled["group"].iloc[shares["row"]].to_numpy() == shares["group"]).all()


def test_a_samples_share_is_what_removing_it_takes_away(sampled, models):
    """<g_i, G> = (|G|^2 + |g_i|^2 - |G - g_i|^2) / 2, with |G - g_i| and |g_i| from batches made again."""
    team = make_team("shared", models)
    shares = lab.attribute(team, sampled, aggregate="sum").groupby("row")["share"].sum().sort_values(key=abs)
    rows, advantage = shares.index[[-1, -2, 0]].tolist(), sampled["advantage"].to_numpy()
    [[batch]] = policy_batches(team, sampled, lab.clipped(0.2), "sum")
    batch = compute_gradients(batch)
    for row in rows:
        others, alone = np.where(np.arange(len(sampled)) == row, [[0], [1]], [[1], [0]]) * advantage
        left = gradient_norms(make_team("shared", models), sampled.assign(advantage=others), aggregate="sum")["shared"]
        own = gradient_norms(make_team("shared", models), sampled.assign(advantage=alone), aggregate="sum")["shared"]
        norm = batch.norm
        assert norm_without(batch, row) == pytest.approx(left, rel=1e-4) and batch.norm == norm
        assert shares[row] == pytest.approx((norm**2 + own**2 - left**2) / 2 / norm**2, abs=1e-4)
    [[batch]] = policy_batches(
        team, sampled.assign(advantage=advantage * (sampled.index != 2)), lab.clipped(0.2), "sum"
    )
    batch = compute_gradients(batch)
    assert norm_without(batch, 2) == batch.norm > 0, "a row without advantage takes nothing away"


def test_both_baselines_are_those_of_the_recipes(sampled):
    advantages = both_baselines(sampled)
    turns = sampled.drop(columns=["credit", "group", "center", "scale", "advantage"])
    for name, recipe in (("global", "grpo"), ("agent", "dr_mas")):
        expected = lab.RECIPES[recipe].advantages(turns)["advantage"]
        pd.testing.assert_series_equal(advantages[name], expected, check_names=False)


@pytest.fixture
def without_forward_mode(models):
    """A team whose policies refuse slopes, as a back end without forward mode does."""
    team = make_team("per_agent", models)

    def refuse(*_):
        raise lab.PolicyError("no forward mode")

    for policy in team.policies.values():
        policy.directional_derivatives = refuse
    return team


def test_without_forward_mode_the_shares_are_a_proxy_and_say_so(sampled, without_forward_mode):
    found = lab.attribute(without_forward_mode, sampled, aggregate="turn")
    assert not found["exact"].any() and found["share"].ge(0).all()
    row = sampled["advantage"].abs().idxmax()
    own, mine = sampled.loc[row], found[found["row"] == row]
    others = sampled[(sampled["agent"] == own["agent"]) & (sampled["advantage"] != 0)]
    sizes = [abs(a) / len(ids) * sum(1 - np.exp(logprobs)) for a, ids, logprobs in
             zip(others["advantage"], others["completion_ids"], others["logprobs"], strict=True)]  # fmt: skip
    surprise = 1 - np.exp(own["logprobs"])
    expected = abs(own["advantage"]) / len(surprise) * surprise / sum(sizes)
    assert mine["share"].tolist() == pytest.approx(expected.tolist())


def test_a_watch_without_forward_mode_keeps_training_and_says_proxy(without_forward_mode):
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=1)
    settings = {"seed": 5, "tasks": 2, "minibatches": 2, "check": False}
    list(lab.train(RELAY, without_forward_mode, "dr_mas", 4, watch=watch, **settings))
    assert watch.spikes and not any(spike["exact"] for spike in watch.spikes)
    assert all(spike["without"] and set(spike["baselines"]) == {"global", "agent"} for spike in watch.spikes)
