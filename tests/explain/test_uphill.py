"""Which recipe points uphill: cosines by hand, on a real policy, and what is left untold."""

import numpy as np
import pytest
from small import AGENTS, Relay, make_team

import mas_lab as lab
from mas_lab.explain import uphill as module
from mas_lab.explain.uphill import cosines, weights_of

MEAN = lab.RECIPES["own_robust"].replace(name="mean", scale="none", lone="zero")


def test_each_gradient_is_compared_with_the_other_rollouts():
    """References (1, 0), (0, 1), (1, 1): the others of the first sum to (1, 2), of the second to (2, 1)."""
    found = cosines(
        [np.array(g) for g in ([1.0, 2.0], [1.0, -2.0], [0.0, 0.0])], np.eye(3, 2) + [[0, 0], [0, 0], [1, 1]]
    )
    assert found[:2] == pytest.approx([1.0, 0.0]) and np.isnan(found[2])


def test_the_references_leave_out_the_rows_own_task(models):
    team = make_team("per_agent", models)
    turns = lab.rollout(Relay(), team, Relay().tasks(3, "train", 0), lab.episodes(4), seed=0)
    weights = weights_of(turns, {"grpo": lab.RECIPES["grpo"]}, team)
    for agent in AGENTS:
        own = turns[turns["agent"] == agent]
        for task in own["task"].unique():
            here = own["task"] == task
            expected = own.loc[here, "local_reward"] - own.loc[~here, "local_reward"].mean()
            assert weights.loc[expected.index, "own"].to_numpy() == pytest.approx(expected.to_numpy())


def test_the_gradient_of_the_return_points_uphill_and_its_opposite_downhill(models):
    """A recipe of negated credits has the opposite gradient, row by row, so the opposite cosines."""
    team = make_team("per_agent", models)
    before = {name: [p.clone() for p in policy.parameters.values()] for name, policy in team.policies.items()}
    down = MEAN.replace(name="down", by=("task", "agent"), credit=lambda turns: -lab.episode_return()(turns))
    found = lab.uphill(team, Relay(), [MEAN, down, "grpo"], rollouts=4, tasks=8).set_index(["recipe", "agent"])
    assert found.loc["mean", "cos_team"].to_numpy() == pytest.approx(
        -found.loc["down", "cos_team"].to_numpy(), abs=1e-5
    )
    assert found.loc[("mean", "doer"), "cos_team"] > 0.1 and (found["rows"] > 10).all()
    assert (found["low"] <= found["cos_own"]).all() and (found["cos_own"] <= found["high"]).all()
    for name, policy in team.policies.items():
        assert all((a == b).all() for a, b in zip(before[name], policy.parameters.values(), strict=True))
        assert policy.gradient_norm() == 0
    assert set(lab.schema("uphill")["column"]) == set(found.reset_index().columns)


def test_a_sketch_keeps_cosines(models, monkeypatch):
    exact = lab.uphill(make_team("per_agent", models), Relay(), ["grpo"], rollouts=3, tasks=6)
    monkeypatch.setattr(module, "EXACT", 100)
    sketched = lab.uphill(make_team("per_agent", models), Relay(), ["grpo"], rollouts=3, tasks=6)
    for column in ("cos_team", "cos_own", "norm"):
        assert sketched[column].to_numpy() == pytest.approx(exact[column].to_numpy(), abs=0.02)


def test_few_rows_are_untold_and_recipes_that_explore_differently_are_refused(models):
    team = make_team("per_agent", models)
    few = lab.RECIPES["dr_mas"].replace(plan=lab.episodes(2))
    assert set(lab.uphill(team, Relay(), [few], rollouts=2, tasks=1)["verdict"]) == {"untold"}
    for recipes, wrong in ((["grpo", "at_grpo"], "one plan"), (["grpo", "grpo"], "one name")):
        with pytest.raises(ValueError, match=wrong):
            lab.uphill(team, Relay(), recipes)
    with pytest.raises(ValueError, match="rollouts"):
        lab.uphill(team, Relay(), rollouts=1)
