"""Writes `data/results/own_team/`: notebook 09's team, trained over seeds by `grpo`, with an entropy bonus, and by the
notebook's own recipe; and what ways to play that were written by hand come to.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/own_team.py

The env, the plays and the recipe are those of the notebook: its cells tagged "env" are run here. Held equal: tasks,
episodes and optimizer steps; learning rates are not swept. Leaves out: what the record says (the notebook).
"""

import argparse
import json
import random
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.train.record import versions

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks" / "tools"))

import forms

POCKET = {"steps": 400, "seed": 0}
LR, STEPS, TASKS, SCORE_EVERY, HELD_OUT, REPEATS, BY_HAND = 1e-3, 40, 32, 10, 64, 4, 1000


def notebook() -> dict:
    """The names that notebook 09 defines in its cells tagged "env"."""
    names = {"__name__": "own_team"}
    master = forms.masters_dir() / "09_your_own_team.py"
    for cell in forms.notebook(master, "solution")["cells"]:
        if "env" in cell["metadata"].get("tags", []):
            exec("".join(cell["source"]), names)
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/own_team"))
    parser.add_argument("--pocket", type=Path, default=Path("runs/pockets/meeting"))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    names = notebook()
    env, grpo = names["Meeting"](), lab.RECIPES["grpo"]
    folder = lab.make_pocket(env, args.pocket, **POCKET)
    recipes = {
        "grpo": grpo,
        "grpo, entropy 0.02": grpo.replace(loss=lab.clipped(0.2, entropy=0.02)),
        "mine": names["mine"],
    }
    runs = [learn(env, folder, seed, *recipe) for seed in range(args.seeds) for recipe in recipes.items()]
    args.out.mkdir(parents=True, exist_ok=True)
    pd.concat(runs).round(5).to_csv(args.out / "curves.csv", index=False)
    plays = {"demonstrated": env.demonstrate} | {
        name.replace("_", " "): names[name] for name in ("accept_or_draw", "accept_or_new")
    }
    many, rng = env.tasks(BY_HAND, "test", seed=0), random.Random(0)
    played = {name: names["by_hand"](env, play, many, rng) for name, play in plays.items()}
    pd.DataFrame(played).T.rename_axis("play").round(5).to_csv(args.out / "by_hand.csv")
    told = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/own_team.py",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "pocket": json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["held_out"],
        "training": {"lr": LR, "steps": STEPS, "tasks": TASKS},
        "held_out": {"tasks": HELD_OUT, "episodes": REPEATS},
        "versions": versions(),
    }
    (args.out / "provenance.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def learn(env, folder, seed: int, name: str, recipe) -> pd.DataFrame:
    """Scores of one training on held-out tasks, by sampled tokens."""
    team, tokens = lab.Team.shared(lab.load_policy(folder, lr=LR), env.agents), 0
    held_out, rows = env.tasks(HELD_OUT, "test", seed), []

    def score(step: int) -> None:
        means = lab.evaluate(env, team, held_out, k=REPEATS, seed=seed)[["success", "return"]].mean()
        rows.append({"recipe": name, "seed": seed, "step": step, "tokens": tokens, **means})

    score(0)
    for report in lab.train(env, team, recipe, steps=STEPS, seed=seed, tasks=TASKS):
        tokens += report.tokens
        if (report.step + 1) % SCORE_EVERY == 0:
            score(report.step + 1)
    print(pd.DataFrame(rows).round(3).to_string(), flush=True)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    main()
