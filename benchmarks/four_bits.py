"""What rounding a frozen base to 4 bits costs an untrained pocket team: success on held-out mazes, per seed.

`python benchmarks/four_bits.py` writes `data/results/four_bits.csv`. Needs Unsloth (`make test-unsloth` makes an
environment with it). Leaves out: what training afterwards makes up for.
"""

from pathlib import Path

import pandas as pd

import mas_lab as lab

OUT = Path(__file__).parents[1] / "data" / "results" / "four_bits.csv"
TASKS, EPISODES, SEEDS = 64, 2, 5


def main() -> None:
    env = lab.make_env("plan_path")
    held_out, rows = env.tasks(TASKS, "test", seed=0), []
    for bits in (32, 4):
        options = {"load_in_4bit": True} if bits == 4 else {}
        base = lab.load_base(env.pocket, backend="unsloth", adapters=len(env.agents), rank=8, **options)
        team = lab.Team.per_agent(base.adapter, env.agents)
        for seed in range(SEEDS):
            success = lab.evaluate(env, team, held_out, k=EPISODES, seed=seed)["success"].mean()
            rows.append({"base": "4 bits" if bits == 4 else "float32", "seed": seed, "success": success})
    pd.DataFrame(rows).to_csv(OUT, index=False, lineterminator="\n")
    print(pd.DataFrame(rows).groupby("base")["success"].agg(["mean", "min", "max"]).round(3))


if __name__ == "__main__":
    main()
