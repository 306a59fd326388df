"""Writes `data/results/` of `ladder`, `paid_help` and `finisher`: agents called on a condition, under two baselines.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/own_baseline.py

Each arm changes one thing: the number of agents, one set of weights in place of separate ones, the learning rate, what
help or a wrong ending pays. A run that is done is kept under `runs_dir()`; called again, the command makes those that
are missing. Leaves out: what the records say (`data/results/README.md`).
"""

import argparse
import json
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab import demo
from mas_lab.demo.trials import REPEATS
from mas_lab.study.processes import side_by_side
from mas_lab.train.evaluate import STREAM

RECIPES = ("dr_mas", "grpo")
SETTINGS = {"tasks": 16}
STEPS, LR, HELD_OUT = 30, 3e-4, 64
LADDER, HELP = {"name": "ladder", "n_agents": 8}, {"name": "paid_help", "pay": 0.2}
FINISH = {"name": "finisher", "low": 0.8}
CALLED = {"paid_help": "helper", "finisher": "finisher"}
"""Task -> the agent that learns in it, beside a frozen solver."""
SEPARATE = {"lr": LR, "per_agent": True}
ARMS = {
    "8 agents": {"env": LADDER, **SEPARATE},
    "8 agents, lr 1e-4": {"env": LADDER, **SEPARATE, "lr": 1e-4},
    "8 agents, lr 1e-3": {"env": LADDER, **SEPARATE, "lr": 1e-3},
    "8 agents, one set of weights": {"env": LADDER, "lr": LR},
    "4 agents": {"env": LADDER | {"n_agents": 4}, **SEPARATE},
    "pay 0.2": {"env": HELP, **SEPARATE, "frozen": ("solver",)},
    "pay 0.2, lr 1e-4": {"env": HELP, **SEPARATE, "lr": 1e-4, "frozen": ("solver",)},
    "pay 0.2, lr 1e-3": {"env": HELP, **SEPARATE, "lr": 1e-3, "frozen": ("solver",)},
    "pay 1.0": {"env": HELP | {"pay": 1.0}, **SEPARATE, "frozen": ("solver",)},
    "low 0.8": {"env": FINISH, **SEPARATE, "frozen": ("solver",)},
    "low 0.8, lr 1e-4": {"env": FINISH, **SEPARATE, "lr": 1e-4, "frozen": ("solver",)},
    "low 0.8, lr 1e-3": {"env": FINISH, **SEPARATE, "lr": 1e-3, "frozen": ("solver",)},
    "low 0.0": {"env": FINISH | {"low": 0.0}, **SEPARATE, "frozen": ("solver",)},
}

SEEDS = {
    "8 agents": 10,
    "8 agents, lr 1e-4": 3,
    "8 agents, lr 1e-3": 3,
    "8 agents, one set of weights": 3,
    "pay 0.2": 10,
    "pay 0.2, lr 1e-4": 3,
    "pay 0.2, lr 1e-3": 3,
    "pay 1.0": 10,
    "low 0.8": 10,
    "low 0.8, lr 1e-4": 3,
    "low 0.8, lr 1e-3": 3,
    "low 0.0": 10,
}
"""How many of each arm that is recorded. The others are made where they are asked for."""


def learn(arm: str, recipe: str, seed: int, tell) -> dict[str, pd.DataFrame]:
    """The tables of one run, kept beside one another; those of a run that is done are only read."""
    folder = lab.runs_dir() / "own_baseline" / f"{arm}-{recipe}-{seed}".replace(" ", "_").replace(",", "")
    kept = {name: folder / f"{name}.parquet" for name in ("results", "curves", "norms")}
    if not all(path.is_file() for path in kept.values()):
        trial = demo.Trial(recipe=recipe, seed=seed, settings=SETTINGS, steps=STEPS, held_out=HELD_OUT, **ARMS[arm])
        run = demo.learn(trial, tell)
        curve = run.curve
        told = {"before": run.before, "after": run.after, **called(run), "tokens": curve["tokens"].iloc[-1],
                "largest_norm": run.norms["policy_norm"].max(), "seconds": run.seconds}  # fmt: skip
        named = {"arm": arm, "recipe": recipe, "seed": seed}
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in {"results": pd.DataFrame([told]), "curves": curve, "norms": run.norms}.items():
            table.assign(**named).to_parquet(kept[name], index=False)
    return {name: pd.read_parquet(path) for name, path in kept.items()}


def called(run: demo.Trained) -> dict[str, float]:
    """How often the agent that is called on a condition was right in the end, on held-out tasks."""
    env = lab.make_env(**run.trial.env)
    tasks = env.tasks(HELD_OUT, "test", seed=0)
    agents = [CALLED[env.name]] if env.name in CALLED else []
    turns = lab.rollout(env, run.team, tasks, lab.episodes(REPEATS), seed=0, step=STREAM) if agents else None
    return {agent: turns.loc[turns["agent"] == agent, "local_reward"].mean() for agent in agents}


def ship(out: Path, runs: list[dict[str, pd.DataFrame]]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in ("results", "curves", "norms"):
        table = pd.concat([run[name] for run in runs], ignore_index=True).dropna(axis=1, how="all")
        if name == "norms":  # of each step, that of the policy whose norm was the largest
            table = table.loc[table.groupby(["arm", "recipe", "seed", "step"], sort=False)["policy_norm"].idxmax()]
        table.to_csv(out / f"{name}.csv", index=False, float_format="%.5g")
    libraries = {name: version(name) for name in ("torch", "transformers", "pandas", "numpy")}
    provenance = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/own_baseline.py",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "settings": {**SETTINGS, "steps": STEPS, "episodes": 8, "optimizer": "AdamW", "max_norm": 1.0},
        "arms": {arm: ARMS[arm] for arm in dict.fromkeys(run["results"]["arm"].iloc[0] for run in runs)},
        "held_out": {"tasks": HELD_OUT, "episodes": REPEATS},
        "versions": libraries | {"python": platform.python_version()},
    }
    (out / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results"))
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(SEEDS))
    parser.add_argument("--seeds", type=int, default=None, help="of every arm, in place of what is recorded")
    parser.add_argument("--workers", type=int, default=None, help="processes at a time (default: one per core)")
    args = parser.parse_args()
    asked = {arm: range(args.seeds or SEEDS.get(arm, 3)) for arm in args.arms}
    jobs = [(learn, arm, recipe, seed) for arm, seeds in asked.items() for seed in seeds for recipe in RECIPES]
    runs = list(side_by_side(jobs, args.workers))
    runs.sort(key=lambda run: jobs.index((learn, *run["results"][["arm", "recipe", "seed"]].iloc[0])))
    for name in ("ladder", *CALLED):
        own = [run for run in runs if ARMS[run["results"]["arm"].iloc[0]]["env"]["name"] == name]
        if own:
            ship(args.out / name, own)


if __name__ == "__main__":
    main()
