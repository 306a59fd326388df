"""Writes `data/results/self_play/` and `data/results/tool_calls/`: the trainings of notebooks 15 and 16, over seeds.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/games_and_tools.py

`self_play/shares.csv`: what share of its answers the player of rock, paper, scissors gave to each throw at each step,
under three weights of the entropy bonus. `tool_calls/curves.csv`: malformed calls, calls and success of the calculator
team at each step, under three penalties for an invalid row. Leaves out: what the records say (the notebooks).
"""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.course.games import THROWS, RockPaperScissors
from mas_lab.train.record import versions

GAME = {"lr": 5e-4, "steps": 30, "tasks": 16}
TOOLS = {"lr": 5e-4, "steps": 12, "tasks": 16}
BONUSES, PENALTIES = (0.0, 0.1, 0.3), (0.0, 0.5, 5.0)
HELD_OUT, REPEATS = 128, 2


def throws(seed: int, entropy: float) -> pd.DataFrame:
    """One policy plays both sides: share of each throw at each step."""
    game = RockPaperScissors()
    team = lab.Team.shared(lab.load_policy(game.pocket, lr=GAME["lr"]), game.agents)
    recipe = lab.RECIPES["dr_mas"].replace(credit=lab.own_return(), loss=lab.clipped(0.2, entropy=entropy))
    rows = []
    for report in lab.train(game, team, recipe, steps=GAME["steps"], seed=seed, tasks=GAME["tasks"]):
        thrown = [said[agent] for said, agent in zip(report.turns["info"], report.turns["agent"], strict=True)]
        shares = {name: thrown.count(name) / len(thrown) for name in THROWS}
        rows.append({"entropy": entropy, "seed": seed, "step": report.step, **shares})
    print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def calls(seed: int, invalid: float) -> pd.DataFrame:
    """The calculator team: malformed calls, calls per episode and success at each step; held-out success."""
    env = lab.make_env("calculator")
    team = lab.Team.shared(lab.load_policy(env.pocket, lr=TOOLS["lr"]), env.agents)
    recipe = lab.RECIPES["dr_mas"].replace(credit=lab.episode_return(invalid=invalid))
    rows = []
    for report in lab.train(env, team, recipe, steps=TOOLS["steps"], seed=seed, tasks=TOOLS["tasks"]):
        called = report.turns[report.turns["call_status"] != "none"]
        episodes = report.turns.groupby("episode")
        told = {"malformed": (called["call_status"] != "ok").mean(), "calls": len(called) / episodes.ngroups}
        rows.append({"invalid": invalid, "seed": seed, "step": report.step, **told,
                     "success": episodes["success"].last().mean()})  # fmt: skip
    scores = lab.evaluate(env, team, env.tasks(HELD_OUT, "test", seed), k=REPEATS, seed=seed)
    print(rows[-1], flush=True)
    return pd.DataFrame(rows).assign(held_out=scores["success"].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results"))
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    for folder, name, one, values, settings in (
        ("self_play", "shares.csv", throws, BONUSES, GAME),
        ("tool_calls", "curves.csv", calls, PENALTIES, TOOLS | {"held_out": [HELD_OUT, REPEATS]}),
    ):
        table = pd.concat([one(seed, value) for seed in range(args.seeds) for value in values])
        (args.out / folder).mkdir(parents=True, exist_ok=True)
        table.round(5).to_csv(args.out / folder / name, index=False)
        told = {"command": "MAS_LAB_THREADS=1 python benchmarks/games_and_tools.py",
                "date": f"{datetime.now(UTC):%Y-%m-%d}", "training": settings, "versions": versions()}  # fmt: skip
        (args.out / folder / "provenance.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
