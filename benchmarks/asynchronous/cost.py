"""Compare the simulated seconds of a step with measured ones, and fit the cost model's constants.

    MAS_LAB_THREADS=1 python benchmarks/asynchronous/cost.py

The constants of `lab.Costs` are fitted to steps of a ladder of four agents at several sizes, by non-negative least
squares on relative errors. The same constants then predict steps of other teams with the same pocket model, which the
fit has not seen, and of `plan_path`, whose model has another size. A step is one rollout and one update on one thread,
in processor seconds, because neighbours disturb them less than the wall clock. Each step is made several times with the
same weights and draws, and its least seconds count. Writes data/results/benchmark_asynchronous.json. Leaves out: what
two processes on two cores would take, and GPUs.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

import mas_lab as lab

OUT = Path(__file__).parents[2] / "data/results/benchmark_asynchronous.json"
FITTED = {"ladder of 4": ("ladder", {"n_agents": 4})}
PREDICTED = {"math": ("math", {}), "math with a fixer": ("math", {"fixer": True}), "paid help": ("paid_help", {})}
SCALED = {"plan_path": ("plan_path", {})}
SIZES = [(tasks, n) for tasks in (4, 8, 16) for n in (4, 8)]
"""Tasks of a step, and episodes of a task."""
SAMPLING, LEARNING = ("prompt", "decode", "token"), ("update", "train")


class Measured:
    """The least processor seconds of a team's rollouts and updates, by size, and the units of each constant."""

    def __init__(self, name: str, options: dict):
        self.env = lab.make_env(name, **options)
        self.team = lab.Team.per_agent(lambda agent: lab.load_policy(self.env.pocket), self.env.agents)
        self.steps: dict[tuple[int, int], dict] = {}

    def measure(self) -> None:
        """Make a step of each size."""
        for seed, (tasks, n) in enumerate(SIZES):
            recipe, drawn = lab.RECIPES["grpo"].replace(plan=lab.episodes(n)), self.env.tasks(tasks, "train", seed=seed)
            start = time.process_time()
            turns = lab.rollout(self.env, self.team, drawn, recipe.plan, seed=0)
            rollout = time.process_time() - start
            turns = recipe.advantages(turns)
            start = time.process_time()
            lab.update(self.team, turns, lr_scale=0.0)
            update = time.process_time() - start
            best = self.steps.get((tasks, n), {"rollout": np.inf, "update": np.inf})
            seconds = {"rollout": min(rollout, best["rollout"]), "update": min(update, best["update"])}
            units = {name: units_of(turns, name) for name in (*SAMPLING, *LEARNING)}
            self.steps[tasks, n] = {"tasks": tasks, "n": n, **seconds, "units": units}


def units_of(turns, constant: str) -> float:
    """Return the seconds of one rollout or update on one engine, if one constant is 1 and the others are 0."""
    costs = lab.Costs(**dict.fromkeys((*SAMPLING, *LEARNING), 0.0) | {constant: 1.0})
    if constant in LEARNING:
        return sum(costs.updates(turns).values())
    return sum(sum(wave.values()) for wave in costs.waves(turns))


def fitted(steps: list[dict], part: str, constants: tuple[str, ...]) -> dict[str, float]:
    """Return the constants of least relative error."""
    units = np.array([[step["units"][name] / step[part] for name in constants] for step in steps])
    return dict(zip(constants, nnls(units, np.ones(len(steps)))[0].tolist(), strict=True))


def errors(steps: list[dict], costs: dict[str, float], size: float = 1.0) -> dict:
    """Return measured and predicted seconds per step, and the relative errors."""
    rows = []
    for step in steps:
        parts = {part: size * sum(costs[name] * step["units"][name] for name in names)
                 for part, names in (("rollout", SAMPLING), ("update", LEARNING))}  # fmt: skip
        rows.append((step["rollout"] + step["update"], sum(parts.values()), *(parts[p] / step[p] - 1 for p in parts)))
    real, said, rollout, update = np.array(rows).T
    return {
        "steps": len(rows), "measured": real.mean(), "predicted": said.mean(),
        "error of the mean": said.mean() / real.mean() - 1,
        "median |error|": np.median(abs(said / real - 1)), "largest |error|": abs(said / real - 1).max(),
        "median |error|, rollout": np.median(abs(rollout)), "median |error|, update": np.median(abs(update)),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="times that each step is made")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    load = [os.getloadavg()[0]]
    teams = {name: Measured(*what) for name, what in {**FITTED, **PREDICTED, **SCALED}.items()}
    for _ in range(asked.repeats):  # in turns, so that a busy minute is nobody's alone
        for team in teams.values():
            team.measure()
    steps = {name: [*team.steps.values()] for name, team in teams.items()}
    load.append(os.getloadavg()[0])
    ours = [step for name in FITTED for step in steps[name]]
    costs = fitted(ours, "rollout", SAMPLING) | fitted(ours, "update", LEARNING)
    found = {name: errors(steps[name], costs) for name in {**FITTED, **PREDICTED}}
    for name, (env, options) in SCALED.items():
        sizes = [sum(p.numel() for p in lab.load_policy(lab.make_env(*one[:1], **one[1]).pocket).parameters.values())
                 for one in ((env, options), *FITTED.values())]  # fmt: skip
        found[f"{name}, by parameters"] = errors(steps[name], costs, sizes[0] / sizes[1])
    for name, one in found.items():
        print(f"{name:24}", *(f"{key} {value:.3g};" for key, value in one.items()))
    print(
        "constants:",
        {name: float(f"{value:.3g}") for name, value in costs.items()},
        f"load {load[0]:.1f} to {load[1]:.1f}",
    )
    record = {"costs": costs, "found": found, "load": load, "cpu": platform.processor(), "steps": steps}
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
