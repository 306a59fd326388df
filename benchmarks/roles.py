"""Writes `data/results/roles/`: planner and executor trained together, each alone beside an untrained other, the two of
these put together, and each in the other's role.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/roles.py

AT-GRPO (arXiv 2510.11062) asks whether roles that learned apart make a team. Held equal: sampled tokens of a training;
those who learn alone have them for themselves. Leaves out: what the record says (`data/results/roles/README.md`).
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.study.processes import side_by_side
from mas_lab.train.record import versions

ENV, RECIPE, LR, BUDGET = "plan_path", "at_grpo", 1e-3, {"tokens": 60_000}
SETTINGS = {"tasks": 32, "minibatches": 2}
HELD_OUT, REPEATS = 128, 4
ALONE = {"together": (), "planner alone": ("executor",), "executor alone": ("planner",)}
"""What is trained -> who is frozen."""


def learn(seed: int) -> list[dict]:
    """All teams of one seed, scored on the same held-out mazes."""
    env = lab.make_env(ENV)
    tasks = env.tasks(HELD_OUT, "test", seed)
    teams = {"untrained": fresh(env)}
    for name, frozen in ALONE.items():
        teams[name] = fresh(env, frozen)
        for _ in lab.train(env, teams[name], RECIPE, seed=seed, budget=BUDGET, **SETTINGS):
            pass
    alone = {role: teams[f"{role} alone"][role] for role in env.agents}
    teams["learned apart, then together"] = lab.Team(alone)
    return [
        {"seed": seed, "team": name, "swapped": bool(swap), "success": score(env, team, tasks, swap, seed)}
        for name, team in teams.items()
        for swap in (None, env.agents)
    ]


def fresh(env: lab.Env, frozen: tuple[str, ...] = ()) -> lab.Team:
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=LR), env.agents, frozen=frozen)


def score(env, team, tasks, swap, seed: int) -> float:
    return lab.evaluate(env, team, tasks, k=REPEATS, swap=swap, seed=seed)["success"].mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/roles"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    jobs = [(learn, seed) for seed in range(args.seeds)]
    rows = pd.DataFrame([row for rows in side_by_side(jobs) for row in rows]).sort_values("seed", kind="stable")
    args.out.mkdir(parents=True, exist_ok=True)
    rows.to_csv(args.out / "results.csv", index=False, float_format="%.5g")
    about = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/roles.py", "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "training": {"env": ENV, "recipe": RECIPE, "lr": LR, "budget": BUDGET, "settings": SETTINGS},
        "held_out": {"tasks": HELD_OUT, "episodes": REPEATS}, "versions": versions(),
    }  # fmt: skip
    (args.out / "provenance.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    print(rows.pivot_table(index=["team", "swapped"], columns="seed", values="success", sort=False).round(3))


if __name__ == "__main__":
    main()
