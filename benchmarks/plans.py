"""Writes `data/results/plans/` and `data/results/grouping/`: what notebooks 01 and 02 say of rollouts.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/plans.py

Untrained pocket models. `plans/cost.csv`: what an episode costs under each plan. `plans/picks.csv`: how often a tree of
K candidates ends at the goal, by what picks among them, beside the same team alone. `grouping/*.csv`: the tables of
four small rollouts, without token ids. Leaves out: training.
"""

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.train.record import versions

MAZES, KS = 32, (1, 2, 4, 8)
COSTS = {4: (lab.episodes(8), lab.tree(8), lab.tree(8, follow=1)), 1: (lab.episodes(4), lab.tree(4), lab.joint(4))}
"""max_turns -> plans."""
TOLD = ["task", "episode", "node", "parent", "turn", "depth", "agent", "candidate", "kept", "action", "prompt"]
TOLD += ["completion", "valid", "team_reward", "local_reward", "success"]


@dataclass(frozen=True)
class first:
    """Whatever was drawn first."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        return -1.0 * turns["candidate"]


@dataclass(frozen=True)
class surest:
    """The candidate that the model itself finds most likely, per token."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        return turns["logprobs"].map(np.mean)


PICKS = {"first": first(), "surest": surest(), "reward": lab.mixed()}


def shared(env: lab.Env) -> lab.Team:
    return lab.Team.shared(lab.load_policy(env.pocket), env.agents)


def cost(turns: pd.DataFrame) -> dict[str, int]:
    prompts = turns["prompt_ids"].map(tuple)
    return {
        "episodes": turns.loc[~turns["probe"], "episode"].nunique(), "calls": len(turns),
        "prompt_tokens": prompts.map(len).sum(), "distinct_prompt_tokens": sum(map(len, set(prompts))),
        "sampled_tokens": turns["completion_ids"].map(len).sum(),
    }  # fmt: skip


def costs() -> pd.DataFrame:
    rows = []
    for max_turns, plans in COSTS.items():
        env = lab.make_env("plan_path", max_turns=max_turns)
        team, tasks = shared(env), env.tasks(MAZES, "test", seed=0)
        for plan in plans:
            turns = lab.rollout(env, team, tasks, plan, seed=0)
            rows.append({"max_turns": max_turns, "plan": _said(plan), **cost(turns)})
    return pd.DataFrame(rows)


def _said(plan) -> str:
    follow = f", follow={plan.follow}" if getattr(plan, "follow", 0) else ""
    return f"{type(plan).__name__}({next(iter(vars(plan).values()))}{follow})"


def picks(seeds: int) -> pd.DataFrame:
    env, rows = lab.make_env("plan_path"), []
    team = shared(env)
    for seed in range(seeds):
        tasks = env.tasks(MAZES, "test", seed=seed)
        scores = lab.evaluate(env, team, tasks, k=8, seed=seed).drop_duplicates("task")
        rows.append({"seed": seed, "k": 1, "pick": "alone", "success": scores["success"].mean()})
        rows.append({"seed": seed, "k": 8, "pick": "pass@8", "success": scores["pass@8"].mean()})
        for k in KS:
            for name, pick in PICKS.items():
                turns = lab.rollout(env, team, tasks, lab.tree(k, pick=pick), seed=seed)
                ends = turns[turns["kept"]].groupby("episode")["success"].any()
                rows.append({"seed": seed, "k": k, "pick": name, "success": ends.mean()})
    return pd.DataFrame(rows)


def small_rollouts() -> dict[str, pd.DataFrame]:
    """Tasks are renamed, so that a table can be read."""
    plays = {
        "whole": ("plan_path", {}, "maze", 2, lab.episodes(4)),
        "tree": ("plan_path", {}, "maze", 2, lab.tree(4)),
        "joint": ("tldr", {}, "text", 2, lab.joint(4)),
        "fixer": ("math", {"fixer": True}, "problem", 6, lab.episodes(8)),
    }
    found = {}
    for name, (task, options, called, number, plan) in plays.items():
        env = lab.make_env(task, **options)
        drawn = env.tasks(number, "train", seed=0)
        tasks = [lab.Task(f"{called}{place}", task.data) for place, task in enumerate(drawn)]
        turns = lab.rollout(env, shared(env), tasks, plan, seed=0)[TOLD]
        found[name] = turns.assign(prompt=turns["prompt"].str.removeprefix("user: "))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    tables = {"plans": {"cost": costs(), "picks": picks(args.seeds)}, "grouping": small_rollouts()}
    about = {"command": "MAS_LAB_THREADS=1 python benchmarks/plans.py", "date": f"{datetime.now(UTC):%Y-%m-%d}"}
    for folder, own in tables.items():
        (args.out / folder).mkdir(parents=True, exist_ok=True)
        for name, table in own.items():
            table.to_csv(args.out / folder / f"{name}.csv", index=False, float_format="%.5g")
        text = json.dumps(about | {"versions": versions()}, indent=1) + "\n"
        (args.out / folder / "provenance.json").write_text(text, encoding="utf-8")
    print(tables["plans"]["cost"].to_string(index=False))
    print(tables["plans"]["picks"].pivot_table(index=["pick", "k"], columns="seed", values="success").round(2))


if __name__ == "__main__":
    main()
