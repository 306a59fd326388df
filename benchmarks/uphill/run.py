"""Measure which recipe points uphill for forty drawn teams, then train them and record what came of it.

    MAS_LAB_THREADS=1 python benchmarks/uphill/run.py --only foretell     # all teams; commit the result
    MAS_LAB_THREADS=1 python benchmarks/uphill/run.py                     # trains; stops and goes on
    MAS_LAB_THREADS=1 python benchmarks/uphill/run.py --only halfway      # the question in the middle of a training

Writes `data/results/uphill/predictions.csv`, the record of a study for each team, `early.csv` and `halfway.csv`.
`README.md` has the protocol. Leaves out: the analysis (`analyse`).
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.explain.moments import pooled_inflation
from mas_lab.study.record import ship

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "foretold"))
from drawn import Drawn

OUT = Path("data/results/uphill")
TEAMS, SEEDS = range(100, 140), tuple(range(6))
RECIPES = ("grpo", "dr_mas", "own_robust")
TASKS, STEPS, LR = 16, 20, 3e-4
EARLY = range(5, 8)
"""Steps of the short training that stands in place of an instrument."""
HALFWAY = range(100, 120)
"""Teams of the question in the middle of a training."""
SAME = 1e-9


def team_of(env: Drawn) -> lab.Team:
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=LR), env.agents)


def foretell(number: int) -> pd.DataFrame:
    """Return a row per agent and recipe of one untrained team, or one row with the reason why it is left out."""
    env = Drawn(number=number)
    team = team_of(env)
    try:
        turns = lab.rollout(env, team, env.tasks(TASKS, "train", 1000), lab.episodes(8), seed=1000)
        apart = np.ptp([lab.RECIPES[name].advantages(turns)["advantage"] for name in ("grpo", "dr_mas")], axis=0).max()
        if apart < SAME:
            return pd.DataFrame([{"team": number, "left_out": "grpo and dr_mas give the same advantages"}])
        found = lab.uphill(team, env, RECIPES, rollouts=12, tasks=TASKS, seed=1000)
    except ValueError as error:
        return pd.DataFrame([{"team": number, "left_out": f"{type(error).__name__}: {error}"[:200]}])
    turns = lab.group(turns, by="task", credit=lab.episode_return())
    facts = (
        lab.RewardInspector(turns, agents=env.agents)
        .table[["agent", "spoke"]]
        .merge(gain(turns), on="agent", how="left")
    )
    return found.merge(facts, on="agent", how="left").assign(team=number, left_out="")


def gain(turns: pd.DataFrame) -> pd.DataFrame:
    """Return each agent's gain of an own mean in squared signal-to-noise ratio, from its credits (docs/theory.md).

    A row has the weight 1 / n_k in its agent's mean in a task and 1 / N in the mean of all: no agent of these teams
    speaks twice in an episode. The kit once judged by this number, until it failed here.
    """
    found = pd.DataFrame(lab.inflation(turns))
    parts = found[["agent", "n_k"]].assign(own=1, everyone=found["n_k"] / found["N"])
    sums = parts.groupby("agent").sum()
    left = (1 - sums["own"] / sums["n_k"]) / (1 - sums["everyone"] / sums["n_k"])
    signal = pooled_inflation(found).set_index("agent")["signal"]
    return (left**2 / signal.where(signal > 0)).mask(left == 0, 0.0).rename("gain").reset_index()


def design(number: int) -> dict[str, Any]:
    env = Drawn(number=number)
    return {
        "name": f"uphill/{number}", "env": env, "team": {"weights": "per_agent", "model": env.pocket, "lr": LR},
        "settings": {"tasks": TASKS, "save_every": STEPS, "score_tasks": 64, "score_episodes": 4}, "score": "return",
        "budget": {"episodes": TASKS * 8 * STEPS}, "seeds": list(SEEDS), "differ": ["recipe"],
        "arms": {name: {"recipe": name} for name in RECIPES},
    }  # fmt: skip


def early(made: Any, number: int) -> pd.DataFrame:
    """Return each agent's mean own reward in the early steps, a row per training and agent."""
    rows = []
    for cell in made.table[made.table["state"] == "made"].itertuples():
        run = lab.load_run(cell.run)
        turns = pd.concat([run.step_turns(step) for step in EARLY])
        own = turns.groupby("agent")["local_reward"].mean().rename("early").reset_index()
        rows.append(own.assign(team=number, arm=cell.arm, seed=cell.seed))
    return pd.concat(rows)


def train(number: int, workers: int | None) -> pd.DataFrame:
    made = lab.study(design(number), f"runs/uphill/{number}", workers=workers)
    if not (made.table["state"] == "made").any():
        print(f"team {number}: left out, every seed breaks the contract of an env", flush=True)
        return pd.DataFrame()
    ship(made, OUT / str(number), "python benchmarks/uphill/run.py")
    return early(made, number)


def halfway(case: tuple[int, int]) -> pd.DataFrame:
    """Train half-way with `grpo`, measure, and train the second half with each recipe; a row per agent and recipe."""
    number, seed = case
    env, rows = Drawn(number=number), []
    team, settings = team_of(env), {"tasks": TASKS, "check": False}
    try:
        with TemporaryDirectory() as folder:
            first = Path(folder) / "first"
            list(lab.train(env, team, "grpo", STEPS // 2, seed=seed, run=first, **settings))
            found = lab.uphill(team, env, RECIPES, rollouts=12, tasks=TASKS, seed=2000 + seed)
            for recipe in RECIPES:
                trained, run = team_of(env), Path(folder) / recipe
                list(lab.train(env, trained, recipe, STEPS, seed=100 + seed, run=run, fork=first, **settings))
                scores = lab.evaluate(env, trained, env.tasks(64, "test", seed), k=4, seed=seed)
                own = scores.groupby("agent")[["own_return", "turns"]].sum()
                own = (own["own_return"] / own["turns"]).rename("own").reset_index()
                rows.append(own.assign(recipe=recipe))
    except lab.EnvError as error:
        return pd.DataFrame([{"team": number, "seed": seed, "left_out": str(error)[:200]}])
    return found.merge(pd.concat(rows), on=["agent", "recipe"]).assign(team=number, seed=seed, left_out="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["foretell", "train", "halfway"])
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "predictions.csv"
    if not path.is_file() and args.only != "train":
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            tables = []
            for table in pool.map(foretell, TEAMS):
                tables.append(table)
                print(table.to_string(), flush=True)
        pd.concat(tables).to_csv(path, index=False, float_format="%.5g")
    if args.only == "foretell":
        return
    if not path.is_file():
        raise SystemExit("nothing is foretold yet; run with --only foretell, and commit the file")
    if args.only == "halfway":
        cases = [(number, seed) for number in HALFWAY for seed in range(2)]
        with ProcessPoolExecutor(args.workers, get_context("spawn")) as pool:
            pd.concat(pool.map(halfway, cases)).to_csv(OUT / "halfway.csv", index=False, float_format="%.5g")
        return
    told = pd.read_csv(path)
    chosen = told.loc[told["left_out"].isna(), "team"].unique()
    tables = [train(int(number), args.workers) for number in chosen]
    pd.concat(tables).to_csv(OUT / "early.csv", index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
