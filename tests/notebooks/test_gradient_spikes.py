"""What notebook 05 says of recorded runs stands in the records, and the shipped spike opens; what the page of
recorded results says of solver, verifier and fixer, too."""

import json

import numpy as np
import pandas as pd
import pytest
from notebooks.records import RESULTS, csv, difference, listed, says, study

import mas_lab as lab

LADDER, TEAMS = RESULTS / "ladder_spikes", RESULTS / "gradient_spikes"
PAGE = " ".join((RESULTS / "README.md").read_text(encoding="utf-8").split())


def with_ratio(norms):
    return norms.assign(ratio=norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0))


@pytest.fixture(scope="module")
def norms():
    """With the ratio, and the `norm` under the baseline that was used."""
    norms = with_ratio(csv("ladder_spikes/norms.csv"))
    return norms.assign(norm=norms["norm_global"].where(norms["recipe"] == "grpo", norms["norm_agent"]))


def test_records_are_small():
    assert all(path.stat().st_size < 300_000 for folder in (LADDER, TEAMS) for path in folder.iterdir())


def test_norms_and_success_are_as_told(norms):
    tallest = norms.groupby(["recipe", "seed", "step"])["norm"].max().unstack("step")
    early, late = tallest.loc["grpo"].loc[:, :4].max(axis=1), tallest.loc["grpo"].loc[:, 25:].max(axis=1)
    assert early.equals(tallest.loc["grpo"].max(axis=1)), "the tallest come first"
    says("05", "{:.1f}, {:.1f} and {:.1f} within the first five steps", *early)
    says("05", "In the last five none passes {:.1f}, {:.1f} and {:.1f}", *late)
    says("05", "Under `dr_mas` no norm passes {:.1f}", tallest.loc["dr_mas"].max(axis=None))
    ends = csv("ladder_spikes/scores.csv").groupby(["recipe", "seed"])["success"].last().unstack()
    says("05", "climb to {}", listed(ends.loc["dr_mas"]))
    says("05", "The teams end at {}", listed(ends.loc["grpo"]))


def test_on_one_batch_the_baseline_is_about_a_factor_of_two(norms):
    used = norms[norms["recipe"] == "grpo"]
    by = used.groupby("agent")
    ratio, silent = by["ratio"].median(), (used["norm_agent"] == 0).groupby(used["agent"]).mean()
    assert norms.loc[norms["agent"] == "stage_1", "ratio"].to_numpy() == pytest.approx(1, abs=1e-3)
    middle = ratio[[f"stage_{stage}" for stage in (2, 3, 4, 5)]]
    says("05", "*smaller* norms under the global one, {:.2f} to {:.2f} times", middle.min(), middle.max())
    says("05", "{:.2f} and {:.2f} times in the median", *ratio[["stage_7", "stage_8"]])
    says("05", "in {:.0f} and in {:.0f} of 100 steps", *100 * silent[["stage_7", "stage_8"]])
    last = norms[norms["agent"] == "stage_8"].groupby("recipe")[["norm", "rows"]].median()
    says("05", "a norm of {:.1f} in the median under `grpo`, and of {:.2f}", *last.loc[["grpo", "dr_mas"], "norm"])
    says("05", "The rest is `rows`: {:.0f} against {:.0f}", *last.loc[["grpo", "dr_mas"], "rows"])


def test_ten_seeds_and_other_clippings_are_told_as_recorded():
    agents = study("ladder").agents.query("task == '8 agents' and window == 'end' and arm in ['global', 'own']")
    most = agents.groupby(["arm", "seed"])["largest_norm"].max().groupby("arm").agg(["min", "max"])
    told = "{:.0f} to {:.0f} under the global baseline and {:.0f} to {:.0f} under their own"
    says("05", told, *most.to_numpy().ravel())
    runs = study("ladder").table.query("phase == 'compare' and seed in [0, 1]")
    ends = runs.pivot_table(index="task", columns="arm", values="final")
    shown = ends.loc[["8 agents", "8 agents, clipped at 0.1", "8 agents, no clipping", "8 agents, SGD"]]
    assert (shown["global"] < 0.1).all() and (shown["own"] > 0.3).all()


def test_the_shipped_spike_is_one_guess():
    watch = lab.SpikeWatch(threshold=2.5, warmup=2)
    watch.load_state(json.loads((LADDER / "spikes.json").read_text(encoding="utf-8")))
    tables = [pd.read_parquet(LADDER / f"spike_{name}.parquet") for name in ("turns", "stats")]
    inspector = lab.SpikeInspector(tables, watch=watch)
    [spike] = inspector.spikes
    [(row, share)] = spike["rows"].items()
    said = tables[0].query("step == @spike['step']").iloc[int(row)]
    assert said["agent"] == "stage_8" and said["completion"] == "answer 4"
    assert share == pytest.approx(1, abs=1e-4) and said["local_reward"] == 0 and said["team_reward"] == 7 / 8
    says("05", "praised with {:+.2f}, and the norm is {:.1f}", said["advantage"], spike["norm"])
    assert spike["baselines"]["agent"][""] == 0 and said["center"] == 2 / 8
    assert len(inspector.data()["spikes"]) == 1


def test_under_the_global_baseline_the_last_stage_learns_to_guess():
    said = csv("ladder_spikes/said.csv").query("agent == 'stage_8'")

    def share(recipe, first, name):
        own = said[(said["recipe"] == recipe) & said["step"].between(first, first + 4)]
        return np.average(own[name], weights=own["rows"])

    says("05", "from {:.2f} to {:.2f}", *(share("dr_mas", first, "guessed") for first in (0, 25)))
    says("05", "is right in {:.2f} of its answers", share("dr_mas", 25, "right"))
    told = "*learns to guess*: {:.2f} of its answers, and {:.2f} are right"
    says("05", told, *(share("grpo", 25, name) for name in ("guessed", "right")))


def test_what_is_predicted_is_as_far_off_as_the_text_says():
    ratios = csv("ladder_spikes/ratios.csv").drop_duplicates(["agent", "norm_global"])
    known = ratios[ratios["V"] > 0]
    says("05", "{} of the {} batches are missing", len(ratios) - len(known), len(ratios))
    off = [np.exp(np.abs(np.log(one / known["measured"]))) for one in (known["F"] / known["V"], known["predicted"])]
    middle = [one[known["agent"] == "stage_8"].median() for one in off]
    says("05", "for stage 8 by a factor of {:.1f} in the median", middle[0])
    says("05", "the factor is {:.1f}: it matters", middle[1])
    says("05", "at worst it is off by a factor of {}", int(off[1].max()))


def test_all_four_combinations_are_told_as_recorded():
    def median(name, task, agent, window, what):
        own = study(name).agents.query("task == @task and agent == @agent and window == @window")
        return own.groupby("arm")[what].median()[["global", "own"]]

    fixer, helper = ("math", "with a fixer", "fixer"), ("paid_help", "pay 0.2", "helper")
    told = "its norm reaches {:.1f} under the global baseline, {:.1f} under its own"
    says("05", told, *median(*fixer, "end", "largest_norm"))
    says("05", "({:.1f} against {:.1f})", *median(*helper, "end", "largest_norm"))
    told = "({final:.2f}, {final_low:+.2f} to {final_high:+.2f})".format(**difference("math", "with a fixer", "own"))
    says("05", told.replace("-", "−"))
    says("05", "and the team loses {:.2f}", difference("paid_help", "pay 0.2", "own")["final"])
    assert difference("finisher", "low 0.8", "own")["final_low"] > 0
    assert median(*fixer, "start", "signal")["global"] == pytest.approx(1 / 3, abs=0.02)
    says("05", "a third of its squared advantages is signal")
    says("05", "F is {:.1f}, its norms", median(*helper, "start", "F")["global"])
    says("05", "`signal` is {:.2f}", median(*helper, "start", "signal")["global"])


def test_the_page_says_what_was_recorded_of_solver_verifier_and_fixer():
    norms = with_ratio(csv("gradient_spikes/norms.csv"))
    medians = norms.groupby(["form", "agent", "recipe"])["ratio"].median()
    fixer, verifier = medians["fixer", "fixer"], medians["fixer", "verifier"].round(2)
    most = norms.loc[norms["form"] == "fixer", "ratio"].max()
    assert f"fixer {fixer['grpo']:.1f} and {fixer['dr_mas']:.1f}, at most {most:.0f}" in PAGE
    assert f"verifier {verifier['grpo']} in the median under `grpo`, {verifier['dr_mas']} under `dr_mas`" in PAGE
    ends = csv("gradient_spikes/scores.csv").groupby(["form", "recipe", "seed"])["success"].last().unstack()
    for form, recipe in ends.index:
        assert "{:.2f}, {:.2f}, {:.2f} (`{}`)".format(*ends.loc[form, recipe], recipe) in PAGE
