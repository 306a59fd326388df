"""What notebook 12 says of the recorded studies stands in their records, and what it says of chance comes out."""

import re

import forms
import numpy as np
import pytest
import yaml

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.intervals import bootstrap_interval, iqm, probability_of_improvement
from mas_lab.study.record import Recorded

STUDIES = data_dir() / "results" / "studies"
[MASTER] = [path for path in forms.masters() if path.stem == "12_the_study"]
TEXT = MASTER.read_text(encoding="utf-8")
ARMS = ["global", "own"]


@pytest.fixture(scope="module")
def ladder():
    return Recorded(STUDIES / "ladder")


def board(study, task, arms, **asked):
    curves = study.curves.query("task == @task and arm in @arms").rename(columns={"task": "env", "arm": "recipe"})
    return lab.AblationBoard(curves, **{"over": study.held_equal, **asked})


def finals(study, task, phase="compare"):
    """Success after the last step: a column per arm, a row per seed."""
    runs = study.table.query("task == @task and phase == @phase")
    return runs.pivot(index="seed", columns="arm", values="final")


def listed(name):
    row = re.search(rf"^# \| {name} \| (.*) \|$", TEXT, flags=re.M)[1]
    return [float(one) for one in row.split(" | ")]


def test_the_five_numbers_are_the_first_five_seeds(ladder):
    five = finals(ladder, "8 agents").loc[range(5)]
    for arm in ARMS:
        assert listed(f"`{arm}`") == pytest.approx(five[arm].round(2).tolist())
    assert listed("`own` minus `global`") == pytest.approx((five["own"] - five["global"]).tolist(), abs=0.011)
    own, other = np.array(listed("`own`")), np.array(listed("`global`"))
    assert (round(iqm(own), 2), round(own.mean(), 2), round(iqm(other), 2)) == (0.41, 0.36, 0.05)
    assert probability_of_improvement([own], [other]) == 0.7 and "(4 + 4 + ½ + 5 + 4) / 25 = 0.70" in TEXT
    drawn = iqm(np.random.default_rng(0).choice(own, size=(5000, 5)))
    assert "{:.2f} to {:.2f}. That is wide".format(*np.quantile(drawn, [0.025, 0.975])) in TEXT


def test_ten_seeds_overlap_and_their_differences_do_not_hold_nothing(ladder):
    both = board(ladder, "8 agents", ARMS)
    table = both.table.set_index("recipe")
    ends = [f"{table.loc[arm, 'final_low']:.2f} to {table.loc[arm, 'final_high']:.2f}" for arm in ARMS]
    assert f"The arms' intervals overlap, {ends[0]} and {ends[1]}" in TEXT
    [row] = both.differences.to_dict("records")
    assert "{final:+.2f}, 95 % interval {final_low:+.2f} to {final_high:+.2f}; ".format(**row) in TEXT
    assert (row["higher"], row["lower"]) == (9, 0) and "nine seeds higher, none lower" in TEXT
    [row] = both.improvements.to_dict("records")
    assert "{final:.2f}, 95 % interval {final_low:.2f} to {final_high:.2f}: it holds one half".format(**row) in TEXT
    runs = both.runs.set_index(["recipe", "seed"])["final"]
    last = finals(ladder, "8 agents")[ARMS].stack().swaplevel()
    assert (runs - last.reindex(runs.index)).abs().max() < 0.035 and "may differ by 0.03" in TEXT


def test_equal_what_is_told_as_recorded():
    maze, arms = Recorded(STUDIES / "at_grpo"), ["team return", "own reward", "tree, outcome only"]
    found = {}
    for over in ("tokens", "episodes", "optimizer_steps"):
        table = board(maze, "maze", arms, over=over, baseline="team return").differences.set_index("recipe")
        assert table.loc["own reward", "final_low"] > 0
        found[over] = table.loc["tree, outcome only"]
    tree = {over: f"{row['final']:+.2f}" for over, row in found.items()}
    assert f"gains {tree['tokens']} at equal tokens, {tree['episodes']} at equal episodes, and" in TEXT
    assert f"and {tree['optimizer_steps']}, an interval that holds 0, at equal optimizer steps" in TEXT
    assert found["optimizer_steps"]["final_low"] < 0 < found["optimizer_steps"]["final_high"]
    assert found["tokens"]["final_low"] > 0 and found["episodes"]["final_low"] > 0


def test_rates_are_told_as_swept(ladder):
    helped = Recorded(STUDIES / "paid_help")
    rates = helped.rates.query("task == 'pay 0.2' and arm in @ARMS")
    means = rates.pivot(index="lr", columns="arm", values="mean")
    gap = means["own"] - means["global"]
    best = rates[rates["chosen"]].set_index("arm")["mean"]
    assert f"{gap[3e-4]:+.2f} at 3e-4, {gap[1e-3]:+.2f} at 1e-3" in TEXT
    assert f"unlearns*: {means.loc[1e-3, 'global']:.2f} from 0.71)" in TEXT
    starts = helped.table.query("task == 'pay 0.2' and phase == 'sweep' and arm == 'global' and lr == 1e-3")["start"]
    assert round(starts.mean(), 2) == 0.71
    fresh = board(helped, "pay 0.2", ARMS).differences["final"].iloc[0]
    assert f"{best['own'] - best['global']:+.2f} with each at its best; over ten fresh seeds it is {fresh:+.2f}" in TEXT
    steep = ladder.rates.query("task == '8 agents' and arm in @ARMS and lr == 1e-3")
    assert (steep["mean"] == 0).all() and "both are at 0.00" in TEXT


def test_where_it_does_not_help_and_which_half_it_is(ladder):
    shared = board(ladder, "8 agents, one set of weights", ARMS).differences.iloc[0]
    assert f"three seeds differ by {shared['final']:+.2f} in the mean" in TEXT and shared["higher"] == 3
    high = 0.0
    for name, task, seeds in (("math", "with a fixer", 10), ("search", "search", 5)):
        row = board(Recorded(STUDIES / name), task, ARMS).differences.iloc[0]
        assert row["final_low"] < 0 and row["final_high"] >= 0 and row["pairs"] == seeds
        high = max(high, row["final_high"] if name == "math" else 0.0)
    assert f"on `math` at most {high:.2f}" in TEXT
    cells = board(ladder, "8 agents", [*ARMS, "own mean", "own scale"]).differences.set_index("recipe")["final"]
    assert f'the arm "own mean" gains as much as both together ({cells["own mean"]:+.2f})' in TEXT
    assert round(cells["own"], 2) == round(cells["own mean"], 2)
    assert f'"own scale" two thirds ({cells["own scale"]:+.2f})' in TEXT
    lent = board(ladder, "8 agents", ["global", "own scale, lent"]).differences.iloc[0]
    assert f"it gains {lent['final']:+.2f}, not told from nothing" in TEXT
    assert lent["final_low"] < 0 < lent["final_high"]
    assert cells["own scale"] / cells["own"] == pytest.approx(2 / 3, abs=0.05)


def test_the_control_gains_most_of_it():
    arms = ["grpo", "grpo_masked", "dr_mas"]
    gain = board(Recorded(STUDIES / "baselines"), "ladder of 8", arms).differences.set_index("recipe")["final"]
    assert f"`grpo_masked` gains {gain['grpo_masked']:+.2f} of the {gain['dr_mas']:+.2f} of `dr_mas`" in TEXT


def test_the_study_of_the_notebook_is_the_recorded_one():
    first = Recorded(STUDIES / "first_study")
    runs = finals(first, "ladder")
    numbers = [f"{one:.2f}" for arm in ARMS for one in runs[arm]]
    assert "`global` comes to {}, {} and {}, `own` to {}, {} and {}".format(*numbers) in TEXT
    assert (runs["own"] > runs["global"]).all()
    cell = TEXT[TEXT.index("design = {") :]
    written = {}
    exec(cell[: cell.index("\n}") + 2], {"SMOKE": False}, written)
    source = MASTER.parents[2] / "benchmarks" / "studies" / "first_study.yaml"
    if source.is_file():  # part of the checkout alone
        assert yaml.safe_load(source.read_text(encoding="utf-8")) == written["design"]
    assert first.provenance["design"] == written["design"]


def test_chance_is_as_the_text_says():
    def held(runs, studies=2000):
        scores = np.random.default_rng(runs).normal(size=(studies, runs))
        ends = [bootstrap_interval([one], samples=2000) for one in scores]
        return np.mean([low <= 0 <= high for low, high in ends])

    assert "about 0.76, 0.91 and 0.94 where 0.95 was promised" in TEXT
    assert [held(runs) for runs in (3, 5, 10)] == pytest.approx([0.76, 0.91, 0.94], abs=0.025)
    rng, found = np.random.default_rng(0), []
    for _ in range(500):
        gains = rng.normal(size=20)
        ends = [bootstrap_interval([gains[:pairs]], samples=300) for pairs in range(5, 21)]
        found.append([low > 0 or high < 0 for low, high in ends])
    assert np.mean(found, axis=0)[-1] == pytest.approx(1 / 15, abs=0.02)
    assert np.any(found, axis=1).mean() == pytest.approx(0.3, abs=0.04)
    assert "about one in fifteen with one look, about three in ten with sixteen" in TEXT
