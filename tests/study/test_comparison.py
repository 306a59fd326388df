"""Runs side by side: scores within a common budget and paired differences by hand, and what is refused."""

import html

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.study.comparison import cautions, compared, compared_pairs, improvements, paired, run_scores
from mas_lab.study.entries import entries
from mas_lab.table import TableError


def curves(*runs):
    """Return a table of curves; each run: recipe, seed, [(tokens, success), ...], and maybe an env or a file."""
    rows = [(recipe, seed, *point, *more) for recipe, seed, points, *more in runs for point in points]
    return pd.DataFrame(rows, columns=["recipe", "seed", "tokens", "success", "env", "file"][: len(rows[0])])


def level(recipe, seed, height, *more):
    return recipe, seed, [(0, height), (10, height)], *more


def levels(env="", **heights):
    """Return level runs of recipes: a height per seed, from seed 0 on."""
    return [level(recipe, seed, height, env) for recipe, own in heights.items() for seed, height in enumerate(own)]


def from_height(height, seeds, by=0.1):
    return [height + seed * by for seed in range(seeds)]


RISING = [(0, 0.0), (10, 0.5), (20, 1.0)]
FLAT = [(0, 0.2), (10, 0.2), (40, 0.2)]


def scores(table, last=0.1):
    return run_scores(entries(table), "success", "tokens", False, last)


def said(table):
    found, runs = entries(table), scores(table)
    return " ".join(cautions(found, runs, paired(runs, "a"), "a"))


def test_final_scores_lie_within_the_budget_that_all_reached():
    runs = scores(curves(("a", 0, RISING), ("b", 0, FLAT))).set_index("recipe")
    assert runs["budget"].tolist() == [20, 20] and runs["reached"].tolist() == [20, 40]
    assert runs["final"].tolist() == [1.0, pytest.approx(0.2)] and runs["start"].tolist() == [0.0, 0.2]
    early = scores(curves(("a", 0, RISING), ("b", 0, [(0, 0.2), (15, 0.2)]))).set_index("recipe")
    assert early.loc["a", "final"] == pytest.approx(0.75)  # cut between two points
    assert scores(curves(("a", 0, RISING)), last=0.5)["final"].tolist() == [0.75]
    each = scores(curves(("a", 0, RISING, "x"), ("a", 0, FLAT, "y")))
    assert each["budget"].tolist() == [20, 40]  # every env has its own
    assert scores(curves(("a", 0, [(7, 0.3)])))[["start", "final"]].to_numpy().tolist() == [[0.3, 0.3]]


def test_a_score_beyond_the_common_budget_does_not_count_in_silence():
    """Budget 100. One run was scored at it, one at 104 (near enough), one at 50 and then at 150: the mean of both."""
    table = curves(
        ("a", 0, [(0, 0.0), (100, 0.4)]), ("a", 1, [(0, 0.0), (104, 0.4)]), ("b", 0, [(0, 0.0), (50, 0.2), (150, 0.8)])
    )
    runs = scores(table)
    assert runs["beyond"].tolist() == pytest.approx([0, 0.04, 0.5])
    assert runs["final"].iloc[2] == pytest.approx(0.5)
    told = said(table)
    assert "1 of 3 runs have no score at the budget of 100. Their curves end on the line to a later score" in told
    assert "up to 50% beyond it (b, seed 0)" in told
    assert "not scored at the budget" not in said(table[table["recipe"] == "a"])


def shown(table):
    """Return the diamonds of a board."""
    return [trace for trace in lab.AblationBoard(table).figure().data if trace.marker.symbol == "diamond"]


def test_a_diamond_says_what_it_is():
    assert shown(curves(*levels(a=from_height(0.1, 3), b=from_height(0.4, 3)))) == [], "below five seeds only dots"
    marks = shown(curves(*levels(a=from_height(0.0, 5))))
    told = html.unescape(marks[0].text[0])
    assert told.startswith("IQM of 5 runs: 0.200, 95 % interval 0.") and len(marks[0].error_x.array) == 1
    squares = [seed**2 / 50 for seed in range(5)]
    marks = shown(curves(*levels(a=[0.1 + one for one in squares], b=[0.2 + one for one in squares])))
    assert html.unescape(marks[-1].text[0]).startswith("mean of 5 pairs: 0.100, 95 % interval 0.100")


def test_pairs_have_a_mean_with_the_interval_and_the_p_of_one_t_test():
    """Of five differences 0.1 to 0.5: mean 0.3, s = 0.158, t(4) = 2.776, so 0.3 -+ 0.196; t = 4.243, p = 0.0132."""
    rising = curves(*levels(a=[0.1] * 5, b=from_height(0.2, 5)))
    [row] = compared_pairs(paired(scores(rising), "a")).itertuples()
    assert (row.pairs, row.middle, row.final) == (5, "mean", pytest.approx(0.3))
    assert (row.final_low, row.final_high) == (pytest.approx(0.1037, abs=1e-4), pytest.approx(0.4963, abs=1e-4))
    assert (row.p, row.p_holm) == (pytest.approx(0.01324, abs=1e-5), pytest.approx(0.01324, abs=1e-5))
    assert (row.higher, row.lower, row.won) == (5, 0, 1.0) and row.won_low == pytest.approx(0.025 ** (1 / 5), abs=1e-6)


def test_rounding_wins_no_pair():
    """Both are 0.1 throughout; the mean of three scores of 0.1 is not."""
    uneven = [("b", seed, [(0, 0.1), (8, 0.1), (9, 0.1), (10, 0.1)], "") for seed in range(5)]
    again = [("a", seed, [(0, 0.1), (10, 0.1)], "", file) for seed in range(5) for file in "xy"]
    for table in (curves(*levels(a=[0.1] * 5), *uneven), curves(*again, *((*run, "z") for run in uneven))):
        runs = scores(table, last=0.25)
        [row] = compared_pairs(paired(runs, "a")).itertuples()
        assert (row.higher, row.lower, row.final) == (0, 0, 0.0)
        assert improvements(runs, "a")["final"].tolist() == [0.5]


def test_recipes_of_unequal_seeds_are_compared_on_those_that_all_have():
    """Seed 5 alone has b at its best: without it both end at 0.3."""
    heights = [0.1, 0.2, 0.3, 0.4, 0.5]
    board = lab.AblationBoard(curves(*levels(a=heights, b=[*heights, 1.0], c=[0.1, 0.2, 0.2, 0.2, 0.2])))
    assert board.table.set_index("recipe")["seeds"].tolist() == [5, 5, 5] and len(board.runs) == 16
    assert board.table.set_index("recipe")["final"].to_dict() == pytest.approx({"a": 0.3, "b": 0.3, "c": 0.2})
    assert board.improvements.set_index("recipe").loc["b", "final"] == 0.5
    assert "the recipes do not have the same seeds; 5 are common" in " ".join(board.cautions)
    other = lab.AblationBoard(curves(*levels(a=[0.1] * 5), *(level("b", s, 0.1, "") for s in range(7, 12))))
    assert other.table["seeds"].tolist() == [5, 5] and "seeds; 0 are common to all" in " ".join(other.cautions)


def test_differences_are_taken_by_seed_and_a_seed_is_one_pair():
    table = curves(*levels(a=[0.1, 0.2, 0.9], b=[0.3, 0.5]), level("b", 7, 1.0, ""))
    table = pd.concat([table, curves(level("b", 1, 0.7, "", "bob"))]).fillna("")
    pairs = paired(scores(table), "a")
    assert pairs[["seed", "final"]].to_numpy().tolist() == [[0, pytest.approx(0.2)], [1, pytest.approx(0.4)]]
    [row] = compared_pairs(pairs).itertuples()
    assert (row.recipe, row.pairs, row.final) == ("b", 2, pytest.approx(0.3))
    assert (row.higher, row.lower) == (2, 0)
    assert row.middle == "mean" and np.isnan([row.final_low, row.final_high]).all()  # two seeds make no interval


def test_each_env_is_told_apart_and_profiles_hold_the_recipes_that_were_run_on_every_env():
    """On x every b is above every a; on y they are the same numbers."""
    low, high = from_height(0.0, 5), from_height(0.5, 5)
    table = curves(*levels("x", a=low, b=high), *levels("y", a=low, b=low))
    runs, few = scores(table), scores(table[(table["seed"] < 4) | (table["recipe"] == "b")])
    told = compared(runs.assign(start=runs["final"] / 2)).set_index(["env", "recipe"])
    assert told["start"].tolist() == pytest.approx([0.1, 0.35, 0.1, 0.1])
    assert told.loc[("x", "b"), ["runs", "seeds", "middle", "final"]].tolist() == [5, 5, "IQM", pytest.approx(0.7)]
    assert told.loc[("x", "b"), "final_low"] < 0.7 < told.loc[("x", "b"), "final_high"]
    told = improvements(runs, "a").set_index(["env", "recipe"])
    assert told["final"].to_dict() == {("x", "b"): 1.0, ("y", "b"): 0.5} and told["seeds"].tolist() == [5, 5]
    assert told.loc[("x", "b"), ["final_low", "final_high"]].tolist() == [1, 1]
    untold = improvements(few, "a")
    assert untold["final"].notna().all() and untold[["final_low", "final_high"]].isna().all(axis=None)
    apart = scores(curves(*levels("x", a=[0.1], b=[0.2]), *levels("y", c=[0.3], b=[0.1])))
    assert improvements(apart, "a")[["env", "recipe"]].to_numpy().tolist() == [["x", "b"]], "c ran beside no a"


@pytest.mark.parametrize(("runs", "words"), [
    (levels(a=from_height(0.1, 3), b=from_height(0.4, 3)), "Fewest seeds of a recipe: 3"),
    *((levels(a=from_height(0.1, n), b=from_height(0.1, n)), f"b and a are equal in every seed ({n}).")
      for n in (1, 5)),
    (levels(a=[0.1, 0.5, 0.2, 0.6, 0.3], b=[0.5, 0.1, 0.3, 0.4, 0.4]), "no difference between the final scores of"),
    ([level("a", 0, 0.1), level("b", 1, 0.1)], "seeds; 0 are common to all"),
    ([level("a", s % 4, s / 10, "", str(s)) for s in range(8)], "Fewest seeds of a recipe: 4"),
    (levels(a=from_height(0.1, 5, 0.01), b=from_height(0.5, 5, 0.01)), ""),
])  # fmt: skip
def test_the_board_says_what_the_runs_cannot_show(runs, words):
    told = said(curves(*runs))
    assert words in told and bool(words) == bool(told), "a clear difference needs no caution"


def test_tables_that_are_no_curves_are_refused():
    with pytest.raises(TableError, match="column 'seed' is missing or not filled"):
        lab.AblationBoard(pd.DataFrame({"recipe": ["a"], "step": [0]}))
    with pytest.raises(TableError, match="two rows of 'a', seed 0 have the same tokens"):
        lab.AblationBoard(pd.concat([curves(level("a", 0, 0.1))] * 2))
    table = curves(level("a", 0, 0.1))
    with pytest.raises(TableError, match="column 'tokens' is missing or not filled"):
        lab.AblationBoard(table.assign(tokens=table["tokens"].where(table.index < 1)))
    with pytest.raises(TableError, match="has no column 'return'; it has recipe, seed"):
        lab.AblationBoard(curves(level("a", 0, 0.1)), score="return")
    with pytest.raises(TableError, match="a, seed 0 has no finite success at some step"):
        lab.AblationBoard(curves(("a", 0, [(0, 0.1), (10, np.nan)])))
    with pytest.raises(ValueError, match="baseline='c' is none of the recipes: a"):
        lab.AblationBoard(curves(level("a", 0, 0.1)), baseline="c")
    with pytest.raises(TypeError, match="give a folder, runs, zips or a table"):
        lab.AblationBoard([])
