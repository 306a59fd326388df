"""Run the trainings of the demo and print their results.

How one training runs is in `trials`, the page in `report`.
"""

import shutil
from itertools import groupby, product
from pathlib import Path

import pandas as pd

from mas_lab.backends.torch.source import Source
from mas_lab.demo import trials
from mas_lab.demo.report import write_report
from mas_lab.demo.trials import LADDER_RECIPES, METHOD, SEEDS, STEPS, Trained, elapsed, results
from mas_lab.runs.run import runs_dir
from mas_lab.study.processes import side_by_side

STORED = "ladder-grpo-0"
"""Folder of the ladder run that is stored. The page shows its spikes and its wrong answers."""


def main(
    out: str | Path | None = None, seeds: int = SEEDS, steps: int | None = None, real: bool = False
) -> list[Trained]:
    """Train a team in a maze, and three recipes on the ladder over `seeds` seeds; print a line of results for each.

    `steps` replaces the usual number of steps of every training. `real` adds a team of a language model. The page is
    written once the maze is learned, and again at the end.
    """
    if real:
        Source.find(trials.REAL).location()  # a missing package is an error now, and not after the other trainings
    out = Path(out) if out else runs_dir() / "quickstart"
    shutil.rmtree(out / STORED, ignore_errors=True)
    jobs = [trials.maze(METHOD, 0, steps or STEPS)]
    jobs += [trials.real(recipe, 0, steps or trials.REAL_STEPS) for recipe in trials.REAL_RECIPES if real]
    for seed, recipe in product(range(seeds), LADDER_RECIPES):
        keep = out / STORED if (recipe, seed) == ("grpo", 0) else None
        jobs.append(trials.ladder(recipe, seed, steps or trials.LADDER_STEPS, keep))
    runs: list[Trained] = []
    for run in side_by_side([(trials.learn, trial) for trial in jobs]):
        runs.append(run)
        if run.trial == jobs[0]:
            print(f"first curve: {write_report(out, [run], waiting=True)}", flush=True)
    runs.sort(key=lambda run: jobs.index(run.trial))
    _end(out, runs)
    return runs


def compare(out: str | Path | None = None, seeds: int = SEEDS, steps: int | None = None) -> list[Trained]:
    """Train three recipes in the maze over `seeds` seeds, and print a line of results.

    The method trains for `steps` steps. Each baseline then trains for as many sampled tokens.
    """
    out = Path(out) if out else runs_dir() / "compare"
    found = side_by_side([(trials.learn_at_equal_tokens, seed, steps or STEPS) for seed in range(seeds)])
    runs = [run for of_seed in sorted(found, key=lambda runs: runs[0].trial.seed) for run in of_seed]
    _end(out, runs)
    return runs


def _end(out: Path, runs: list[Trained]) -> None:
    print(f"report: {write_report(out, runs)}")
    results(runs).to_json(out / "results.json", orient="records", indent=1)
    pd.concat([run.curve for run in runs]).to_csv(out / "curves.csv", index=False)
    pd.concat([run.norms for run in runs]).to_csv(out / "norms.csv", index=False, float_format="%.5g")
    for _, own in groupby(runs, key=lambda run: run.trial.env["name"]):
        print(headline(list(own)))


def headline(runs: list[Trained]) -> str:
    """Return a line such as `plan_path: at_grpo 0.48 -> 0.94, 40 s`.

    Success is the mean over seeds. The seconds run from the first start to the last end. On the ladder each recipe also
    has its largest gradient norm over all runs: `dr_mas 0.00 -> 0.51 (largest norm 2.7)`.
    """
    table, env = results(runs), runs[0].trial.env
    parts, noted = [], " (largest norm {:.1f})" if env["name"] == "ladder" else ""
    for name, own in table.groupby("recipe", sort=False):
        norm = noted.format(own["largest_norm"].max())
        parts.append(f"{name} {own['before'].mean():.2f} -> {own['after'].mean():.2f}{norm}")
        noted = noted.replace("largest norm ", "")
    count = table["seed"].nunique()
    over = f", {count} seeds" if count > 1 else ""
    of = f" of {env['n_agents']}" if "n_agents" in env else ""
    return f"{env['name']}{of}: {', '.join(parts)}{over}, {elapsed(runs):.0f} s"
