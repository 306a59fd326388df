"""Measure how long a step takes when rollouts and updates overlap on two cores, and compare with `lab.Timeline`.

    MAS_LAB_THREADS=1 OMP_WAIT_POLICY=PASSIVE .venv-vllm/bin/python benchmarks/asynchronous/wall.py smollm2

A vLLM server samples with one thread, and this process learns with another. One policy plays every agent. The constants
of `lab.Costs` are fitted to the rollouts and updates of synchronous steps of a ladder of four agents at several sizes.
They then predict the seconds of a step at staleness 0, 1 and 2, also of teams that the fit has not seen. Runs
alternate, and the median of the rounds counts. Adds to data/results/benchmark_wall.json. Leaves out: GPUs.
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
TEAMS = {
    "pocket": {"ladder of 4 (fitted)": ("ladder", {"n_agents": 4}), "math with a fixer": ("math", {"fixer": True}),
               "paid help": ("paid_help", {})},
    "smollm2": {"ladder of 4 (fitted)": ("ladder", {"n_agents": 4, "size": "words"}),
                "paid help": ("paid_help", {"size": "words"})},
}  # fmt: skip
SIZES = {"pocket": [(tasks, n) for tasks in (4, 8, 16) for n in (4, 8)], "smollm2": [(2, 4), (4, 4), (4, 8)]}
EPOCHS = {"pocket": 6, "smollm2": 1}
"""So many that an update takes about as long as a rollout, and an overlap can save most."""
STALENESS = (0, 1, 2)


def policy_of(model: str, env):
    """Return a pocket model with all its weights, or one adapter of SmolLM2 after the warm start for questions."""
    options = {"backend": "vllm", "where": "server", "lr": 1e-9}
    if model == "pocket":
        return lab.load_policy(env.pocket, **options)
    base = lab.load_base("smollm2-135m", adapters=1, rank=8, start="words", dtype="bfloat16", **options)
    return base.adapter("team")


def steps_of(env, team, staleness: int, tasks: int, n: int, epochs: int, steps: int) -> list[lab.Report]:
    """Train with hardly a change of the weights, and return the reports without the first, which starts the engine."""
    recipe = lab.RECIPES["grpo"].replace(plan=lab.episodes(n))
    schedule = lab.overlap(staleness, clock="wall")
    settings = {"tasks": tasks, "epochs": epochs, "check": False}
    return list(lab.train(env, team, recipe, steps + 1, overlap=schedule, **settings))[1:]


def measured_seconds(reports: list[lab.Report]) -> float:
    """Return the mean seconds of a step, from the first rollout to the last update."""
    stats = pd.concat([report.stats for report in reports])
    return (stats["update_end"].max() - stats["rollout_start"].min()) / len(reports)


def predicted_seconds(reports: list[lab.Report], schedule: lab.overlap, epochs: int) -> float:
    """Return the same by the simulated clock, for the same rows."""
    events = []
    for step, report in enumerate(reports):
        schedule, made = schedule.after(step, report.turns, [*report.turns["policy"].unique()], epochs, 1)
        events.append(made)
    return pd.concat(events)["end"].max() / len(reports)


def parts_of(report: lab.Report, epochs: int) -> dict:
    """Return the seconds of rollout and update, and the units of each constant."""
    times = report.stats.iloc[0]
    return {
        "rollout": times["rollout_end"] - times["rollout_start"], "update": times["update_end"] - times["update_start"],
        "units": {name: units_of(report.turns, name, epochs) for name in (*SAMPLING, *LEARNING)},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=TEAMS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    load, costs, found, rows = [os.getloadavg()[0]], None, {}, []
    sizes, epochs = SIZES[asked.model], EPOCHS[asked.model]
    for name, (task, options) in TEAMS[asked.model].items():
        env = lab.make_env(task, **options)
        policy = policy_of(asked.model, env)
        team = lab.Team.shared(policy, env.agents)
        steps_of(env, team, 0, *sizes[0], epochs, 1)  # starts the server
        if costs is None:
            for _ in range(asked.rounds):
                reports = [one for size in sizes for one in steps_of(env, team, 0, *size, epochs, 3)]
                rows += [parts_of(report, epochs) for report in reports]
            costs = lab.Costs(**fitted(rows, "rollout", SAMPLING) | fitted(rows, "update", LEARNING))
            print(costs, flush=True)
        measured, predicted = {s: [] for s in STALENESS}, {s: [] for s in STALENESS}
        for _ in range(asked.rounds):
            for staleness in STALENESS:
                reports = steps_of(env, team, staleness, *sizes[-1], epochs, asked.steps)
                measured[staleness].append(measured_seconds(reports))
                predicted[staleness].append(predicted_seconds(reports, lab.overlap(staleness, costs), epochs))
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
        del policy, team, reports
        gc.collect()  # ends the server
    load.append(os.getloadavg()[0])
    worst = max(abs(one["error"]) for team in found.values() for one in team.values())
    rollout, update = (np.mean([row[part] for row in rows]) for part in ("rollout", "update"))
    print(f"largest error {worst:.0%}; load {load[0]:.1f} to {load[1]:.1f}; in the fit a rollout took {rollout:.2f} s "
          f"and an update {update:.2f} s")  # fmt: skip
    settings = {"rounds": asked.rounds, "steps": asked.steps}
    record = {"costs": vars(costs), "found": found, "load": load, "settings": settings, "steps": rows}
    others = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    asked.out.write_text(json.dumps(others | {asked.model: record}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
