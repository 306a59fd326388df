"""What notebook 07 says of recorded runs stands in the records."""

import forms
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
[MASTER] = [path for path in forms.masters() if path.stem.startswith("07")]
TEXT = MASTER.read_text(encoding="utf-8")


def board(study):
    return lab.AblationBoard(RESULTS / "studies" / study)


def final(found, env):
    return found.table[found.table["env"] == env].set_index("recipe")["final"]


def tried(arm, lr, task="pay 0.2"):
    """Success at the end and at the start of the sweep's three seeds."""
    runs = Recorded(RESULTS / "studies" / "paid_help").table
    own = runs[(runs["phase"] == "sweep") & (runs["task"] == task) & (runs["arm"] == arm) & (runs["lr"] == lr)]
    assert len(own) == 3
    return own.sort_values("seed")["final"], own.sort_values("seed")["start"]


def listed(numbers):
    return "{:.2f}, {:.2f} and {:.2f}".format(*numbers)


def test_three_seeds_at_each_rate():
    ends, starts = tried("global", 3e-4)
    told = "At the rate of notebook 03, 3e-4, they ended at {} under the global baseline and at {} under their own"
    assert told.format(listed(ends), listed(tried("own", 3e-4)[0])) in TEXT
    assert f"from {starts.min():.2f} to {starts.max():.2f} before training" in TEXT
    high, before = tried("global", 1e-3)
    assert (high < before).all() and "at 1e-3 the global one is at 0.50 in all three" in TEXT
    assert (high - 0.5).abs().max() < 0.01


def test_ten_seeds_each_at_its_best_rate():
    found = board("paid_help")
    ends = final(found, "pay 0.2")
    assert f"ends at {ends['global']:.2f} over ten seeds against {ends['own']:.2f}" in TEXT
    row = found.differences.query("env == 'pay 0.2' and recipe == 'own'").iloc[0]
    told = "+{:.2f} seed by seed for the own one (95 % interval {:.2f} to {:.2f}), higher in all ten"
    assert told.format(row["final"], row["final_low"], row["final_high"]) in TEXT and row["higher"] == 10
    there = tried("own", 3e-4)[0].to_numpy() - tried("global", 3e-4)[0].to_numpy()
    assert row["final"] < there.mean() / 2, "given its best rate, less than half of the harm is seen"


def test_the_gain_at_a_pay_of_one():
    agents = Recorded(RESULTS / "studies" / "paid_help").agents.query("agent == 'helper' and task == 'pay 1.0'")
    gain = agents.query("window == 'start' and arm == 'global'")["gain"].median()
    assert f"has a gain of {gain:.2f} at pay 1.0" in TEXT


def test_the_four_cells_on_search_end_alike():
    ends = final(board("search"), "search")
    assert set(ends.round(2)) == {0.96} and len(ends) == 4 and "all four at 0.96" in TEXT


def test_math_and_search_tell_no_difference():
    for study in ("math", "search"):
        rows = board(study).differences.query("recipe == 'own'")
        assert ((rows["final_low"] <= 0.005) & (rows["final_high"] >= -0.005)).all()
    fixer = Recorded(RESULTS / "studies" / "math").agents.query(
        "agent == 'fixer' and window == 'start' and arm == 'global'"
    )
    assert fixer["own"].value_counts().to_dict() == {"costs": 4, "pays": 3, "hardly matters": 3}
    for folder in ("search", "search_grpo"):
        calls = pd.read_csv(RESULTS / folder / "calls.csv").query("agent == 'searcher'").groupby("step")["calls"].mean()
        assert (
            round(calls[1], 1) == 1.6
            and round(calls[50], 1) == 1.7
            and "from 1.6 searches an episode it goes to 1.7" in TEXT
        )


def test_on_the_ladder_the_harm_begins_at_the_fifth_stage():
    agents = Recorded(RESULTS / "studies" / "ladder").agents.query("task == '8 agents'")
    right = agents.query("window == 'end'").pivot_table(
        index="agent", columns="arm", values="own_after", aggfunc="median"
    )
    lost = right["own"] - right["global"]
    assert (lost[[f"stage_{number}" for number in (1, 2, 3, 4)]] < 0.05).all()
    assert (lost[[f"stage_{number}" for number in (5, 6, 7, 8)]] > 0.05).all()
    gains = agents.query("window == 'start' and arm == 'global'").groupby("agent")["gain"].median()
    assert gains["stage_5"] > 3 > gains["stage_4"] and gains["stage_8"] == 0


def test_who_may_be_small():
    ends = final(board("sizes"), "math")
    assert f"({ends['small verifier']:.2f} against {ends['both large']:.2f})" in TEXT
    assert f"{ends['both large']:.2f} for both large" in TEXT
    assert ends["small solver"] / ends["both large"] == pytest.approx(2 / 3, abs=0.03)
