"""Every recipe against plain loops on random tables, and the laws of the comparison on tables small enough to check."""

import numpy as np
import pandas as pd
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import candidates_table, episodes_table, joint_table, shuffled

from mas_lab.cells.centers import group_mean, pooled_deviation
from mas_lab.cells.credits import episode_return, mixed, return_to_go
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import group_stats, normalize
from mas_lab.recipes import RECIPES
from mas_lab.table import TableError, refuse_lone_groups

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


@pytest.mark.parametrize("name", by_episodes)
@often
@given(seed=seeds)
def test_recipes_over_episodes(name, seed):
    turns = episodes_table(seed)
    expected = by_episodes[name](records(turns))
    np.testing.assert_allclose(RECIPES[name].advantages(turns)["advantage"], expected, rtol=0, atol=1e-9)


@often
@given(seed=seeds)
def test_own_pooled_with_the_deviation_within_groups(seed):
    turns = episodes_table(seed)
    recipe = RECIPES["own_pooled"].replace(scale=pooled_deviation())
    advantage = recipe.advantages(turns)["advantage"]
    np.testing.assert_allclose(advantage, reference.own_pooled_within(records(turns)), rtol=0, atol=1e-9)
    turns["mark"] = range(len(turns))
    again = recipe.advantages(shuffled(turns, np.random.default_rng(seed))).set_index("mark")["advantage"]
    assert again.sort_index().tolist() == advantage.tolist()


def peer_table():
    """Task t: agent a earned 0, 2, 4; agent b spoke once and earned 4; agent c earned 4 twice."""
    return table(task=["t"] * 6, agent=list("aaabcc"), credit=[0.0, 2.0, 4.0, 4.0, 4.0, 4.0]).assign(group="t")


def test_rows_without_a_peer_get_advantage_0_under_any_center():
    turns, peers = peer_table(), ("task", "agent")
    learned, masked = normalize(turns)["advantage"], normalize(turns, lone=peers)["advantage"]
    assert masked.tolist() == [*learned[:3], 0.0, 0.0, 0.0] and (learned[3:] > 0.6).all()
    assert normalize(turns, center="none", scale="none", lone=peers)["advantage"].tolist() == [0, 2, 4, 0, 0, 0]


def test_a_lone_row_may_keep_its_raw_reward():
    turns = peer_table().assign(group=["ta"] * 3 + ["tb"] + ["tc"] * 2)
    kept = normalize(turns, lone="reward")
    assert kept["advantage"].round(5).tolist() == [-1.22474, 0.0, 1.22474, 4.0, 0.0, 0.0]
    assert kept.loc[3, ["center", "scale"]].tolist() == [0.0, 1.0] and normalize(turns)["advantage"][3] == 0
    for options in ({"center": "none", "scale": "none"}, {"lone": "raw"}):
        with pytest.raises(ValueError, match="lone="):
            normalize(turns, **{"lone": "reward"} | options)


def test_the_pooled_deviation_is_the_mean_square_within_groups():
    """Agent a: squares 2 and 8 in groups of 2 and 3, (2 + 8) / (5 - 2); its lone row counts nothing."""
    turns = table(agent=list("aaaaaab"), group=list("xxyyyzx"), credit=[1.0, 3.0, 0.0, 2.0, 4.0, 9.0, 5.0])
    assert pooled_deviation()(turns).round(9).tolist() == [round((10 / 3) ** 0.5, 9)] * 6 + [0.0]
    total = normalize(turns, scale=("agent",))["scale"]
    assert total[0] == pytest.approx(turns["credit"][:6].std(ddof=0), abs=1e-5) and total[0] > 2


def test_max_rl_is_relative_to_the_mean():
    """Group x: mean 1/4, so (1 - 1/4) / (1/4) = 3 and -1; group y earned nothing, group z less."""
    turns = table(agent="a", group=list("xxxxyyzz"), credit=[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, -3.0])
    advantage = normalize(turns, scale=group_mean(), eps=0.0)["advantage"]
    assert advantage.tolist() == [3, -1, -1, -1, 0, 0, 0, 0]
    assert RECIPES["max_rl"].scale == group_mean() and RECIPES["max_rl"].eps == 0


def test_a_scale_of_ones_own_is_checked_and_has_no_units():
    for options, words in (
        ({"scale": lambda table: 1.0}, r"scale.* gave float for \d+ rows; give a Series on the table's index"),
        ({"center": lambda table: table.groupby("group")["credit"].mean()},
         r"center.* gave \d+ numbers on another index for \d+ rows; .*, such as turns.groupby.*transform\('mean'\)"),
        ({"scale": lambda table: table["credit"] * float("nan")}, "scale"),
        ({"scale": pooled_deviation(), "once_per": "agent"}, "counts units of a scale group"),
        ({"lone": "task"}, "or a tuple such as"), ({"lone": ("turn",)}, "'turn'"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            normalize(peer_table(), **options)


@pytest.mark.parametrize("name", ["dr_mas", "dr_mas_released", "dr_mas_mean", "dr_mas_std", "own_pooled"])
@often
@given(seed=seeds)
def test_the_penalty_for_an_invalid_turn_stays_with_that_turn(name, seed):
    turns = episodes_table(seed)
    recipe = RECIPES[name].replace(credit=episode_return(invalid=0.1))
    expected = by_episodes[name](records(turns), invalid=0.1)
    np.testing.assert_allclose(recipe.advantages(turns)["advantage"], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@often
@given(seed=seeds)
def test_at_grpo(alpha, seed):
    turns = candidates_table(seed)
    advantage = RECIPES["at_grpo"].replace(credit=mixed(alpha)).advantages(turns)["advantage"]
    np.testing.assert_allclose(advantage, reference.at_grpo(records(turns), alpha), rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize("name", by_joint_actions)
@often
@given(seed=seeds, gamma=st.sampled_from([1.0, 0.5, 0.0]))
def test_recipes_over_joint_actions(name, mode, seed, gamma):
    turns = joint_table(seed, mode, gamma)
    expected = by_joint_actions[name](records(turns), turns["return"].tolist())
    recipe = RECIPES[name].replace(credit=return_to_go(gamma))
    np.testing.assert_allclose(recipe.advantages(turns)["advantage"], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", [*by_episodes, *by_joint_actions, "at_grpo"])
@often
@given(seed=seeds)
def test_shuffled_rows_have_the_same_advantages_to_the_last_bit(name, seed):
    mode = ("aligned", "cross")[seed % 2]
    turns = (
        episodes_table(seed) if name in by_episodes
        else candidates_table(seed) if name == "at_grpo"
        else joint_table(seed, mode, 1.0)
    )  # fmt: skip
    turns["mark"] = range(len(turns))
    again = shuffled(turns, np.random.default_rng(seed))
    recipe = RECIPES[name]
    before, after = (recipe.advantages(rows).set_index("mark")["advantage"] for rows in (turns, again))
    assert np.isfinite(before).all() and before.equals(after.sort_index())


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


def test_the_inflation_factor_reaches_its_bound():
    """An agent called only in the one failed trajectory of N = 8."""
    turns = table(task=["t"] * 9, episode=[*range(8), 7], turn=0, agent=["solver"] * 8 + ["fixer"],
                  team_reward=[1.0] * 7 + [0.0, 0.0])  # fmt: skip
    turns = normalize(group(turns, "task", episode_return()), once_per="episode", eps=0.0)
    assert (turns["advantage"] ** 2).iloc[-1] == pytest.approx(7.0)


@often
@given(seed=seeds)
def test_an_agent_that_speaks_once_per_trajectory_has_dr_mas_equal_to_grpo(seed):
    turns = episodes_table(seed)
    turns = turns[(turns["agent"] != "planner") | (turns["turn"] == 0)]  # the planner now speaks exactly once
    found = (RECIPES[name].advantages(turns) for name in ("grpo", "dr_mas"))
    grpo, dr_mas = (rows.query("agent == 'planner'")["advantage"] for rows in found)
    np.testing.assert_allclose(grpo, dr_mas, rtol=0, atol=1e-9)


# The laws, on tables typed by hand


def test_five_rows_with_only_the_columns_that_are_named():
    turns = table(task=["t"] * 3 + ["u"] * 2, team_reward=[1.0, 2.0, 3.0, 0.0, 4.0])
    turns = normalize(group(turns, by=("task",), credit=mixed()), eps=0.0)
    assert list(turns.columns) == ["task", "team_reward", "credit", "group", "center", "scale", "advantage"]
    assert turns["center"].tolist() == [2.0, 2.0, 2.0, 2.0, 2.0]
    assert turns["scale"].tolist() == pytest.approx([(2 / 3) ** 0.5] * 3 + [2.0] * 2)
    assert turns["advantage"].tolist() == pytest.approx([-(1.5**0.5), 0.0, 1.5**0.5, -1.0, 1.0])


def test_a_trajectory_counts_once_however_many_turns_it_has():
    """Episode a has three turns and earned 0, episode b one turn and earned 1."""
    turns = table(task=["t"] * 4, episode=list("aaab"), turn=[0, 1, 2, 0], agent="x", team_reward=[0, 0, 0, 1])
    turns = group(turns, "task", episode_return())
    once, every = normalize(turns, once_per="episode", eps=0.0), normalize(turns, eps=0.0)
    assert once["advantage"].tolist() == [-1.0, -1.0, -1.0, 1.0] and set(once["center"]) == {0.5}
    assert set(every["center"]) == {0.25} and every["advantage"].iloc[3] == pytest.approx(3**0.5)


def test_a_unit_enters_with_its_mean_credit():
    turns = table(group="g", episode=list("aab"), credit=[0.0, 1.0, 2.5])  # units: 0.5 and 2.5
    turns = normalize(turns, once_per="episode", eps=0.0)
    assert set(turns["center"]) == {1.5} and set(turns["scale"]) == {1.0}
    assert turns["advantage"].tolist() == [-1.5, -0.5, 1.0]


def test_once_per_may_differ_for_center_and_scale():
    turns = table(group="g", episode=list("aaab"), credit=[0.0, 0.0, 0.0, 1.0])
    center = normalize(turns, once_per={"center": "episode"}, eps=0.0)
    scale = normalize(turns, once_per={"scale": "episode", "center": None}, eps=0.0)
    assert set(center["center"]) == {0.5} and center["scale"].iloc[0] == pytest.approx(0.1875**0.5)
    assert set(scale["center"]) == {0.25} and set(scale["scale"]) == {0.5}


def test_center_and_scale_may_come_from_other_columns_than_the_group():
    turns = table(task="t", agent=list("xxyy"), credit=[0.0, 2.0, 4.0, 6.0])
    turns["group"] = turns["agent"]
    mean = normalize(turns, center=("task", "agent"), scale=("task",), eps=0.0)
    std = normalize(turns, center=["task"], scale=["task", "agent"], eps=0.0)
    assert mean["center"].tolist() == [1, 1, 5, 5] and set(mean["scale"]) == {5**0.5}
    assert std["center"].tolist() == [3, 3, 3, 3] and std["advantage"].tolist() == [-3, -1, 1, 3]


@pytest.mark.parametrize("settings_", [{}, {"center": "loo", "scale": ("group",)}, {"center": "max", "scale": "none"},
                                       {"scale": "none"}, {"center": "none", "scale": ("group",)}])  # fmt: skip
def test_trap_2_a_lone_row_gets_0_and_never_its_raw_reward(settings_):
    turns = normalize(by_task([7.0, 1.0, 2.0], "abb"), **settings_)
    assert turns["advantage"].iloc[0] == 0.0 and turns["advantage"].iloc[1:].any()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1 / 3, 1e12])
def test_a_flat_group_gets_0_and_its_own_value_as_center(value):
    turns = normalize(by_task([value] * 3))
    assert turns["advantage"].tolist() == [0.0] * 3 and set(turns["center"]) == {value}
    for options in ({"scale": "none"}, {"center": "loo", "scale": "none"}, {"ddof": 1}):
        assert normalize(by_task([value] * 3), **options)["advantage"].tolist() == [0.0] * 3


@pytest.mark.parametrize("options", [{"once_per": "episode"}, {"center": ("group",), "scale": ("agent",)},
                                     {"center": ("agent",), "scale": ("group",)}], ids=str)  # fmt: skip
def test_one_episode_that_counts_once_and_a_lone_center_or_scale_group_get_0(options):
    turns = table(group="g", episode="a", agent=["x", "y"], credit=[1.0, 2.0])
    assert normalize(turns, **options)["advantage"].tolist() == [0.0, 0.0]


def test_centers_by_name():
    turns = by_task([0.0, 2.0, 7.0])
    loo, top, none = (normalize(turns, center=center, scale="none") for center in ("loo", "max", "none"))
    assert loo["center"].tolist() == [4.5, 3.5, 1.0] and loo["advantage"].tolist() == [-4.5, -1.5, 6.0]
    assert top["advantage"].tolist() == [-7.0, -5.0, 0.0]
    assert none["advantage"].tolist() == [0.0, 2.0, 7.0] and set(none["scale"]) == {1.0}
    lone_and_flat = normalize(by_task([7.0, 3.0, 3.0], "abb"), center="none", scale="none")
    assert lone_and_flat["advantage"].tolist() == [7.0, 3.0, 3.0]


def test_leave_one_out_leaves_out_the_whole_unit():
    turns = table(group="g", episode=list("aabc"), credit=[0.0, 2.0, 4.0, 8.0])  # units 1, 4, 8
    turns = normalize(turns, center="loo", scale="none", once_per="episode")
    assert turns["center"].tolist() == pytest.approx([6.0, 6.0, 4.5, 2.5])


def test_ddof_and_eps():
    population, sample = (normalize(by_task([0.0, 2.0]), ddof=ddof, eps=0.5) for ddof in (0, 1))
    assert set(population["scale"]) == {1.5} and sample["scale"].iloc[0] == pytest.approx(2**0.5 + 0.5)
    assert population["advantage"].tolist() == pytest.approx([-1 / 1.5, 1 / 1.5])
    turns = table(task="t", team_reward=[0.0, 2.0])
    recipe = RECIPES["dr_mas"].replace(by=("task",), credit=mixed(), ddof=1, eps=0.5)
    assert recipe.advantages(turns)["scale"].equals(sample["scale"])


def test_a_z_score_after_a_center_by_name_is_not_silent():
    for center in ("loo", "max", "none"):
        with pytest.warns(UserWarning, match=f"center='{center}' divided by the group's standard deviation"):
            normalize(by_task([0.0, 2.0]), center=center)


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
    assert group_stats(turns)["size"].tolist() == [2]


@pytest.mark.parametrize("name", ["center", "scale", "advantage"])
def test_no_column_is_overwritten(name):
    with pytest.raises(TableError, match=f"normalize: column '{name}' is already there"):
        normalize(by_task([0.0, 1.0]).assign(**{name: 0.0}))


def test_bad_calls_say_what_is_known():
    turns = by_task([0.0, 1.0])
    with pytest.raises(TableError, match="normalize: column 'group' is missing; it is added by `group`"):
        normalize(turns.drop(columns="group"))
    with pytest.raises(TableError, match=r"column 'credit' is empty .* at task 't'"):
        normalize(by_task([0.0, float("nan")]))
    for options, words in (
        ({"once_per": "episode"}, "normalize: column 'episode' is missing"),
        ({"center": ("task", "agent")}, "normalize: column 'agent' is missing"),
        ({"center": "median"}, "center='median': known are 'loo', 'max', 'none', or a tuple of columns"),
        ({"scale": "max"}, "scale='max': known are 'none'"),
        ({"once_per": {"centre": "task"}}, r"once_per has keys \['centre'\]"),
        ({"lone": "centre"}, "lone='centre'; known are zero, reward, lend, or a tuple"),
        ({"eps": -1.0}, r"eps=-1\.0 must be a number of 0 or more"),
        ({"lone": "lend", "center": "none", "scale": ("task",)}, "lone='lend' is about groups.*or pass lone='zero'"),
        ({"lone": "lend", "scale": "none"}, "lone='lend' is about groups, and center=None, scale='none' have none"),
        ({"ddof": 2}, r"ddof is 0 .* or 1 .*, not 2"),
    ):
        with pytest.raises(ValueError, match=words):
            normalize(turns, **options)


def test_group_stats_by_hand():
    turns = table(group=list("gggghhh"), agent=list("xxyzxxx"), credit=[1.0, 3.0, 5.0, 2.0, 4.0, 4.0, 4.0])
    stats = group_stats(turns).set_index(["group", "agent"])
    assert stats["size"].to_dict() == {("g", "x"): 2, ("g", "y"): 1, ("g", "z"): 1, ("h", "x"): 3}
    assert stats["mean"].tolist() == [2.0, 5.0, 2.0, 4.0] and stats["std"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert stats["lone"].tolist() == [False, True, True, False]
    assert stats["flat"].tolist() == [False, True, True, True]


def test_group_stats_say_how_much_goes_the_wrong_way():
    """Agent a is right in half of its rows. In x the signs are right, in y a wrong answer gets +1."""
    turns = table(agent="a", group=list("xxyz"), credit=0.0, local_reward=[1.0, 0.0, 0.0, 1.0])
    turns = turns.assign(center=0.0, scale=1.0, advantage=[2.0, -1.0, 1.0, 0.0])
    found = group_stats(turns).set_index("group")["wrong_way"]
    assert found[["x", "y"]].tolist() == [0.0, 1.0] and np.isnan(found["z"])


def test_group_stats_keep_the_steps_of_a_recurring_task_apart():
    turns = table(step=[0, 0, 1, 1], group=["g"] * 4, agent=list("xxxx"), credit=[1.0, 1.0, 0.0, 1.0])
    stats = group_stats(turns)
    found = stats[["step", "group", "agent", "size", "mean", "flat"]].to_numpy().tolist()
    assert found == [[0, "g", "x", 2, 1.0, True], [1, "g", "x", 2, 0.5, False]]


def test_a_table_without_one_comparison_is_refused():
    with pytest.raises(TableError, match=r"every group has a single row \(K = 1\)"):
        refuse_lone_groups(by_task([1.0, 2.0], "ab"), "train")
    refuse_lone_groups(by_task([1.0, 2.0, 3.0], "abb"), "train")


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


def test_credits_that_differ_by_rounding_alone_are_flat():
    """Otherwise a center of other rows would be divided by eps: an advantage of tens of thousands."""
    unequal_sums = [0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3]
    turns = table(task=list("aaaa"), agent=list("xxxx"), credit=unequal_sums, group=list("aaaa"))
    rows = normalize(pd.concat([turns, turns.assign(agent="y", group="b", credit=[1.0, 0.0, 1.0, 0.0])],
                               ignore_index=True), center=("task",), scale=("task", "agent"))  # fmt: skip
    assert (rows.loc[:3, "advantage"] == 0).all()
    assert (rows.loc[4:, "advantage"] != 0).all()
    assert group_stats(turns)["flat"].all()


def test_rewards_that_differ_by_the_rounding_of_float32_are_flat():
    """0.3 in float32 is 0.30000001192...; under "loo" without eps the difference would become an advantage of 1."""
    noisy = [float(np.float32(0.3)), 0.3, float(np.float32(0.3)), 0.3]
    for credit in (noisy, [1e6 * one for one in noisy], [-one for one in noisy]):
        turns = table(group=["g"] * 4, agent=["x"] * 4, credit=credit)
        for options in ({"center": "loo", "eps": 0.0}, {}, {"center": "loo", "scale": pooled_deviation()}):
            assert (normalize(turns, **options)["advantage"] == 0).all()
        assert group_stats(turns)["flat"].all()
    for credit in ([0.3, 0.3001], [1000.0, 1000.01], [1e-9, 2e-9]):  # differences of a task, however small
        assert normalize(table(group=["g"] * 2, credit=credit), eps=0.0)["advantage"].tolist() == pytest.approx([-1, 1])


def test_float32_rewards_are_summed_in_float64():
    rewards = np.array([1e8, 1.0, -1e8], np.float32)  # in float32 this sum is 0 or 1, by its order
    turns = table(task="t", episode="e", agent="x", turn=[0, 1, 2], team_reward=rewards)
    assert turns["team_reward"].dtype == np.float32
    assert group(turns, "task", episode_return())["credit"].tolist() == [1.0] * 3


def test_rows_that_a_scale_of_0_drops_are_counted():
    turns = table(group=list("ggh"), agent=list("xyy"), credit=[1.0, 0.0, 2.0])
    assert "dropped" not in group_stats(turns)
    with pytest.warns(UserWarning, match=r"scale=.*is 0 for 1 of 3 rows whose credit is not their center"):
        zero = normalize(turns, center="none", scale=lambda rows: pd.Series([0.0, 1.0, 1.0], rows.index))
    assert zero["advantage"].tolist() == pytest.approx([0.0, 0.0, 2.0])
    assert group_stats(zero)["dropped"].tolist() == [1, 0, 0]  # the second row's credit is its center
    masked = normalize(table(group=["g"] * 3, task="t", agent=list("xxy"), credit=[1.0, 0.0, 2.0]), lone=("agent",))
    assert group_stats(masked)["dropped"].tolist() == [0, 1]  # y has no peer
    valued = pd.concat([zero.assign(probe=False), zero.assign(probe=True)])  # continuations, and an index twice
    assert group_stats(valued)["dropped"].tolist() == [1, 0, 0]
    joined = pd.concat([zero.assign(probe=True), zero])  # a table without the column has no continuations
    assert group_stats(joined)["dropped"].tolist() == [1, 0, 0]


# What dr_mas_std does to an agent that is called where the team fails


def called_helper():
    """Eight episodes a task, a helper called in four of them: once it helps, for 0.2, and in the other task never."""
    helped = table(task="t", episode=range(4), agent="helper", team_reward=[0.2, 0.0, 0.0, 0.0])
    failed = table(task="u", episode=range(10, 14), agent="helper", team_reward=0.0)
    alone = table(task=list("ttttuuuu"), episode=[*range(4, 8), *range(14, 18)], agent="solver", team_reward=1.0)
    return pd.concat([helped, failed, alone], ignore_index=True).assign(turn=0)


def test_the_std_alone_is_biased_where_an_agents_own_rewards_do_not_vary():
    turns = RECIPES["dr_mas_std"].advantages(called_helper())
    assert turns["advantage"][:8].round(2).tolist() == [-3.75, -6.06, -6.06, -6.06, 0, 0, 0, 0]
    own = RECIPES["dr_mas"].advantages(called_helper())["advantage"]
    assert own[:8].round(2).tolist() == [1.73, -0.58, -0.58, -0.58, 0, 0, 0, 0]


def test_a_flat_group_may_take_the_scale_of_its_center_group():
    turns = RECIPES["dr_mas_std"].replace(lone="lend", eps=0.0).advantages(called_helper())
    assert turns["advantage"][:8].round(2).tolist() == [-3.75, -6.06, -6.06, -6.06, -1, -1, -1, -1]
    assert turns["scale"][4:8].tolist() == [0.5] * 4
    everyone_alike = called_helper().assign(team_reward=1.0)
    assert (RECIPES["dr_mas_std"].replace(lone="lend").advantages(everyone_alike)["advantage"] == 0).all()
    lone = by_task([1.0, 2.0]).assign(agent=["x", "y"])
    lent = normalize(lone, center=("task",), scale=("agent",), lone="lend", eps=0.0)
    assert lent["advantage"].tolist() == [-1.0, 1.0]
