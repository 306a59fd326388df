"""Centers that look at the team: by hand, against plain loops on random tables, and on real gradients."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import AGENTS, Relay, make_team
from tables import candidates_table, episodes_table, joint_table, shuffled

import mas_lab as lab
from mas_lab.cells import centers
from mas_lab.cells.centers import squared_scores
from mas_lab.policy import Sample

RECIPES = ("own_optimal", "own_robust")
TEAM = "a team whose scores stand in the column `square`"


@pytest.fixture(autouse=True, scope="module")
def scores_of_a_column():
    """A table with a column `square` has its |z|^2 there, so that it needs no model."""
    with pytest.MonkeyPatch.context() as patch:
        measured = centers.squared_scores
        patch.setattr(
            centers,
            "squared_scores",
            lambda team, rows: rows["square"] if team == TEAM else measured(team, rows),
        )
        yield


def table(*rows):
    """Rows of (task, episode, credit, |z|^2), all of one agent."""
    turns = pd.DataFrame(rows, columns=["task", "episode", "team_reward", "square"])
    return turns.assign(agent="a", group=turns["task"], credit=turns["team_reward"])


TWO_TASKS = table(("t", 1, 1.0, 1.0), ("t", 2, 0.0, 3.0), ("t", 3, 0.0, 1.0), ("u", 4, 1.0, 2.0), ("u", 5, 0.0, 2.0))


def test_the_optimal_mean_by_hand():
    """Means 1/3 and 1/2; within 7/6 over 3, between 1/30 - 7/18 < 0: the groups do not differ, so each row meets the b*
    of the other task, 2 / 4 for those of t and 1 / 5 for those of u."""
    assert centers.optimal_mean()(TWO_TASKS, TEAM).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.2, 0.2])
    alone = centers.optimal_mean()(TWO_TASKS[:3], TEAM)
    assert alone.tolist() == pytest.approx([0.0, 1 / 2, 1 / 4]), "a single task: b* of the other episodes"


def test_groups_that_differ_keep_their_own_means():
    """Credits 1, 0.9 and 0, 0.1: within 0.005, between 0.81 - 0.005 over 4 - 8 / 4 = 2."""
    turns = table(("t", 1, 1.0, 1.0), ("t", 2, 0.9, 1.0), ("u", 3, 0.0, 1.0), ("u", 4, 0.1, 1.0))
    share = 0.4025 / (0.4025 + 0.005)
    expected = [0.9 * share + 0.05 * (1 - share), 1.0 * share + 0.05 * (1 - share)]
    assert centers.optimal_mean()(turns, TEAM).tolist()[:2] == pytest.approx(expected)


def test_the_shrunken_mean_by_hand():
    """The task's means are the agent's own, so that its usual distance is 0 and nothing differs between tasks: each row
    meets the mean of its task's other episodes."""
    assert centers.shrunken_mean()(TWO_TASKS).tolist() == pytest.approx([0, 0.5, 0.5, 0, 1])


def test_rows_that_move_no_weights_have_no_b_star():
    """Sums of |z|^2 without the row's own episode leave rounding errors, which are no weight: rows of t meet b* of u,
    and the other way round."""
    tiny = TWO_TASKS.assign(square=[1e8 / 3, 1e-300, 0.0, 2.0, 2.0])
    assert np.isfinite(centers.optimal_mean()(tiny, TEAM)).all()
    still = centers.optimal_mean()(TWO_TASKS.assign(square=0.0), TEAM)
    assert still.tolist() == TWO_TASKS["credit"].tolist()


def test_a_row_without_a_peer_gets_no_advantage():
    lone = pd.concat([TWO_TASKS, table(("v", 6, 1.0, 1.0))], ignore_index=True).assign(valid=True)
    turns = lone.drop(columns=["group", "credit"]).assign(depth=0, kept=True)
    for name in RECIPES:
        advantage = lab.RECIPES[name].advantages(turns, TEAM)["advantage"]
        assert advantage.iloc[5] == 0 and (advantage.iloc[:5] != 0).any()


@pytest.mark.parametrize("name", RECIPES)
@settings(max_examples=12)
@given(seed=st.integers(0, 2**32 - 1))
def test_both_agree_with_plain_loops_in_any_order_of_the_rows(name, seed):
    turns = episodes_table(seed)
    turns["square"] = np.random.default_rng(seed).exponential(size=len(turns))
    turns["mark"] = range(len(turns))
    advantage = lab.RECIPES[name].advantages(turns, TEAM)["advantage"]
    squares = [turns["square"].tolist()] if name == "own_optimal" else []
    expected = getattr(reference, name)(turns.to_dict("records"), *squares)
    np.testing.assert_allclose(advantage, expected, rtol=0, atol=1e-8)
    again = shuffled(turns, np.random.default_rng(seed))
    after = lab.RECIPES[name].advantages(again, TEAM).set_index("mark")["advantage"]
    assert after.sort_index().tolist() == advantage.tolist()


@pytest.mark.parametrize("name", RECIPES)
def test_a_center_does_not_depend_on_what_its_own_episode_earned(name):
    """Otherwise the expected gradient would change with the baseline. (The weight w alone looks at all rows.)"""
    turns = episodes_table(3).assign(credit=lambda rows: np.random.default_rng(0).random(len(rows)))
    turns = turns.assign(square=np.arange(len(turns)) % 5 + 1.0, group=turns["task"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(centers, "share_of_own", lambda rows, others, values: pd.Series(0.5, rows.index))
        center = lab.RECIPES[name].center
        team = [TEAM] if name == "own_optimal" else []
        before = center(turns, *team)
        for episode in turns["episode"].unique():
            own = turns["episode"] == episode
            after = center(turns.assign(credit=turns["credit"] + 7.0 * own), *team)
            compared = turns.groupby(["task", "agent"])["episode"].transform("nunique") > 1
            assert after[own & compared].tolist() == pytest.approx(before[own & compared].tolist())


@pytest.fixture(scope="module")
def played(models):
    team, env = make_team("per_agent", models), Relay()
    return lab.rollout(env, team, env.tasks(3, "train", 0), lab.episodes(3), seed=0)


def test_the_measured_norms_are_those_of_each_rows_gradient(played, models):
    team = make_team("per_agent", models)
    for policy in team.policies.values():
        policy.set_gradients([torch.full_like(p, 0.5) for p in policy.parameters.values()])
    found = squared_scores(team, played)
    for row in played.sample(6, random_state=0).itertuples():
        policy = team[row.agent]
        assert all((gradient == 0.5).all() for _, gradient in policy.gradients()), "the policy's own are back"
        sample = Sample(row.prompt_ids, row.completion_ids, row.logprobs, row.temperature, 1.0, 1.0)
        gradient = torch.autograd.grad(policy.logprobs([sample]).sum(), list(policy.parameters.values()))
        assert found[row.Index] == pytest.approx(sum(g.square().sum().item() for g in gradient), rel=1e-4)


def test_a_frozen_agent_is_not_measured(played, models):
    team = lab.Team(dict(make_team("per_agent", models)), frozen=("doer",))
    assert squared_scores(team, played).notna().equals(played["agent"] == "asker")


def test_the_optimal_mean_asks_for_the_team(played, models):
    with pytest.raises(ValueError, match=r"normalize: optimal_mean\(\) needs the team .* recipe.advantages\("):
        lab.RECIPES["own_optimal"].advantages(played)
    judged = lab.RECIPES["own_optimal"].advantages(played, make_team("per_agent", models))
    assert set(judged["agent"]) == set(AGENTS) and (judged["advantage"] != 0).any()


@pytest.mark.parametrize("name", [name for name in lab.RECIPES if name not in ("own_optimal", "c3", "ccpo")])
def test_the_team_changes_no_other_recipe(name):
    joint = isinstance(lab.RECIPES[name].plan, lab.joint)
    turns = candidates_table(5) if name == "at_grpo" else joint_table(5, "cross", 1.0) if joint else episodes_table(5)
    found = [lab.RECIPES[name].advantages(turns, *team) for team in ((), (None,), ("any team",))]
    for other in found[1:]:
        pd.testing.assert_frame_equal(found[0], other, check_exact=True)


@dataclass(frozen=True)
class half_of_team:
    """A center of one's own that needs the team."""

    calls: list
    needs_team = True

    def __call__(self, turns, team):
        self.calls.append(team)
        return turns["credit"] / 2


def test_a_center_or_scale_that_needs_the_team_gets_it(played, models):
    calls, team = [], make_team("per_agent", models)
    recipe = lab.RECIPES["grpo"].replace(once_per=None, center=half_of_team(calls), scale=half_of_team(calls))
    recipe.advantages(played, team)
    list(lab.train(Relay(), team, recipe.replace(plan=lab.episodes(3)), 1, tasks=2))
    assert len(calls) == 4 and all(one is team for one in calls)
    with pytest.raises(ValueError, match=r"normalize: half_of_team\(.* needs the team that played the turns; pass it"):
        recipe.advantages(played)


def test_a_function_may_need_the_team(played, models):
    def weighted(turns, team):
        return turns["agent"].isin(team.frozen).astype(float)

    weighted.needs_team = True
    team = make_team("per_agent", models)
    found = [lab.normalize(lab.group(played, "task", lab.episode_return()), center=weighted, team=team),
             lab.group(played, "task", weighted, team=team)]  # fmt: skip
    assert (found[0]["center"] == 0).all() and (found[1]["credit"] == 0).all()
