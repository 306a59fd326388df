"""What notebook 06 says of recorded runs stands in the records."""

import forms
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
[MASTER] = [path for path in forms.masters() if path.stem.startswith("06")]
TEXT = MASTER.read_text(encoding="utf-8")


def finals(study, task=None):
    table = lab.AblationBoard(RESULTS / "studies" / study).table
    table = table if task is None else table[table["env"] == task]
    return table.set_index("recipe")


@pytest.fixture(scope="module")
def maze():
    return finals("at_grpo", "maze")["final"]


def test_the_ladder_is_the_recorded_one(maze):
    told = maze.map("{:.2f}".format)
    assert f"takes {told['team return']} to {told['own reward']}: that is 0.16 of the 0.19" in TEXT
    assert (
        round(maze["own reward"] - maze["team return"], 2) == 0.16
        and round(maze["tree"] - maze["team return"], 2) == 0.19
    )
    assert f"adds nothing to it: {told['by agent and turn']}" in TEXT and f"takes it to {told['tree']}" in TEXT
    assert f"it keeps less than half: {told['tree, outcome only']}" in TEXT
    assert (maze["tree, outcome only"] - maze["team return"]) < 0.5 * (maze["tree"] - maze["team return"])
    others = [finals("at_grpo", f"maze, K = {k}")["final"]["tree"] for k in (2, 4, 16)]
    assert "K = 2, 4 and 16 end at {:.2f}, {:.2f} and {:.2f}".format(*others) in TEXT


def test_a_tree_makes_twice_as_many_steps_in_half_the_time():
    runs = Recorded(RESULTS / "studies" / "at_grpo").table.query("task == 'maze' and phase == 'compare'")
    means = runs.groupby("arm")[["optimizer_steps", "seconds"]].mean()
    ratio = means.loc["tree"] / means.loc["team return"]
    assert ratio["optimizer_steps"] == pytest.approx(2, abs=0.1) and ratio["seconds"] == pytest.approx(0.5, abs=0.05)


def test_following_the_best_is_what_the_text_says(maze):
    board = lab.AblationBoard(RESULTS / "studies" / "follow")
    ends = board.table.set_index("recipe")["final"].map("{:.2f}".format)
    assert ends["the best moves on"] == f"{maze['tree']:.2f}" and f"falls back to {ends['the first moves on']}" in TEXT
    assert ends["the first moves on"] == f"{maze['own reward']:.2f}"
    [row] = board.differences.to_dict("records")
    told = "by {:.2f} (95 % interval {:.2f} to {:.2f})".format(-row["final"], -row["final_high"], -row["final_low"])
    assert row["lower"] == 9 and "in nine of ten seeds" in TEXT and told in TEXT
    steps = Recorded(RESULTS / "studies" / "follow").table.groupby("arm")["optimizer_steps"].mean().round().astype(int)
    assert (
        f"makes {steps['the best moves on']} optimizer steps where the other makes {steps['the first moves on']}"
        in TEXT
    )


def test_seeds_and_roles_are_those_of_the_text():
    ends = pd.read_csv(RESULTS / "plan_path" / "results.csv")["success"]
    assert "with shared weights: {:.2f}, {:.2f}, {:.2f}".format(*ends) in TEXT
    board = lab.AblationBoard(RESULTS / "studies" / "at_grpo")
    own = board.runs.query("env == 'maze, weights of their own' and recipe == 'tree'")["final"]
    assert "about the same ({:.2f}, {:.2f}, {:.2f})".format(*own) in TEXT
    roles = pd.read_csv(RESULTS / "roles" / "results.csv").query("team == 'together'")
    ends = roles.groupby("swapped")["success"].agg(["min", "max"]).map("{:.2f}".format)
    assert "{} to {} in their roles".format(*ends.loc[False]) in TEXT
    assert "{} to {} in each other's".format(*ends.loc[True]) in TEXT


def test_sokoban_is_as_recorded():
    runs = lab.AblationBoard(RESULTS / "studies" / "sokoban").runs
    tree, rest = (runs.loc[(runs["recipe"] == "tree") == is_tree, "final"] for is_tree in (True, False))
    ends = (tree.min(), tree.max(), rest.min(), rest.max())
    told = "{:.2f} to {:.2f}, where the three others lie between {:.2f} and {:.2f}".format(*ends)
    assert told in TEXT
    curves = pd.read_csv(RESULTS / "sokoban" / "curves.csv")
    assert f"starts at {curves.query('step == 0')['success'].mean():.2f} and takes {curves['step'].max()} steps" in TEXT
    assert curves.query("step == 80")["success"].mean() == pytest.approx(0.75, abs=0.01)
