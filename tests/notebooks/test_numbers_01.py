"""What notebook 01 says of costs and picks stands in the records; what it asks to be counted is what plans ask."""

import pandas as pd
import pytest
from scripted import Duet, Ladder, Scripted

import mas_lab as lab
from mas_lab.course.checks import n01
from mas_lab.paths import data_dir, notebooks_dir

RECORDS = data_dir() / "results" / "plans"
TEXT = (notebooks_dir() / "masters" / "01_rollout.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def cost():
    table = pd.read_csv(RECORDS / "cost.csv").set_index(["max_turns", "plan"])
    return table.div(table["episodes"], axis=0).drop(columns="episodes")


@pytest.fixture(scope="module")
def picks():
    return pd.read_csv(RECORDS / "picks.csv").set_index(["pick", "k", "seed"])["success"]


def test_costs_are_those_of_the_text(cost):
    plain, tree, followed = (cost.loc[4, plan] for plan in ("episodes(8)", "tree(8)", "tree(8, follow=1)"))
    assert f"samples {plain['sampled_tokens']:.0f} tokens and a tree of eight {tree['sampled_tokens']:.0f}:" in TEXT
    assert round(tree["sampled_tokens"] / plain["sampled_tokens"]) == 4 and "four times as many, not eight" in TEXT
    assert f"{tree['calls']:.0f} calls are less than four decisions" in TEXT and tree["calls"] / 8 < 4
    assert round(plain["calls"]) == 7 and "a plain episode takes seven calls" in TEXT
    read = tree["distinct_prompt_tokens"], plain["distinct_prompt_tokens"]
    assert "for an episode ({:.0f}) than a plain one does ({:.0f})".format(*read) in TEXT
    assert f"needs: {followed['sampled_tokens']:.0f} sampled tokens" in TEXT
    assert cost.loc[1, "joint(4)"]["calls"] == 4 + 16 and cost.loc[1, "tree(4)"]["calls"] == 8
    assert "`joint(4)` takes 20 calls, 4 + 16; a tree takes 8" in TEXT


def test_what_is_picked_is_as_far_from_success_as_the_text_says(picks):
    first = picks["first"].unstack("k")
    assert (first.nunique(axis=1) == 1).all(), "the candidate that is drawn first is the same for every K"
    assert f"Drawn first: {first.loc[0, 8]:.2f} for every K" in TEXT
    best = picks["reward"].unstack("k")
    assert "Earned most: {:.2f}, {:.2f} and {:.2f}.".format(*best.loc[0, [2, 4, 8]]) in TEXT
    alone = picks["alone"]
    spread = (best[8].min(), best[8].max(), alone.min(), alone.max())
    told = "{:.2f} to {:.2f} at K = 8, where the team alone solves {:.2f} to {:.2f}".format(*spread)
    assert f"Over five seeds, {told}" in TEXT and len(best) == 5
    assert f"{picks['pass@8', 8, 0]:.2f} for eight whole episodes" in TEXT
    surest = picks["surest"].unstack("k")[8]
    assert f"arrives in {surest.min():.2f} to {surest.max():.2f} of the mazes (five seeds)" in TEXT


@pytest.mark.parametrize(
    "env, plan, ours",
    [
        (Ladder(("a", "b", "c"), max_turns=2), lab.episodes(8), n01.COUNTS[0]),
        (Ladder(("a", "b", "c"), max_turns=2), lab.tree(8), n01.COUNTS[1]),
        (Ladder(("a", "b", "c"), max_turns=2), lab.joint(2), n01.COUNTS[2]),
        (Duet(("a", "b", "c"), max_turns=1), lab.joint(8), n01.COUNTS[3]),
    ],
)
def test_the_calls_to_be_counted_are_those_that_are_made(env, plan, ours):
    team = lab.Team.shared(Scripted(lambda prompt, nth, seed: "1"), env.agents)
    assert len(lab.rollout(env, team, env.tasks(1, "train", 0), plan)) == ours
