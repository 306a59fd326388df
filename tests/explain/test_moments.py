"""The moments of Dr. MAS's lemma by hand and as laws, and how much of a global advantage is signal."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tables import episodes_table

import mas_lab as lab
from mas_lab.cells.normalization import normalize
from mas_lab.explain.moments import baseline_unit, both_baselines, group_stats, pooled_inflation
from mas_lab.table import TableError


def table(*rows):
    return pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])


BY_HAND = table(
    ("t", "e0", "solver", 1.0), ("t", "e1", "solver", 0.0), ("t", "e2", "solver", 1.0), ("t", "e3", "solver", 0.0),
    ("t", "e1", "fixer", 0.0), ("t", "e3", "fixer", 0.0), ("t", "e3", "fixer", 0.0),
)  # fmt: skip


def test_moments_follow_from_the_credits():
    """mu = sigma = 0.5; the fixer is called only where the team fails: b = -1, v = 0, F = 1. A closer who speaks only
    in the one success of N = 8 reaches the bound F = N - 1.
    """
    found = lab.inflation(BY_HAND).set_index("agent")
    assert found.loc["solver", ["n_k", "b_k", "v_k", "F_k", "N"]].tolist() == [4, 0, 1, 1, 4]
    assert found.loc["fixer", ["n_k", "b_k", "v_k", "F_k", "N"]].tolist() == [3, -1, 0, 1, 4]
    assert found["flat_k"].to_dict() == {"solver": False, "fixer": True} and not found["flat"].any()
    rows = [("t", f"e{i}", "solver", float(i == 0)) for i in range(8)] + [("t", "e0", "closer", 1.0)]
    assert lab.inflation(table(*rows)).set_index("agent")["F_k"].to_dict() == pytest.approx({"closer": 7, "solver": 1})


def test_a_flat_task_has_no_inflation_and_says_so():
    flat = table(*(("t", f"e{i}", agent, 0.1) for i in range(3) for agent in ("a", "b", "b", "b")))
    found = lab.inflation(flat)
    assert found["flat"].all() and found[["b_k", "v_k", "F_k", "signal"]].isna().all(axis=None)
    assert pooled_inflation(found).set_index("agent").loc["b", ["n", "b", "v", "F"]].tolist() == [9, 0, 0, 0]
    lone = lab.inflation(pd.concat([BY_HAND, table(("alone", "x", "solver", 1.0))])).set_index(["task", "agent"])
    assert lone.loc[("alone", "solver"), "flat"] and lone.loc[("alone", "solver"), "N"] == 1


def test_steps_are_kept_apart_and_bad_tables_are_named():
    tree = table(*(("t", "t", "a", credit) for credit in (0.0, 1.0, 1.0)))
    with pytest.raises(TableError, match="once_per=None"):
        lab.inflation(tree)
    assert lab.inflation(tree, once_per=None)["F_k"].tolist() == pytest.approx([1.0])
    twice = pd.concat([BY_HAND.assign(step=0), BY_HAND.assign(step=1, credit=0.0)])
    assert lab.inflation(twice)[["step", "flat"]].drop_duplicates().to_numpy().tolist() == [[0, False], [1, True]]
    with pytest.raises(TableError, match="inflation: column 'credit' is missing"):
        lab.inflation(BY_HAND.drop(columns="credit"))


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_f_is_the_mean_squared_global_advantage_and_at_most_n_minus_1(seed):
    turns = lab.group(episodes_table(seed), by="task", credit=lab.episode_return())
    means = turns.groupby("task").apply(lambda own: own.groupby("episode")["credit"].first(), include_groups=False)
    means = means.stack() if isinstance(means, pd.DataFrame) else means
    try:
        found = lab.inflation(turns)
    except TableError:
        assert (turns.groupby("task")["episode"].nunique() == 1).all()
        return
    for row in found[~found["flat"]].itertuples():
        own = turns[(turns["task"] == row.task) & (turns["agent"] == row.agent)]
        mu, sigma = means[row.task].mean(), means[row.task].std(ddof=0)
        assert row.F_k == pytest.approx((((own["credit"] - mu) / sigma) ** 2).mean(), rel=1e-9, abs=1e-12)
        assert row.F_k <= (row.N - 1) * (1 + 1e-9)
        if sorted(own["episode"]) == sorted(means[row.task].index):  # speaks exactly once per trajectory
            assert row.F_k == pytest.approx(1)


def paid_help(pay=0.2):
    """Thirty-two trajectories: 15 are right unaided, in 17 a helper is asked, who is right in 9 of them, for `pay`."""
    rewards = [1.0] * 15 + [pay] * 9 + [0.0] * 8
    rows = [("t", f"e{i:02}", "solver", reward) for i, reward in enumerate(rewards)]
    return table(*rows, *(("t", f"e{i:02}", "helper", rewards[i]) for i in range(15, 32)))


def test_where_f_sees_nothing_the_signal_does():
    """mu = 16.8/32 = 0.525, sigma^2 = 15.36/32 - mu^2; mu_k = 1.8/17, sigma_k^2 = 0.36/17 - mu_k^2."""
    found = lab.inflation(paid_help()).set_index("agent")
    within, offset = 0.36 / 17 - (1.8 / 17) ** 2, (1.8 / 17 - 0.525) ** 2
    assert offset / within == pytest.approx(17.627, abs=1e-3)
    assert found.loc["helper", "F_k"] == pytest.approx((within + offset) / 0.204375) == pytest.approx(0.9083, abs=1e-4)
    assert found.loc["helper", "signal"] == pytest.approx(1 / 18.627, abs=1e-5)
    assert found.loc["helper", "signal"] < 1 - 1 / found.loc["helper", "n_k"]
    assert found.loc["solver", "signal"] == 1
    scaled = lab.inflation(paid_help().assign(credit=lambda rows: rows["credit"] * 40.0))
    assert found["signal"].tolist() == pytest.approx((found["v_k"] / found["F_k"]).tolist())
    assert scaled["signal"].tolist() == pytest.approx(found["signal"].tolist()), "whatever the unit of the reward"
    paid_in_full = lab.inflation(paid_help(1.0)).set_index("agent")
    assert paid_in_full.loc["helper", "signal"] == pytest.approx(0.2491 / (0.2491 + 0.2206**2), abs=1e-4)


def test_tasks_of_little_variance_have_little_say_in_the_pooled_signal():
    """Within 0.25 and offset 0 in one task, 0 and 0.0025 in another: 0.125 / (0.125 + 0.00125), not the mean 0.5."""
    one = [("t", f"e{i}", "a", float(i < 2)) for i in range(4)]
    other = [("u", f"f{i}", "b", 0.0) for i in range(2)] + [("u", f"f{i}", "a", 0.1) for i in range(2, 4)]
    found = lab.inflation(table(*one, *other, *(("u", f"f{i}", "a", 0.1) for i in range(2, 4))))
    own = found[found["agent"] == "a"]
    assert own["signal"].tolist() == [1.0, 0.0] and own["n_k"].tolist() == [4, 4]
    assert pooled_inflation(found).set_index("agent").loc["a", "signal"] == pytest.approx(0.125 / 0.12625)


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_the_pooled_f_is_the_mean_square_of_both_baselines_global_advantages(seed):
    turns = lab.group(episodes_table(seed), by="task", credit=lab.episode_return())
    spread = turns.groupby("task")["credit"].std(ddof=0)
    assume(((spread == 0) | (spread > 1e-2)).all())  # eps, 1e-6, counts beside a smaller one
    squared = both_baselines(turns)["global"] ** 2
    found = pooled_inflation(lab.inflation(turns, once_per=baseline_unit(turns))).set_index("agent")["F"]
    assert found.to_dict() == pytest.approx(squared.groupby(turns["agent"]).mean().to_dict(), rel=1e-3, abs=1e-6)
    twice = pd.concat([BY_HAND.assign(step=0), BY_HAND.assign(step=1, credit=BY_HAND["credit"] + 5)], ignore_index=True)
    for values in both_baselines(twice).values():
        assert values[:7].tolist() == pytest.approx(values[7:].tolist())
        assert values[:7].abs().max() == pytest.approx(1, abs=1e-4)


# Groups


def test_group_stats_by_hand():
    turns = pd.DataFrame(
        {"group": list("gggghhh"), "agent": list("xxyzxxx"), "credit": [1.0, 3.0, 5.0, 2.0, 4.0, 4.0, 4.0]}
    )
    stats = group_stats(turns).set_index(["group", "agent"])
    assert stats["size"].to_dict() == {("g", "x"): 2, ("g", "y"): 1, ("g", "z"): 1, ("h", "x"): 3}
    assert stats["mean"].tolist() == [2.0, 5.0, 2.0, 4.0] and stats["std"].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert stats["lone"].tolist() == [False, True, True, False]
    assert stats["flat"].tolist() == [False, True, True, True]


def test_group_stats_say_how_much_goes_the_wrong_way():
    """Agent a is right in half of its rows. In x the signs are right, in y a wrong answer gets +1."""
    turns = pd.DataFrame({"agent": "a", "group": list("xxyz"), "credit": 0.0, "local_reward": [1.0, 0.0, 0.0, 1.0]})
    turns = turns.assign(center=0.0, scale=1.0, advantage=[2.0, -1.0, 1.0, 0.0])
    found = group_stats(turns).set_index("group")["wrong_way"]
    assert found[["x", "y"]].tolist() == [0.0, 1.0] and np.isnan(found["z"])


def test_group_stats_keep_the_steps_of_a_recurring_task_apart():
    turns = pd.DataFrame(
        {"step": [0, 0, 1, 1], "group": ["g"] * 4, "agent": list("xxxx"), "credit": [1.0, 1.0, 0.0, 1.0]}
    )
    stats = group_stats(turns)
    found = stats[["step", "group", "agent", "size", "mean", "flat"]].to_numpy().tolist()
    assert found == [[0, "g", "x", 2, 1.0, True], [1, "g", "x", 2, 0.5, False]]


def test_rows_that_have_no_advantage_though_they_could_are_counted():
    turns = {"group": list("ggh"), "agent": list("xyy"), "credit": [1.0, 0.0, 2.0]}
    assert "dropped" not in group_stats(pd.DataFrame(turns))
    zero = normalize(pd.DataFrame(turns), "none", scale=lambda rows: pd.Series([0.0, 1.0, 1.0], rows.index))
    assert zero["advantage"].tolist() == pytest.approx([0.0, 0.0, 2.0])
    assert group_stats(zero)["dropped"].tolist() == [1, 0, 0]  # the second row's credit is its center
    valued = pd.concat([zero.assign(probe=False), zero.assign(probe=True)])  # continuations, and an index twice
    joined = pd.concat([zero.assign(probe=True), zero])  # a table without the column has no continuations
    for table in (valued, joined):
        assert group_stats(table)["dropped"].tolist() == [1, 0, 0]
