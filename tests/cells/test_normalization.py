"""Every recipe against plain loops on random tables, and the laws of the comparison on tables small enough to check."""

import numpy as np
import pandas as pd
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import candidates_table, episodes_table, joint_table, shuffled

from mas_lab.cells.centers import pooled_deviation
from mas_lab.cells.credits import episode_return, mixed, return_to_go
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.recipes import RECIPES
from mas_lab.table import TableError

seeds = st.integers(0, 2**32 - 1)
often = settings(max_examples=6)
by_joint_actions = {name: getattr(reference, name) for name in ("magrpo", "mareinforce", "marloo", "maremax")}
by_episodes = {
    name: getattr(reference, name) for name in RECIPES if name not in (*by_joint_actions, "at_grpo", "c3", "ccpo")
}


def records(table):
    return table.to_dict("records")


def table(**columns):
    return pd.DataFrame(columns)


def by_task(credits, tasks="tttt"):
    """A grouped table with these credits."""
    return table(task=list(tasks)[: len(credits)], credit=credits).assign(group=lambda rows: rows["task"])


# The recipes


def agrees(recipe, turns, expected):
    """The recipe's advantages are these, and those of shuffled rows are the same to the last bit."""
    turns = turns.assign(mark=range(len(turns)))
    before = recipe.advantages(turns)
    np.testing.assert_allclose(before["advantage"], expected, rtol=0, atol=1e-9)
    after = recipe.advantages(shuffled(turns, np.random.default_rng(len(turns)))).set_index("mark")["advantage"]
    assert before["advantage"].tolist() == after.sort_index().tolist()


@pytest.mark.parametrize("name", by_episodes)
@often
@given(seed=seeds)
def test_recipes_over_episodes(name, seed):
    turns = episodes_table(seed)
    agrees(RECIPES[name], turns, by_episodes[name](records(turns)))


@often
@given(seed=seeds)
def test_own_pooled_with_the_deviation_within_groups(seed):
    turns = episodes_table(seed)
    recipe = RECIPES["own_pooled"].replace(scale=pooled_deviation())
    agrees(recipe, turns, reference.own_pooled_within(records(turns)))


@often
@given(seed=seeds, alpha=st.sampled_from([1.0, 0.5]))
def test_at_grpo(seed, alpha):
    turns = candidates_table(seed)
    agrees(RECIPES["at_grpo"].replace(credit=mixed(alpha)), turns, reference.at_grpo(records(turns), alpha))


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize("name", by_joint_actions)
@settings(max_examples=4)
@given(seed=seeds, gamma=st.sampled_from([1.0, 0.5, 0.0]))
def test_recipes_over_joint_actions(name, mode, seed, gamma):
    turns = joint_table(seed, mode, gamma)
    expected = by_joint_actions[name](records(turns), turns["return"].tolist())
    agrees(RECIPES[name].replace(credit=return_to_go(gamma)), turns, expected)


def peer_table():
    """Task t: agent a earned 0, 2, 4; agent b spoke once and earned 4; agent c earned 4 twice."""
    return table(task=["t"] * 6, agent=list("aaabcc"), credit=[0.0, 2.0, 4.0, 4.0, 4.0, 4.0]).assign(group="t")


def test_rows_without_a_peer_get_advantage_0_under_any_center():
    turns, peers = peer_table(), ("task", "agent")
    learned, masked = normalize(turns)["advantage"], normalize(turns, lone=peers)["advantage"]
    assert masked.tolist() == [*learned[:3], 0.0, 0.0, 0.0] and (learned[3:] > 0.6).all()
    assert normalize(turns, center="none", scale="none", lone=peers)["advantage"].tolist() == [0, 2, 4, 0, 0, 0]


# The papers' facts


@often
@given(seed=seeds)
def test_the_inflation_factor_is_the_mean_square_of_the_global_advantage(seed):
    """F_k = (sigma_k^2 + (mu_k - mu)^2) / sigma^2 (Dr. MAS, lemma 4.2), and it cannot exceed N - 1."""
    turns = group(episodes_table(seed), by="task", credit=episode_return())
    turns = normalize(turns, once_per="episode", eps=0.0)
    for _, rows in turns[turns["scale"] > 0].groupby("task"):
        returns = rows.groupby("episode")["credit"].first()
        for _, own in rows.groupby("agent"):
            factor = (own["credit"].var(ddof=0) + (own["credit"].mean() - returns.mean()) ** 2) / returns.var(ddof=0)
            assert (own["advantage"] ** 2).mean() == pytest.approx(factor, rel=1e-6, abs=1e-9)
            assert factor <= len(returns) - 1 + 1e-6


# The laws, on tables typed by hand


def test_five_rows_with_only_the_columns_that_are_named():
    turns = table(task=["t"] * 3 + ["u"] * 2, team_reward=[1.0, 2.0, 3.0, 0.0, 4.0])
    turns = normalize(group(turns, by=("task",), credit=mixed()), eps=0.0)
    assert list(turns.columns) == ["task", "team_reward", "credit", "group", "center", "scale", "advantage"]
    assert turns["center"].tolist() == [2.0, 2.0, 2.0, 2.0, 2.0]
    assert turns["scale"].tolist() == pytest.approx([(2 / 3) ** 0.5] * 3 + [2.0] * 2)
    assert turns["advantage"].tolist() == pytest.approx([-(1.5**0.5), 0.0, 1.5**0.5, -1.0, 1.0])


def test_a_unit_enters_with_its_mean_credit():
    turns = table(group="g", episode=list("aab"), credit=[0.0, 1.0, 2.5])  # units: 0.5 and 2.5
    turns = normalize(turns, once_per="episode", eps=0.0)
    assert set(turns["center"]) == {1.5} and set(turns["scale"]) == {1.0}
    assert turns["advantage"].tolist() == [-1.5, -0.5, 1.0]


@pytest.mark.parametrize("settings_", [{}, {"scale": "none"}, {"center": "none", "scale": ("group",)}])
def test_trap_2_a_lone_row_gets_0_and_never_its_raw_reward(settings_):
    turns = normalize(by_task([7.0, 1.0, 2.0], "abb"), **settings_)
    assert turns["advantage"].iloc[0] == 0.0 and turns["advantage"].iloc[1:].any()


@pytest.mark.parametrize("value", [0.1, 1e12])
def test_a_flat_group_gets_0_and_its_own_value_as_center(value):
    turns = normalize(by_task([value] * 3))
    assert turns["advantage"].tolist() == [0.0] * 3 and set(turns["center"]) == {value}
    for options in ({"scale": "none"}, {"center": "loo", "scale": "none"}, {"ddof": 1}):
        assert normalize(by_task([value] * 3), **options)["advantage"].tolist() == [0.0] * 3


def test_rows_of_several_steps_are_compared_step_by_step():
    turns = pd.concat([episodes_table(0).assign(step=0), episodes_table(1).assign(step=1)], ignore_index=True)
    recipe = RECIPES["dr_mas"]
    both = normalize(group(turns, recipe.by, recipe.credit), **recipe.normalization)
    pd.testing.assert_frame_equal(both, recipe.advantages(turns))


def test_leave_one_out_leaves_out_the_whole_unit():
    turns = table(group="g", episode=list("aabc"), credit=[0.0, 2.0, 4.0, 8.0])  # units 1, 4, 8
    turns = normalize(turns, center="loo", scale="none", once_per="episode")
    assert turns["center"].tolist() == pytest.approx([6.0, 6.0, 4.5, 2.5])


def test_ddof_and_eps():
    population, sample = (normalize(by_task([0.0, 2.0]), ddof=ddof, eps=0.5) for ddof in (0, 1))
    assert set(population["scale"]) == {1.5} and sample["scale"].iloc[0] == pytest.approx(2**0.5 + 0.5)
    assert population["advantage"].tolist() == pytest.approx([-1 / 1.5, 1 / 1.5])


def test_a_z_score_after_a_center_by_name_is_not_silent():
    with pytest.warns(UserWarning, match="center='loo' divided by the group's standard deviation"):
        normalize(by_task([0.0, 2.0]), center="loo")


@often
@given(seed=seeds)
def test_advantages_are_finite_and_nothing_that_was_there_changes(seed):
    turns = episodes_table(seed)
    before = turns.copy(deep=True)
    grouped = group(turns, ("task", "agent"), episode_return(0.1))
    grouped_before = grouped.copy(deep=True)
    done = normalize(grouped, ddof=1)
    pd.testing.assert_frame_equal(turns, before)
    pd.testing.assert_frame_equal(grouped, grouped_before)
    pd.testing.assert_frame_equal(done[turns.columns], before)
    assert np.isfinite(done[["center", "scale", "advantage"]]).all(axis=None)


@pytest.mark.parametrize("index", [[0, 0, 1, 1], list("dcba"), [7, 3, 5, 1]])
def test_the_index_means_nothing(index):
    turns = table(task="t", episode=list("wxyz"), turn=0, agent="x", team_reward=[1.0, 2.0, 4.0, 5.0])
    expected = RECIPES["dr_mas"].advantages(turns)["advantage"].tolist()
    marked = RECIPES["dr_mas"].advantages(turns.set_axis(index))
    assert marked["advantage"].tolist() == expected and list(marked.index) == index


def test_continuations_that_only_value_a_candidate_are_no_part_of_the_batch():
    turns = by_task([0.0, 2.0, 100.0]).assign(probe=[False, False, True])
    done = normalize(turns, eps=0.0)
    assert done["advantage"].tolist() == [-1.0, 1.0, 0.0] and set(done["center"][:2]) == {1.0}


def test_bad_calls_say_what_is_known():
    turns = by_task([0.0, 1.0])
    for table, words in (
        (turns.drop(columns="group"), "normalize: column 'group' is missing; it is added by `group`"),
        (by_task([0.0, float("nan")]), r"column 'credit' is empty .* at task 't'"),
        (turns.assign(scale=0.0), "normalize: column 'scale' is already there"),
    ):
        with pytest.raises(TableError, match=words):
            normalize(table)
    for options, words in (
        ({"center": ("task", "agent")}, "normalize: column 'agent' is missing"),
        ({"center": "median"}, "center='median'; known are 'loo', 'max', 'none', or a tuple such as"),
        ({"once_per": {"centre": "task"}}, r"once_per has the keys \['centre'\]"),
        ({"scale": lambda table: 1.0}, r"scale.* gave float for \d+ rows; give a Series on the table's index"),
        ({"center": lambda table: table.groupby("group")["credit"].mean()},
         r"center.* gave \d+ numbers on another index for \d+ rows; .*, such as turns.groupby.*transform\('mean'\)"),
        ({"scale": lambda table: table["credit"] * float("nan")}, "scale"),
        ({"scale": pooled_deviation(), "once_per": "task"}, "counts units of a scale group"),
        ({"lone": ("turn",)}, "'turn'"),
        ({"lone": "centre"}, "lone='centre'; known are 'zero', 'reward', 'lend', or a tuple"),
        ({"eps": -1.0}, r"eps=-1\.0 \(float\); give a number \(0 or more\)"),
        ({"lone": "lend", "scale": "none"}, "lone='lend' is about groups, and center=None, scale='none' have none"),
        ({"lone": "reward", "center": "none", "scale": "none"}, "lone="),
        ({"ddof": 2}, r"ddof is 0 .* or 1 .*, not 2"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            normalize(turns, **options)


def test_trap_7_a_padding_row_is_refused_where_it_would_enter_the_statistics():
    turns = candidates_table(1)
    padded = pd.concat([turns, turns.iloc[[3]]], ignore_index=True)
    with pytest.raises(TableError, match=r"\(node, candidate, agent\) occurs twice, at task 't\d', .*turn"):
        RECIPES["at_grpo"].advantages(padded)
    grouped = RECIPES["at_grpo"].advantages(turns).drop(columns=["center", "scale", "advantage"])
    with pytest.raises(TableError, match=r"normalize: .*occurs twice, at task 't\d'"):
        normalize(pd.concat([grouped, grouped.iloc[[3]]], ignore_index=True))


def test_trap_11_no_two_recipes_are_the_same_under_two_names():
    rest = [recipe.replace(name="") for recipe in RECIPES.values()]
    assert all(one != other for number, one in enumerate(rest) for other in rest[:number])
    turns = episodes_table(13)
    found = {name: RECIPES[name].advantages(turns)["advantage"].round(6).tolist() for name in by_episodes}
    assert len({tuple(values) for values in found.values()}) == len(found)


def test_rewards_that_differ_by_the_rounding_of_float32_are_flat():
    """0.3 in float32 is 0.30000001192...; under "loo" without eps the difference would become an advantage of 1."""
    noisy = [float(np.float32(0.3)), 0.3, float(np.float32(0.3)), 0.3]
    for credit in (noisy, [1e6 * one for one in noisy], [-one for one in noisy]):
        turns = table(group=["g"] * 4, agent=["x"] * 4, credit=credit)
        for options in ({"center": "loo", "eps": 0.0}, {}, {"center": "loo", "scale": pooled_deviation()}):
            assert (normalize(turns, **options)["advantage"] == 0).all()
        other = table(group="h", agent="y", credit=[1.0, 0.0])  # a center of other rows is not divided by eps either
        both = normalize(pd.concat([turns, other]).assign(task="t"), center=("task",), scale=("task", "agent"))
        assert (both["advantage"][:4] == 0).all() and (both["advantage"][4:] != 0).all()
    for credit in ([0.3, 0.3001], [1000.0, 1000.01], [1e-9, 2e-9]):  # differences of a task, however small
        assert normalize(table(group=["g"] * 2, credit=credit), eps=0.0)["advantage"].tolist() == pytest.approx([-1, 1])


# What dr_mas_std does to an agent that is called where the team fails


def called_helper():
    """Eight episodes a task, a helper called in four of them: once it helps, for 0.2, and in the other task never."""
    helped = table(task="t", episode=range(4), agent="helper", team_reward=[0.2, 0.0, 0.0, 0.0])
    failed = table(task="u", episode=range(10, 14), agent="helper", team_reward=0.0)
    alone = table(task=list("ttttuuuu"), episode=[*range(4, 8), *range(14, 18)], agent="solver", team_reward=1.0)
    return pd.concat([helped, failed, alone], ignore_index=True).assign(turn=0)


def test_where_an_agents_own_rewards_do_not_vary_the_std_is_biased_and_may_be_lent():
    turns = RECIPES["dr_mas_std"].advantages(called_helper())
    assert turns["advantage"][:8].round(2).tolist() == [-3.75, -6.06, -6.06, -6.06, 0, 0, 0, 0]
    own = RECIPES["dr_mas"].advantages(called_helper())["advantage"]
    assert own[:8].round(2).tolist() == [1.73, -0.58, -0.58, -0.58, 0, 0, 0, 0]
    turns = RECIPES["dr_mas_std"].replace(lone="lend", eps=0.0).advantages(called_helper())
    assert turns["advantage"][:8].round(2).tolist() == [-3.75, -6.06, -6.06, -6.06, -1, -1, -1, -1]
    assert turns["scale"][4:8].tolist() == [0.5] * 4
    everyone_alike = called_helper().assign(team_reward=1.0)
    assert (RECIPES["dr_mas_std"].replace(lone="lend").advantages(everyone_alike)["advantage"] == 0).all()
    lone = by_task([1.0, 2.0]).assign(agent=["x", "y"])
    lent = normalize(lone, center=("task",), scale=("agent",), lone="lend", eps=0.0)
    assert lent["advantage"].tolist() == [-1.0, 1.0]
