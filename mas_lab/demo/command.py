"""Run the trainings of the demo and print their results.

How one training runs is in `trials`, the page in `report`.
"""

import shutil
from itertools import groupby, product
from pathlib import Path

from mas_lab.backends.torch.source import Source
from mas_lab.demo import trials
from mas_lab.demo.report import write_report
from mas_lab.demo.trials import LADDER_RECIPES, SEEDS, Trained, results, seconds
from mas_lab.runs.run import runs_dir
from mas_lab.study.processes import side_by_side

STORED = "ladder-grpo-0"
"""Folder of the ladder run that is stored. The page shows its spikes and its wrong answers."""


def main(out: str | Path | None = None, seeds: int = SEEDS, steps: int | None = None, real: bool = False) -> None:
    """Train a team in a maze, and two recipes on the ladder over `seeds` seeds; print a line of results for each.

    `steps` replaces the usual number of steps of every training. `real` adds a team of a language model. The page is
    written once the maze is learned, and again at the end.
    """
    if real:
        Source.find(trials.REAL).location()  # a missing package is an error now, and not after the other trainings
    out = Path(out) if out else runs_dir() / "quickstart"
    shutil.rmtree(out / STORED, ignore_errors=True)
    jobs = [trials.maze(steps or trials.STEPS)]
    jobs += [trials.real(recipe, steps or trials.REAL_STEPS) for recipe in trials.REAL_RECIPES if real]
    for seed, recipe in product(range(seeds), LADDER_RECIPES):
        keep = out / STORED if (recipe, seed) == ("grpo", 0) else None
        jobs.append(trials.ladder(recipe, seed, steps or trials.LADDER_STEPS, keep))
    runs: list[Trained] = []
    for run in side_by_side([(trials.learn, trial) for trial in jobs]):
        runs.append(run)
        if run.trial == jobs[0]:
            print(f"first curve: {write_report(out, [run])}", flush=True)
    runs.sort(key=lambda run: jobs.index(run.trial))
    print(f"report: {write_report(out, runs)}")
    for _, own in groupby(runs, key=lambda run: run.trial.env["name"]):
        print(headline(list(own)))


def headline(runs: list[Trained]) -> str:
    """Return a line such as `plan_path: at_grpo 0.48 -> 0.94 (largest norm 0.6); seeds: 1, 24 s each`.

    Success and seconds are means over seeds, and the norm is the largest of all runs.
    """
    table = results(runs)
    parts = [
        f"{name} {own['before'].mean():.2f} -> {own['after'].mean():.2f} (largest norm {own['largest_norm'].max():.1f})"
        for name, own in table.groupby("recipe", sort=False)
    ]
    count, name = table["seed"].nunique(), runs[0].trial.env["name"]
    return f"{name}: {', '.join(parts)}; seeds: {count}, {seconds(runs):.0f} s each"
