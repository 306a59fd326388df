"""What notebook 07 says of recorded runs stands in the records."""

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.course import forms
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


def test_three_seeds_at_the_rate_of_the_notebook():
    ends, starts = tried("global", 3e-4)
    assert f"{listed(starts)} at the start) ended at {listed(ends)} under the global baseline" in TEXT
    assert f"at {listed(tried('own', 3e-4)[0])} under their own" in TEXT


def test_at_the_highest_rate_the_global_baseline_unlearns():
    ends, starts = tried("global", 1e-3)
    assert (
        (ends < starts).all() and (ends - 0.5).abs().max() < 0.01 and "the team ends at 0.50 in all three seeds" in TEXT
    )
    assert f"with its own it still learns, to {listed(tried('own', 1e-3)[0])}" in TEXT


def test_ten_seeds_each_at_its_best_rate():
    found = board("paid_help")
    ends = final(found, "pay 0.2")
    assert f"{ends['global']:.2f} against {ends['own']:.2f} over ten seeds" in TEXT
    row = found.differences.query("env == 'pay 0.2' and recipe == 'own'").iloc[0]
    told = "+{:.2f} seed by seed (95 % interval {:.2f} to {:.2f}), higher in all ten"
    assert told.format(row["final"], row["final_low"], row["final_high"]) in TEXT and row["higher"] == 10


def test_which_half_it_is():
    paid, ladder = final(board("paid_help"), "pay 0.2"), final(board("ladder"), "8 agents")
    assert f"{paid['own mean']:.2f} of {paid['own']:.2f} in `paid_help`, all of it on the ladder" in TEXT
    assert ladder["own mean"] == pytest.approx(ladder["own"], abs=0.005)
    assert f"where it was: {paid['own scale']:.2f}" in TEXT
    kept = (ladder["own scale"] - ladder["global"]) / (ladder["own"] - ladder["global"])
    assert kept == pytest.approx(2 / 3, abs=0.06) and f"it ends at {ladder['own scale, lent']:.2f}" in TEXT
    row = board("paid_help").differences.query("env == 'pay 0.2' and recipe == 'own scale'").iloc[0]
    assert row["final_low"] < 0 < row["final_high"]


def test_the_gain_falls_with_the_pay_and_the_difference_with_it():
    agents = Recorded(RESULTS / "studies" / "paid_help").agents.query("agent == 'helper'")
    start = agents.query("window == 'start' and arm == 'global'").groupby("task")["gain"].median()
    end = agents.query("window == 'end'").pivot_table(index="task", columns="arm", values="own_after")
    pays = [f"pay {pay}" for pay in (0.1, 0.2, 0.4, 0.6, 0.8)]
    assert start[pays].is_monotonic_decreasing
    assert (end["own"] - end["global"])[pays].is_monotonic_decreasing
    assert f"a gain of {start['pay 1.0']:.2f} at pay 1.0" in TEXT


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
