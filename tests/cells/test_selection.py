"""Which rows are trained on: marked, never dropped; what `update` counts then, and a user's own selector."""

import numpy as np
import pandas as pd
import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.table import TableError

RELAY = Relay()


def table(**columns):
    return pd.DataFrame(columns)


def test_rows_of_groups_that_vary_are_marked_and_none_is_dropped():
    turns = table(group=list("aabbbc"), credit=[1.0, 1.0, 0.0, 1.0, 0.5, 7.0])
    chosen = lab.select(turns, lab.not_flat())
    assert chosen["selected"].tolist() == [False, False, True, True, True, False]
    pd.testing.assert_frame_equal(chosen.drop(columns="selected"), turns)
    almost = lab.select(table(group="a", credit=[0.1 + 0.2, 0.3]), lab.not_flat())
    assert not almost["selected"].any()  # they differ by rounding alone


def test_a_continuation_that_values_a_candidate_neither_counts_nor_is_selected():
    turns = table(group="a", credit=[1.0, 1.0, 0.0], probe=[False, False, True])
    assert lab.select(turns, lab.not_flat())["selected"].tolist() == [False, False, False]
    assert lab.select(turns, lambda rows: rows["credit"] < 9)["selected"].tolist() == [True, True, False]


def test_what_a_selector_may_not_answer_is_refused_with_its_place():
    turns = table(task=["t", "u"], group="a", credit=[1.0, 0.0])
    with pytest.raises(TableError, match=r"select: .* gave list; it must give a Series of True and False"):
        lab.select(turns, lambda rows: [True, False])
    with pytest.raises(TableError, match=r"select: column 'selected' is neither True nor False \(0\.5\) at task 'u'"):
        lab.select(turns, lambda rows: pd.Series([1.0, 0.5]))
    with pytest.raises(TableError, match="select: column 'selected' is already there"):
        lab.select(turns.assign(selected=True), lab.not_flat())
    with pytest.raises(TableError, match="not_flat: column 'credit' is missing; it is added by `group`"):
        lab.select(turns.drop(columns="credit"), lab.not_flat())


def test_rows_that_are_left_out_count_in_the_baseline_or_not_as_the_recipe_says():
    """A cut-off answer that earned 0 beside one right and one wrong answer."""
    turns = table(
        task="t", episode=list("abc"), agent="x", team_reward=[1.0, 0.0, 0.0], finish=["eos", "eos", "length"]
    )
    after = lab.RECIPES["dr_mas"].replace(select=lambda rows: rows["finish"] == "eos", scale="none")
    found = after.advantages(turns)
    assert found["center"].tolist() == pytest.approx([1 / 3] * 3)
    assert found["advantage"].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    found = after.replace(select=None).advantages(turns.assign(probe=turns["finish"] == "length"))
    assert found["center"].tolist() == [0.5] * 3 and found["advantage"].tolist() == [0.5, -0.5, 0.0]


@pytest.fixture(scope="module")
def half_flat(models):
    """Four tasks of three candidates each a turn; in two of the tasks all candidates earned alike."""
    turns = lab.rollout(RELAY, make_team("shared", models), RELAY.tasks(4, "train", 0), lab.tree(3))
    order = np.arange(len(turns)) % 3
    lively = turns["task"].isin(turns["task"].unique()[:2])
    turns = turns.assign(local_reward=np.where(lively, order, 1.0), team_reward=0.0)
    recipe = lab.RECIPES["at_grpo"].replace(select=lab.not_flat())
    turns = recipe.advantages(turns)
    assert turns["selected"].tolist() == lively.tolist()
    return turns


@pytest.mark.parametrize("aggregate", ["token", "agent"])
def test_update_trains_on_the_selected_rows_and_counts_them_alone(half_flat, models, aggregate):
    """Flat rows add nothing to the gradient: with them it is smaller, by what they add to the denominator."""

    def stats(turns):
        team = make_team("shared", models)
        return lab.update(team, turns, lab.clipped(0.2), aggregate, max_norm=None).set_index("agent")

    chosen, every = stats(half_flat), stats(half_flat.drop(columns="selected"))
    alone = stats(half_flat[half_flat["selected"]].drop(columns="selected"))
    pd.testing.assert_frame_equal(chosen, alone)
    own = half_flat[half_flat["selected"]]
    for agent in RELAY.agents:
        every_row, own_row = ((rows["agent"] == agent if aggregate == "agent" else rows["agent"] != "") *
                              (rows["completion_ids"].map(len) if aggregate == "token" else 1)
                              for rows in (half_flat, own))  # fmt: skip
        ratio = every_row.sum() / own_row.sum()
        assert ratio > 1.5
        assert chosen.loc[agent, "grad_norm"] == pytest.approx(ratio * every.loc[agent, "grad_norm"], rel=1e-4)
        assert chosen.loc[agent, "turns"] == (own["agent"] == agent).sum() < every.loc[agent, "turns"]


def test_where_nothing_is_selected_no_optimizer_steps(half_flat, models):
    team = make_team("shared", models)
    before = {name: value.detach().clone() for name, value in team["asker"].parameters.items()}
    with pytest.raises(TableError, match="update: column 'selected' is neither True nor False"):
        lab.update(team, half_flat.assign(selected="yes"))
    stats = lab.update(team, half_flat.assign(selected=False))
    assert len(stats) == 0 and all(value.equal(team["asker"].parameters[name]) for name, value in before.items())
    assert list(stats.columns) == list(lab.update(team, half_flat, max_norm=1e-9).columns)
