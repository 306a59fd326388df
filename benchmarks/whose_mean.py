"""Writes `data/results/whose_mean/`: what notebook 03 does, over seeds. Trainings on paid_help and ladder under two
baselines; and whether the gradients of two halves of a batch agree.

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
PAYS, OF_HALVES, BATCH = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0), ("grpo", "dr_mas_mean", "dr_mas"), 64


def learn(setting: str, recipe: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
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


def halves(seed: int) -> pd.DataFrame:
    """The untrained helper's gradient on two halves of a batch, other tasks in each: their cosine, by pay and baseline.

    All pays judge the same completions, since nobody is told what help is worth.
    """
    env = lab.make_env("paid_help", pay=PAYS[0])
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=LR), env.agents, frozen=FROZEN[env.name])
    played = lab.rollout(env, team, env.tasks(BATCH, "train", seed=seed), lab.episodes(8), seed=seed)
    first = played["task"].isin(played["task"].unique()[::2])
    rows = []
    for pay in PAYS:
        paid = played.assign(team_reward=played["team_reward"].replace(PAYS[0], pay))
        told = lab.RewardInspector(lab.RECIPES["grpo"].advantages(paid)).table.set_index("agent").loc["helper"]
        for recipe in OF_HALVES:
            turns = lab.RECIPES[recipe].advantages(paid)
            one, other, whole = (gradient(team, turns[part]) for part in (first, ~first, first | ~first))
            cosine = float(one @ other / (one.norm() * other.norm()))
            rows.append({"pay": pay, "recipe": recipe, "seed": seed, "cosine": cosine, "norm": float(whole.norm()),
                         "signal": told["signal"]})  # fmt: skip
    return pd.DataFrame(rows)


def gradient(team: lab.Team, turns: pd.DataFrame):
    """The helper's gradient as one vector; no step is made."""
    import torch

    kept = []

    def keep(name, norms, batch):
        kept.append(torch.cat([part.flatten() for _, part in batch.policy.gradients()]).double())

    lab.update(team, turns, lr_scale=0.0, watch=keep)
    return kept[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/whose_mean"))
    parser.add_argument("--seeds", type=int, default=5, help="of the trainings")
    parser.add_argument("--batches", type=int, default=10, help="seeds of the batches that are halved")
    parser.add_argument("--only", choices=["trainings", "halves"])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.only != "halves":
        trainings(args.out, args.seeds)
    if args.only != "trainings":
        found = pd.concat(side_by_side([(halves, seed) for seed in range(args.batches)]))
        found = found.set_index(["pay", "recipe", "seed"]).sort_index(kind="stable")
        found.to_csv(args.out / "halves.csv", float_format="%.5g")
        print(found["cosine"].unstack().round(2))
    about = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/whose_mean.py", "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "training": {
            "settings": SETTINGS, "recipes": RECIPES, "lr": LR, "steps": STEPS, "tasks": TASKS, "frozen": FROZEN,
        },
        "held_out": {"tasks": HELD_OUT, "episodes": REPEATS},
        "halves": {"pays": PAYS, "recipes": OF_HALVES, "tasks": BATCH}, "versions": versions(),
    }  # fmt: skip
    (args.out / "provenance.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def trainings(out: Path, seeds: int) -> None:
    """`learn` for every setting, recipe and seed."""
    jobs = [(learn, setting, recipe, seed) for seed in range(seeds) for setting in SETTINGS for recipe in RECIPES]
    made = list(side_by_side(jobs))
    for name, parts in zip(("curves", "agents"), zip(*made, strict=True), strict=True):
        table = pd.concat(parts).set_index(["setting", "recipe", "seed"]).sort_index(kind="stable")
        table.to_csv(out / f"{name}.csv", float_format="%.5g")
    ends = pd.concat(part for part, _ in made).groupby(["setting", "recipe", "seed"])["success"].last().unstack()
    print(ends.round(3))


if __name__ == "__main__":
    main()
