"""What notebook 03 says of recorded runs stands in the records, and its first half needs no torch."""

import subprocess
import sys
from pathlib import Path

import forms
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
TEXT = (notebooks_dir() / "03_normalization.ipynb").read_text(encoding="utf-8")
FINDINGS = Path(__file__).resolve().parents[2] / "docs" / "findings.md"


@pytest.fixture(scope="module")
def ends():
    curves = pd.read_csv(RESULTS / "whose_mean" / "curves.csv")
    return curves[curves["step"] == 30].groupby(["setting", "recipe"])


@pytest.fixture(scope="module")
def agents():
    return pd.read_csv(RESULTS / "whose_mean" / "agents.csv").set_index(["setting", "recipe", "seed", "agent"])


def between(values, digits=2):
    return f"between {values.min():.{digits}f} and {values.max():.{digits}f}"


def test_ends_of_the_recorded_trainings_are_those_of_the_text(ends):
    final = {key: own["success"] for key, own in ends}
    own, other = final["paid_help, pay 0.2", "dr_mas"], final["paid_help, pay 0.2", "grpo"]
    assert f"At a pay of 0.2, `grpo` ends {between(other)} and `dr_mas` {between(own)}; at 1.0, " in TEXT
    same, paid = final["paid_help, pay 1.0", "dr_mas"], final["paid_help, pay 1.0", "grpo"]
    assert f"at 1.0, {between(paid)}, and {between(same)}" in TEXT
    assert f"not {own.mean() - other.mean():.2f}: patience" in TEXT and own.to_list() == same.to_list()
    two = pd.concat([final["ladder of 2", "grpo"], final["ladder of 2", "dr_mas"]])
    assert f"Two agents end {between(two)} under either." in TEXT
    high, low = final["ladder of 8", "dr_mas"], final["ladder of 8", "grpo"]
    assert f"Eight end {between(high)} under `dr_mas`, {between(low)} under `grpo`" in TEXT
    tokens = ends["tokens"].agg(["min", "max"])
    assert tokens.loc[("ladder of 8", "dr_mas")].between(128_000, 132_000).all()
    assert tokens.loc[("ladder of 8", "grpo")].between(100_000, 115_000).all()


def test_norms_and_entropy_of_the_recorded_trainings_are_those_of_the_text(agents):
    tall = agents["largest_norm"].groupby(["setting", "recipe", "seed"]).max()
    own, other = tall["ladder of 8", "dr_mas"], tall["ladder of 8", "grpo"]
    told = f"{own.min():.1f} to {own.max():.1f} under `dr_mas`, {other.min():.0f} to {other.max():.0f} under `grpo`"
    assert f"the largest norm of a run is {told}" in TEXT
    by = tall.unstack("seed")
    assert (by.loc[("paid_help, pay 1.0", "grpo")] > by.loc[("paid_help, pay 0.2", "grpo")]).all()
    assert by.loc[("paid_help, pay 0.2", "dr_mas")].equals(by.loc[("paid_help, pay 1.0", "dr_mas")])
    helper = agents.xs("helper", level="agent").groupby(["setting", "recipe"]).median()
    start = helper["right_before"]
    assert round(start.min(), 2) == round(start.max(), 2) == 0.44 and "It starts at 0.44" in TEXT
    said = helper["entropy_end"]
    assert 2.5 < said["paid_help, pay 0.2", "grpo"] / said["paid_help, pay 0.2", "dr_mas"] < 3.5


def test_what_the_studies_say_is_what_the_text_says():
    board = lab.AblationBoard(RESULTS / "studies" / "paid_help")
    row = board.differences.query("env == 'pay 0.2' and recipe == 'own'").iloc[0]
    told = f"loses {row['final']:.2f} at a pay of 0.2 (95 % interval {row['final_low']:.2f} to {row['final_high']:.2f}"
    assert told in TEXT
    rates = board_rates("paid_help")
    assert rates["pay 0.2", "global"] == 1e-4 and "At its own best rate, 1e-4" in TEXT
    ladder = lab.AblationBoard(RESULTS / "studies" / "ladder")
    shared = ladder.runs.query("env == '8 agents, one set of weights'")
    one, own = ([f"{x:.2f}" for x in shared.loc[shared["recipe"] == arm, "final"]] for arm in ("global", "own"))
    assert f"three seeds: {one[0]}, {one[1]} and {one[2]}, own {own[0]}, {own[1]} and {own[2]}" in TEXT


def board_rates(name):
    runs = Recorded(RESULTS / "studies" / name).table.query("phase == 'compare'")
    return runs.groupby(["task", "arm"])["lr"].first()


def test_the_three_factors_are_told_as_recorded():
    board = lab.AblationBoard(RESULTS / "studies" / "baselines")
    ends = board.table[board.table["env"] == "ladder of 8"].set_index("recipe")["final"]
    told = "`grpo` ends at {grpo:.2f}, `grpo_masked` at {grpo_masked:.2f}, `dr_mas` at {dr_mas:.2f}."
    assert told.format(**ends) in TEXT
    gains = board.differences[board.differences["env"] == "ladder of 8"].set_index("recipe")
    masked, both = (
        "{final:+.2f} ({}{final_low:+.2f} to {final_high:+.2f})".format(
            "95 % interval " * (arm == "grpo_masked"), **row
        )
        for arm, row in gains.loc[["grpo_masked", "dr_mas"]].iterrows()
    )
    assert f"leaving out rows without a peer gains {masked}, own mean and own scale together {both}." in TEXT
    gain = gains["final"]
    assert 0.5 < gain["grpo_masked"] / gain["dr_mas"] < 0.75 and "more than half of what looked like the mean's" in TEXT
    assert (
        f"The own scale gains {gain['own scale']:+.2f}" in TEXT
        and f"and {gain['own scale, lent']:+.2f} is left" in TEXT
    )
    assert f"own mean {gain['own mean']:+.2f}, `own_pooled` {gain['own_pooled']:+.2f}" in TEXT
    runs = board.runs[board.runs["env"] == "ladder of 8"].groupby("seed")["final"].max()
    assert (runs < 0.02).sum() == 4 and "Four of them do not reach the top under any arm." in TEXT


def test_a_scale_ruins_the_helper_of_stakes_as_recorded():
    study = Recorded(RESULTS / "studies" / "baselines")
    helper = study.agents.query("task == 'stakes' and agent == 'helper' and window == 'end'")
    after, before = helper.groupby("arm")["quiz_after"].mean(), helper["quiz_before"].mean()
    assert f"it *falls*, from {before:.2f} to {after['dr_mas']:.2f}." in TEXT
    assert f"`grpo` comes to {after['grpo']:.2f}" in TEXT
    assert f"with the task's scale to {after['own mean']:.2f}, and `own_pooled`" in TEXT
    assert f"with one scale, to {after['own_pooled']:.2f}." in TEXT
    rates = study.rates.query("task == 'stakes' and arm == 'dr_mas' and chosen")
    assert rates["edge"].all() and rates["lr"].item() == study.rates["lr"].min()


def test_the_first_half_runs_without_torch(tmp_path):
    [master] = [path for path in forms.masters() if path.stem == "03_normalization"]
    code = ["import sys", "sys.modules['torch'] = None"]
    for cell in forms.notebook(master, "solution")["cells"]:
        source = "".join(cell["source"])
        if "## Does it happen to real policies?" in source:
            break
        if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", []):
            code.append(source)
    else:
        pytest.fail("the second half has another title")
    script = tmp_path / "half.py"
    script.write_text("\n".join(code), encoding="utf-8")
    ran = subprocess.run([sys.executable, "-P", script], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("● 03.") == 3, ran.stdout


def test_how_far_two_halves_of_a_batch_agree_is_what_the_text_says():
    halves = pd.read_csv(RESULTS / "whose_mean" / "halves.csv")
    cosine = halves.pivot_table(index="pay", columns="recipe", values="cosine")
    assert f"rises from {cosine['grpo'][0.1]:.2f} at a pay of 0.1 to {cosine['grpo'][1.0]:.2f} at 1.0" in TEXT
    own = cosine["dr_mas"]
    assert own.max() - own.min() < 0.001 and f"stands at {own.mean():.2f} whatever the pay" in TEXT
    odds = cosine / (1 - cosine)
    measured, told = odds["dr_mas_mean"] / odds["grpo"], halves.groupby("pay")["gain"].mean()
    for pay in (0.2, 0.4):
        assert f"{told[pay]:.1f} told, {measured[pay]:.1f} measured at a pay of {pay}" in TEXT
    assert (measured / told).between(0.75, 1.25).all(), "what the text calls the same"
    norm = halves.pivot_table(index="pay", columns="recipe", values="norm")
    assert norm["grpo"].idxmin() == 0.1 and norm["grpo"].min() < norm["dr_mas"].min() / 2
    assert f"{told[0.2]:.0f} told and {measured[0.2]:.0f} measured" in FINDINGS.read_text(encoding="utf-8")
