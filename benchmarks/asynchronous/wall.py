"""Measure how long a step takes when rollouts and updates overlap on two cores, and compare with the clock.

    MAS_LAB_THREADS=1 OMP_WAIT_POLICY=PASSIVE .venv-vllm/bin/python benchmarks/asynchronous/wall.py

A vLLM server samples with one thread, and this process learns with another. One adapter of SmolLM2-135M plays every
agent. The constants of `lab.Costs` are fitted to the rollouts and updates of synchronous steps of a ladder of four
agents at three sizes. They then predict the seconds of a step at staleness 0, 1 and 2, also of a team that the fit has
not seen. Runs alternate, and the median of the rounds counts. Writes data/results/benchmark_wall.json. Leaves out:
pocket models and GPUs.
"""

import argparse
import gc
import json
import os
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
from cost import LEARNING, SAMPLING, fitted, units_of

import mas_lab as lab

OUT = Path(__file__).parents[2] / "data/results/benchmark_wall.json"
TEAMS = {"ladder of 4 (fitted)": ("ladder", {"n_agents": 4}), "paid help": ("paid_help", {})}
SIZES = [(2, 4), (4, 4), (4, 8)]
"""Tasks of a step, and episodes of a task."""
STALENESS = (0, 1, 2)
OPTIONS = {"where": "server", "lr": 1e-9, "dtype": "bfloat16"}


def steps_of(env, team, staleness: int, tasks: int, n: int, steps: int) -> list[lab.Report]:
    """Train with hardly a change of the weights, and return the reports without the first, which starts the engine."""
    recipe = lab.RECIPES["grpo"].replace(plan=lab.episodes(n))
    schedule = lab.overlap(staleness, clock="wall")
    return list(lab.train(env, team, recipe, steps + 1, tasks=tasks, overlap=schedule, check=False))[1:]


def measured_seconds(reports: list[lab.Report]) -> float:
    """Return the mean seconds of a step, from the first rollout to the last update."""
    stats = pd.concat([report.stats for report in reports])
    return (stats["update_end"].max() - stats["rollout_start"].min()) / len(reports)


def predicted_seconds(reports: list[lab.Report], schedule: lab.overlap) -> float:
    """Return the same by the simulated clock, for the same rows."""
    events = []
    for step, report in enumerate(reports):
        schedule, made = schedule.after(step, report.turns, [*report.turns["policy"].unique()], 1, 1)
        events.append(made)
    return pd.concat(events)["end"].max() / len(reports)


def parts_of(report: lab.Report) -> dict:
    """Return the seconds of rollout and update, and the units of each constant."""
    times = report.stats.iloc[0]
    return {
        "rollout": times["rollout_end"] - times["rollout_start"], "update": times["update_end"] - times["update_start"],
        "units": {name: units_of(report.turns, name) for name in (*SAMPLING, *LEARNING)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    load, costs, found, rows = [os.getloadavg()[0]], None, {}, []
    for name, (task, options) in TEAMS.items():
        env = lab.make_env(task, size="words", **options)
        base = lab.load_base("smollm2-135m", "vllm", adapters=1, rank=8, start="words", **OPTIONS)
        team = lab.Team.shared(base.adapter("team"), env.agents)
        steps_of(env, team, 0, *SIZES[0], 1)  # starts the server
        if costs is None:
            for _ in range(asked.rounds):
                reports = [one for size in SIZES for one in steps_of(env, team, 0, *size, 3)]
                rows += [parts_of(report) for report in reports]
            costs = lab.Costs(**fitted(rows, "rollout", SAMPLING) | fitted(rows, "update", LEARNING))
            print(costs, flush=True)
        measured, predicted = {s: [] for s in STALENESS}, {s: [] for s in STALENESS}
        for _ in range(asked.rounds):
            for staleness in STALENESS:
                reports = steps_of(env, team, staleness, *SIZES[-1], asked.steps)
                measured[staleness].append(measured_seconds(reports))
                predicted[staleness].append(predicted_seconds(reports, lab.overlap(staleness, costs)))
        found[name] = {
            f"staleness {s}": {
                "measured": statistics.median(measured[s]), "predicted": statistics.median(predicted[s]),
                "error": statistics.median(predicted[s]) / statistics.median(measured[s]) - 1, "all": measured[s],
            }
            for s in STALENESS
        }  # fmt: skip
        for s, one in found[name].items():
            print(
                f"{name:22} {s}", *(f"{key} {one[key]:.3g};" for key in ("measured", "predicted", "error")), flush=True
            )
        del base, team, reports
        gc.collect()  # ends the server
    load.append(os.getloadavg()[0])
    worst = max(abs(one["error"]) for team in found.values() for one in team.values())
    rollout, update = (np.mean([row[part] for row in rows]) for part in ("rollout", "update"))
    print(f"largest error {worst:.0%}; load {load[0]:.1f} to {load[1]:.1f}; in the fit a rollout took {rollout:.2f} s "
          f"and an update {update:.2f} s")  # fmt: skip
    settings = {"rounds": asked.rounds, "steps": asked.steps}
    record = {"costs": vars(costs), "found": found, "load": load, "settings": settings, "steps": rows}
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
