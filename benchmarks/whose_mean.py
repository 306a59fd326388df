"""Writes `data/results/whose_mean/`: the trainings of notebook 03 over seeds, paid_help and ladder under two baselines.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/whose_mean.py

Held equal: first weights (the shipped pocket model), learning rate, tasks and episodes of a step, optimizer steps. Not
equal: sampled tokens, of which a team that gets further makes more. No rate was swept: `benchmarks/studies` does that.
Leaves out: what the record says (the notebook).
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.study.processes import side_by_side
from mas_lab.train.record import versions

SETTINGS = {
    "paid_help, pay 0.2": {"name": "paid_help", "pay": 0.2},
    "paid_help, pay 1.0": {"name": "paid_help", "pay": 1.0},
    "ladder of 2": {"name": "ladder", "n_agents": 2},
    "ladder of 8": {"name": "ladder", "n_agents": 8},
}
RECIPES, LR, STEPS, TASKS, FROZEN = ("grpo", "dr_mas"), 3e-4, 30, 16, {"paid_help": ("solver",)}
HELD_OUT, REPEATS, SCORE_EVERY = 64, 4, 10


def learn(setting: str, recipe: str, seed: int, tell) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One training: its curve, and a row per agent."""
    env = lab.make_env(**SETTINGS[setting])
    frozen = FROZEN.get(env.name, ())
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=LR), env.agents, frozen=frozen)
    held_out, curve, stats, tokens = env.tasks(HELD_OUT, "test", seed=0), [], [], 0
    first = last = lab.evaluate(env, team, held_out, k=REPEATS, seed=seed)
    curve.append((0, 0, first["success"].mean()))
    for report in lab.train(env, team, recipe, STEPS, seed=seed, tasks=TASKS):
        tokens, done = tokens + report.tokens, report.step + 1
        stats.append(report.stats.assign(step=done))
        tell(f"{setting}, {recipe}, seed {seed}", done, STEPS)
        if done % SCORE_EVERY == 0:
            last = lab.evaluate(env, team, held_out, k=REPEATS, seed=seed)
            curve.append((done, tokens, last["success"].mean()))
    called = {"setting": setting, "recipe": recipe, "seed": seed}
    agents = (
        of_agents(pd.concat(stats)).join(right(first).rename("right_before")).join(right(last).rename("right_after"))
    )
    return pd.DataFrame(curve, columns=["step", "tokens", "success"]).assign(**called), agents.reset_index().assign(
        **called
    )


def right(scores: pd.DataFrame) -> pd.Series:
    """How often each agent was right in a turn."""
    summed = scores.groupby("agent", sort=False)[["own_return", "turns"]].sum()
    return summed["own_return"] / summed["turns"]


def of_agents(stats: pd.DataFrame) -> pd.DataFrame:
    """Gradient norms before clipping, and the entropy of what was said in the first and the last five steps."""
    by, ends = stats.groupby("agent", sort=False), {"start": stats["step"] <= 5, "end": stats["step"] > STEPS - 5}
    norms = by["grad_norm"].agg(largest_norm="max", median_norm="median")
    said = {f"entropy_{name}": stats[when].groupby("agent")["entropy"].mean() for name, when in ends.items()}
    return norms.assign(**said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/whose_mean"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    jobs = [(learn, setting, recipe, seed) for seed in range(args.seeds) for setting in SETTINGS for recipe in RECIPES]
    made = list(side_by_side(jobs))
    args.out.mkdir(parents=True, exist_ok=True)
    for name, parts in zip(("curves", "agents"), zip(*made, strict=True), strict=True):
        table = pd.concat(parts).set_index(["setting", "recipe", "seed"]).sort_index(kind="stable")
        table.to_csv(args.out / f"{name}.csv", float_format="%.5g")
    about = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/whose_mean.py", "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "training": {
            "settings": SETTINGS, "recipes": RECIPES, "lr": LR, "steps": STEPS, "tasks": TASKS, "frozen": FROZEN,
        },
        "held_out": {"tasks": HELD_OUT, "episodes": REPEATS}, "versions": versions(),
    }  # fmt: skip
    (args.out / "provenance.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    ends = pd.concat(part for part, _ in made).groupby(["setting", "recipe", "seed"])["success"].last().unstack()
    print(ends.round(3))


if __name__ == "__main__":
    main()
