"""The shrunken mean, by hand and against plain loops on random tables; centers that need the team."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Relay, make_team
from tables import candidates_table, episodes_table, joint_table, shuffled

import mas_lab as lab
from mas_lab.cells import centers


def table(*rows):
    """Rows of (task, episode, credit), all of one agent."""
    turns = pd.DataFrame(rows, columns=["task", "episode", "team_reward"])
    return turns.assign(agent="a", group=turns["task"], credit=turns["team_reward"])


TWO_TASKS = table(("t", 1, 1.0), ("t", 2, 0.0), ("t", 3, 0.0), ("u", 4, 1.0), ("u", 5, 0.0))


def test_a_row_without_a_peer_gets_no_advantage():
    lone = pd.concat([TWO_TASKS, table(("v", 6, 1.0))], ignore_index=True).assign(valid=True)
    turns = lone.drop(columns=["group", "credit"]).assign(depth=0, kept=True)
    advantage = lab.RECIPES["own_robust"].advantages(turns)["advantage"]
    assert advantage.iloc[5] == 0 and (advantage.iloc[:5] != 0).any()


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32 - 1))
def test_it_agrees_with_plain_loops_in_any_order_of_the_rows(seed):
    turns = episodes_table(seed)
    turns["mark"] = range(len(turns))
    recipe = lab.RECIPES["own_robust"]
    advantage = recipe.advantages(turns)["advantage"]
    np.testing.assert_allclose(advantage, reference.own_robust(turns.to_dict("records")), rtol=0, atol=1e-8)
    after = recipe.advantages(shuffled(turns, np.random.default_rng(seed))).set_index("mark")["advantage"]
    assert after.sort_index().tolist() == advantage.tolist()


def test_a_center_does_not_depend_on_what_its_own_episode_earned(monkeypatch):
    """Otherwise the expected gradient would change with the baseline. (The weight w alone looks at all rows.)"""
    turns = episodes_table(3).assign(credit=lambda rows: np.random.default_rng(0).random(len(rows)))
    turns = turns.assign(group=turns["task"])
    monkeypatch.setattr(centers, "share_of_own", lambda rows, others, values: pd.Series(0.5, rows.index))
    center = centers.shrunken_mean()
    before = center(turns)
    for episode in turns["episode"].unique():
        own = turns["episode"] == episode
        after = center(turns.assign(credit=turns["credit"] + 7.0 * own))
        compared = turns.groupby(["task", "agent"])["episode"].transform("nunique") > 1
        assert after[own & compared].tolist() == pytest.approx(before[own & compared].tolist())


@pytest.fixture(scope="module")
def played(models):
    team, env = make_team("per_agent", models), Relay()
    return lab.rollout(env, team, env.tasks(3, "train", 0), lab.episodes(3), seed=0)


@pytest.mark.parametrize("name", [name for name in lab.RECIPES if name not in ("c3", "ccpo")])
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
