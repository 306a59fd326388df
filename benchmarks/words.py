"""Writes `data/results/words/` and the warm start `data/warm/words/`: SmolLM2-135M plays the tasks in words.

    python benchmarks/words.py

`agents.csv` says how often each agent was called and right on held-out tasks after each ten steps of `lab.imitate`, and
`episodes.csv` has one last episode of each task, one that succeeds if there is any. The teaching tasks ask the same
questions, so one warm start on `paid_help` serves all of them; `lab.load_base(..., start="words")` takes it. `math` has
its own, which is not shipped. One adapter plays all agents. Each block of the warm start has ten steps on the answers
of the first agent, then five on those of the second, which is called rarely. Leaves out: what a training makes of it.
"""

import argparse
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from safetensors.torch import load_file, save_file

import mas_lab as lab
from mas_lab.policy import Policy
from mas_lab.train.record import versions

WARM = {"paid_help": (20, ["ladder", "finisher", "cascade", "stakes"]), "math": (40, [])}
"""Task of the warm start -> its steps, and the other tasks that it serves."""
EVERY, LR, RANK, BATCH, HELD_OUT = 10, 1e-3, 8, 32, 64
SHIPPED = "paid_help"


def play(name: str, policy: Policy, first: str, steps: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return how often each agent was right, and one episode."""
    env = lab.make_env(name, size="words")
    turns = lab.rollout(env, lab.Team.shared(policy, env.agents), env.tasks(HELD_OUT, "test", 0), lab.episodes(1))
    by_agent = turns.assign(right=turns["local_reward"] == 1).groupby("agent", sort=False)
    agents = by_agent.agg(calls=("right", "size"), right=("right", "mean"), valid=("valid", "mean")).reset_index()
    solved = turns[turns.groupby("task")["success"].transform("any")]
    longest = (solved if len(solved) else turns).groupby("task", sort=False).size().idxmax()
    return agents.assign(task=name, warm_start=first, steps=steps), turns[turns["task"] == longest].assign(task=name)


def ship(policy: Policy, folder: Path) -> None:
    """Write an adapter in bfloat16, without the state of its optimizer."""
    policy.save(folder)
    shutil.rmtree(folder / "training")
    path = folder / "adapter_model.safetensors"
    save_file({name: weights.bfloat16() for name, weights in load_file(path).items()}, path, metadata={"format": "pt"})
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = policy.shared.source.name
    path.chmod(0o644)  # a package would keep its owner-only mode
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/words"))
    parser.add_argument("--warm", type=Path, default=Path("data/warm/words"))
    parser.add_argument("--model", default="smollm2-135m")
    args = parser.parse_args()
    agents, episodes = [], []
    for first, (most, others) in WARM.items():
        policy = lab.load_policy(args.model, lora=RANK, lr=LR, dtype="bfloat16")
        env = lab.make_env(first, size="words")
        for steps in range(EVERY, most + 1, EVERY):
            for agent, block in zip(env.agents, (EVERY, EVERY // 2), strict=True):
                lab.imitate(lab.Team({agent: policy}), env, BATCH, block, batch=BATCH, lr=LR, seed=steps)
            found = [play(name, policy, first, steps) for name in [first, *(others if steps == most else [])]]
            agents += [table for table, _ in found]
            print(pd.concat(agents).to_string(index=False), flush=True)
        episodes += [turns for _, turns in found]
        if first == SHIPPED:
            ship(policy, args.warm)
    args.out.mkdir(parents=True, exist_ok=True)
    pd.concat(agents).round(3).to_csv(args.out / "agents.csv", index=False)
    columns = ["task", "agent", "prompt", "completion", "team_reward", "local_reward"]
    pd.concat(episodes)[columns].to_csv(args.out / "episodes.csv", index=False)
    record = {
        "command": "python benchmarks/words.py", "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "model": "SmolLM2-135M-Instruct, Q4_1, in bfloat16", "lora": RANK, "lr": LR, "batch": BATCH,
        "held_out": HELD_OUT, "versions": versions(),
    }  # fmt: skip
    for folder in (args.out, args.warm):
        (folder / "provenance.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
