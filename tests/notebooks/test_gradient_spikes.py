"""What notebook 05 says of the recorded runs stands in the records, and the shipped spike opens; what the page of
recorded results says of solver, verifier and fixer, too."""

import json

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
LADDER, TEAMS = RESULTS / "ladder_spikes", RESULTS / "gradient_spikes"
TEXT = (notebooks_dir() / "05_gradient_spikes.ipynb").read_text(encoding="utf-8")
PAGE = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())


def ladder(name):
    return pd.read_csv(LADDER / f"{name}.csv")


def with_ratio(norms):
    return norms.assign(ratio=norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0))


@pytest.fixture(scope="module")
def norms():
    """With the ratio, and the `norm` under the baseline that was used."""
    norms = with_ratio(ladder("norms"))
    return norms.assign(norm=norms["norm_global"].where(norms["recipe"] == "grpo", norms["norm_agent"]))


@pytest.mark.parametrize("folder", [LADDER, TEAMS], ids=lambda path: path.name)
def test_records_are_small(folder):
    assert all(path.stat().st_size < 300_000 for path in folder.iterdir())


def test_norms_come_first_and_success_not_at_all(norms):
    tallest = norms.groupby(["recipe", "seed", "step"])["norm"].max().unstack("step")
    early = tallest.loc["grpo"].loc[:, :4].max(axis=1)
    assert early.equals(tallest.loc["grpo"].max(axis=1))
    assert "{:.1f}, {:.1f} and {:.1f} within the first five steps".format(*early) in TEXT
    late = tallest.loc["grpo"].loc[:, 25:].max(axis=1)
    assert "In the last five none passes {:.1f}, {:.1f} and {:.1f}".format(*late) in TEXT
    assert f"Under `dr_mas` no norm passes {tallest.loc['dr_mas'].max(axis=None):.1f}" in TEXT
    ends = ladder("scores").groupby(["recipe", "seed"])["success"].last().unstack()
    assert "climb to {:.2f}, {:.2f} and {:.2f}".format(*ends.loc["dr_mas"]) in TEXT
    assert "The teams end at {:.2f}, {:.2f} and {:.2f}".format(*ends.loc["grpo"]) in TEXT


def test_on_one_batch_the_baseline_is_about_a_factor_of_two(norms):
    used = norms[norms["recipe"] == "grpo"]
    by = used.groupby("agent")
    ratio, silent = by["ratio"].median(), (used["norm_agent"] == 0).groupby(used["agent"]).mean()
    first = norms[norms["agent"] == "stage_1"]
    assert len(first) == 180 and first["ratio"].to_numpy() == pytest.approx(1, abs=1e-3)
    between = ratio[[f"stage_{stage}" for stage in (2, 3, 4, 5)]]
    assert f"*smaller* norms under the global one, {between.min():.2f} to {between.max():.2f} times" in TEXT
    assert "{:.2f} and {:.2f} times in the median".format(*ratio[["stage_7", "stage_8"]]) in TEXT
    assert "in {:.0f} and in {:.0f} of 100 steps".format(*100 * silent[["stage_7", "stage_8"]]) in TEXT
    last = norms[norms["agent"] == "stage_8"].groupby("recipe")[["norm", "rows"]].median()
    told = (
        f"a norm of {last.loc['grpo', 'norm']:.1f} in the median under `grpo`, and of {last.loc['dr_mas', 'norm']:.2f}"
    )
    assert told in TEXT
    assert f"The rest is `rows`: {last.loc['grpo', 'rows']:.0f} against {last.loc['dr_mas', 'rows']:.0f}" in TEXT
    assert (norms["F"] <= 7).all()


def test_ten_seeds_and_other_clippings_are_told_as_recorded():
    study = Recorded(RESULTS / "studies" / "ladder")
    agents = study.agents.query("task == '8 agents' and window == 'end' and arm in ['global', 'own']")
    most = agents.groupby(["arm", "seed"])["largest_norm"].max().groupby("arm").agg(["min", "max"]).round()
    told = [f"{low:.0f} to {high:.0f} under" for low, high in most.to_numpy()]
    assert f"{told[0]} the global baseline and {told[1]} their own" in TEXT
    runs = study.table.query(
        "phase == 'compare' and seed in [0, 1] and task.str.startswith('8 agents')", engine="python"
    )
    shown = ["8 agents", "8 agents, clipped at 0.1", "8 agents, no clipping", "8 agents, SGD"]
    ends = runs[runs["task"].isin(shown)].pivot_table(index="task", columns="arm", values="final")
    assert (ends["global"] < 0.1).all() and (ends["own"] > 0.3).all() and len(ends) == 4


def test_the_shipped_spike_is_one_guess():
    watch = lab.SpikeWatch(threshold=2.5, warmup=2)
    watch.load_state(json.loads((LADDER / "spikes.json").read_text(encoding="utf-8")))
    tables = [pd.read_parquet(LADDER / f"spike_{name}.parquet") for name in ("turns", "stats")]
    inspector = lab.SpikeInspector(tables, watch=watch)
    [spike] = inspector.spikes
    [(row, share)] = spike["rows"].items()
    said = inspector.source.turns(spike["step"]).iloc[int(row)]
    assert (said["agent"], said["completion"], said["prompt"]) == (
        "stage_8",
        "answer 4",
        "user: solve 3 + 2 - 6 + 6 - 9",
    )
    assert share == pytest.approx(1, abs=1e-4) and said["local_reward"] == 0 and said["team_reward"] == 7 / 8
    assert f"praised with {said['advantage']:+.2f}, and the norm is {spike['norm']:.1f}" in TEXT
    assert spike["baselines"]["agent"][""] == 0 and said["center"] == 2 / 8
    assert spike["tokens"][row][0] > 0.5  # the word "answer"
    assert len(inspector.data()["spikes"]) == 1


def test_under_the_global_baseline_the_last_stage_learns_to_guess():
    said = ladder("said")
    said = said.assign(**{name: said[name] * said["rows"] for name in ("guessed", "right")})

    def share(recipe, agent, steps, name):
        own = said[(said["recipe"] == recipe) & (said["agent"] == agent) & said["step"].isin(steps)]
        return own[name].sum() / own["rows"].sum()

    first, last = range(5), range(25, 30)
    fallen = [share("dr_mas", "stage_8", steps, "guessed") for steps in (first, last)]
    assert "from {:.2f} to {:.2f}".format(*fallen) in TEXT
    assert f"is right in {share('dr_mas', 'stage_8', last, 'right'):.2f} of its answers" in TEXT
    guessed, right = (share("grpo", "stage_8", last, name) for name in ("guessed", "right"))
    assert f"*learns to guess*: {guessed:.2f} of its answers, and {right:.2f} are right" in TEXT


def test_what_is_predicted_is_as_far_off_as_the_text_says():
    ratios = ladder("ratios").drop_duplicates(["agent", "norm_global"])
    known = ratios[ratios["V"] > 0]
    assert f"{len(ratios) - len(known)} of the {len(ratios)} batches are missing" in TEXT
    off = [np.exp(np.abs(np.log(one / known["measured"]))) for one in (known["F"] / known["V"], known["predicted"])]
    middle = [one[known["agent"] == "stage_8"].median() for one in off]
    assert f"for stage 8 by a factor of {middle[0]:.1f} in the median" in TEXT
    assert f"the factor is {middle[1]:.1f}: it matters" in TEXT
    assert f"at worst it is off by a factor of {int(off[1].max())}" in TEXT


def test_all_four_combinations_are_told_as_recorded():
    def largest(name, task, agent):
        agents = Recorded(RESULTS / "studies" / name).agents
        own = agents.query("task == @task and agent == @agent and window == 'end'")
        return own.groupby("arm")["largest_norm"].median()[["global", "own"]]

    def gain(name, task):
        board = lab.AblationBoard(RESULTS / "studies" / name, baseline="global").differences
        return board.query("env == @task and recipe == 'own'").iloc[0]

    fixer, helper = largest("math", "with a fixer", "fixer"), largest("paid_help", "pay 0.2", "helper")
    assert "its norm reaches {:.1f} under the global baseline, {:.1f} under its own".format(*fixer) in TEXT
    assert "({:.1f} against {:.1f})".format(*helper) in TEXT and helper["global"] < helper["own"]
    harmless = gain("math", "with a fixer")
    told = f"({harmless['final']:.2f}, {harmless['final_low']:+.2f} to {harmless['final_high']:+.2f})"
    assert told.replace("-", "−") in TEXT
    assert f"and the team loses {gain('paid_help', 'pay 0.2')['final']:.2f}" in TEXT
    assert gain("finisher", "low 0.8")["final_low"] > 0 and gain("math", "without one")["final_low"] < 0
    told = Recorded(RESULTS / "studies" / "math").agents.query("task == 'with a fixer' and arm == 'global'")
    share = told[(told["window"] == "start") & (told["agent"] == "fixer")]["signal"].median()
    assert share == pytest.approx(1 / 3, abs=0.02) and "a third of its squared advantages is signal" in TEXT
    told = Recorded(RESULTS / "studies" / "paid_help").agents.query("task == 'pay 0.2' and arm == 'global'")
    start = told[(told["window"] == "start") & (told["agent"] == "helper")][["F", "signal"]].median()
    assert f"F is {start['F']:.1f}, its norms" in TEXT and f"`signal` is {start['signal']:.2f}" in TEXT


def test_the_page_says_what_was_recorded_of_solver_verifier_and_fixer():
    norms = with_ratio(pd.read_csv(TEAMS / "norms.csv"))
    medians = norms.groupby(["form", "agent", "recipe"])["ratio"].median()
    fixer, verifier = medians["fixer", "fixer"], medians["fixer", "verifier"].round(2)
    assert f"fixer {fixer['grpo']:.1f} and {fixer['dr_mas']:.1f}, at most 16" in PAGE
    assert f"verifier {verifier['grpo']} in the median under `grpo`, {verifier['dr_mas']} under `dr_mas`" in PAGE
    assert round(norms.loc[norms["form"] == "fixer", "ratio"].max()) == 16
    pair = medians["pair", "verifier"].round(2)
    assert f"verifier {pair['grpo']} and {pair['dr_mas']}" in PAGE
    ends = pd.read_csv(TEAMS / "scores.csv").groupby(["form", "recipe", "seed"])["success"].last().unstack().round(2)
    for form, recipe in ends.index:
        assert "{:.2f}, {:.2f}, {:.2f} (`{}`)".format(*ends.loc[form, recipe], recipe) in PAGE
