"""The quickstart's team in the maze under three recipes, at equal sampled tokens: `data/results/quickstart/`.

    MAS_LAB_THREADS=1 python benchmarks/quickstart.py

`at_grpo` trains for 20 steps. `grpo` and `grpo_mixed` then train until they have sampled as many tokens.
"""

import argparse
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.demo import trials as demo

RESULTS = Path(__file__).resolve().parents[1] / "data" / "results" / "quickstart"


def learn(recipe: str, seed: int, steps: int, budget: float = float("inf")) -> tuple[dict, list[dict]]:
    """Train for `steps` steps or `budget` tokens; return a row of results, and the scores on the way."""
    env = lab.make_env(demo.ENV)
    team, named = demo.make_team(env), {"env": demo.ENV, "recipe": recipe, "seed": seed}
    curve, norms, seconds, tokens = [{"step": 0, "tokens": 0, "success": demo.held_out(env, team)}], [], 0.0, 0
    for report in lab.train(env, team, recipe, steps, seed, **demo.SETTINGS):
        tokens, seconds, done = tokens + report.tokens, seconds + sum(report.profile.values()), report.step + 1
        norms.append(report.stats["policy_norm"].max())
        ends = done == steps or tokens >= budget
        if ends or done % demo.SCORE_EVERY == 0:
            success = demo.held_out(env, team, demo.HELD_OUT if ends else demo.ON_THE_WAY)
            curve.append({"step": done, "tokens": tokens, "success": success})
        if ends:
            break
    row = {"before": curve[0]["success"], "after": success, "seconds": seconds, "steps": done, "tokens": tokens}
    return named | row | {"largest_norm": max(norms)}, [one | named for one in curve]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=demo.STEPS)
    args = parser.parse_args()
    rows, curves, budget = [], [], 0
    for seed in range(args.seeds):
        for recipe in ("at_grpo", "grpo", "grpo_mixed"):
            first = recipe == "at_grpo"
            row, curve = learn(recipe, seed, args.steps) if first else learn(recipe, seed, 10**6, budget)
            budget = row["tokens"] if first else budget
            rows.append(row)
            curves += curve
            print(row, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_json(args.out / "results.json", orient="records", indent=1)
    pd.DataFrame(curves).to_csv(args.out / "curves.csv", index=False)


if __name__ == "__main__":
    main()
