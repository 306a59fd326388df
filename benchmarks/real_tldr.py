"""Writes `data/results/real_tldr/seed_N.json`: two adapters of a real model learn `tldr` in full size by `magrpo`.

    MAS_LAB_THREADS=2 python benchmarks/real_tldr.py --seed 0
    python benchmarks/real_tldr.py --copied      # how much of the texts on record is copied from the posts

One call trains one seed. The same call continues a run that was stopped. The file holds scores and texts on held-out
posts before and after the training, and a row per step. The prompts, the temperature and the limit of tokens were
chosen on the split "val". Leaves out: other recipes and a sweep of the learning rate.
"""

import argparse
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.runs.disk import write_json
from mas_lab.runs.run import run_folder
from mas_lab.tasks.shared.wording import words
from mas_lab.train.record import versions

MODEL, RANK, LR = "smollm2-135m", 16, 5e-4
POSTS, JOINT_ACTIONS, MAX_TOKENS, TEMPERATURE = 2, 6, 150, 0.7
RUN = 6
"""Words in a row that count as copied if the post has them too."""
SAMPLES, TEXTS = 3, 3
"""Samples of each held-out post in a score, and posts whose first sample is written down."""


def scores(turns: pd.DataFrame) -> dict:
    """Return the mean return, its parts, and the lengths of a rollout, per joint action."""
    actions = turns[turns["agent"] == "short"]
    parts = pd.DataFrame(list(actions["info"])).mean()
    found = {"return": actions["team_reward"].mean(), **parts, "success": actions["success"].mean()}
    for agent, own in turns.groupby("agent"):
        found[f"words_{agent}"] = own["completion"].map(lambda text: len(words(text))).mean()
        found[f"tokens_{agent}"] = own["completion_ids"].map(len).mean()
        found[f"cut_{agent}"] = (own["finish"] == "length").mean()
    return {name: round(float(value), 4) for name, value in found.items()}


def copied(text: str, post: str) -> float:
    """Return the share of a text's words that stand in runs of `RUN` words or more which the post has too."""
    said, known = words(text), words(post)
    runs = {tuple(known[i : i + RUN]) for i in range(len(known) - RUN + 1)}
    found = set()
    for i in range(len(said) - RUN + 1):
        if tuple(said[i : i + RUN]) in runs:
            found.update(range(i, i + RUN))
    return len(found) / max(1, len(said))


def tell_copied(folder: Path) -> None:
    """Print the median share of copied words in the recorded texts after training."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("seed_*.json"))]
    texts = [text for record in records for text in record["after"]["texts"]]
    for agent in ("short", "detailed"):
        shares = pd.Series([copied(text[agent], text["post"]) for text in texts])
        print(f"{agent}: {shares.median():.2f} of the words of {len(shares)} texts are copied (median)")


def held_out(env: lab.Env, team: lab.Team, split: str) -> dict:
    """Return the scores on all posts of a split at the training's temperature, with texts of the first posts."""
    tasks = env.tasks(12, split, seed=0)
    turns = lab.rollout(env, team, tasks, lab.episodes(SAMPLES), seed=1, step=10**6)
    per_post = turns[turns["agent"] == "short"].groupby("task")["team_reward"].mean()
    firsts = turns.drop_duplicates(["task", "agent"]).pivot(index="task", columns="agent")
    texts = [
        {"post": task.data["source"], "return": round(float(firsts["team_reward", "short"][task.id]), 3)}
        | {agent: firsts["completion", agent][task.id] for agent in env.agents}
        for task in tasks[:TEXTS]
    ]
    return {**scores(turns), "per_post": per_post.round(4).to_dict(), "texts": texts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", default=MODEL, help="name, folder or file for lab.load_base")
    parser.add_argument("--split", default="test", choices=["test", "val"], help="the held-out posts")
    parser.add_argument("--run", help="name or folder of the run; default: real_tldr_N")
    parser.add_argument("--out", type=Path, default=Path("data/results/real_tldr"))
    parser.add_argument("--copied", action="store_true", help="count copied words of the records, and train nothing")
    args = parser.parse_args()
    if args.copied:
        return tell_copied(args.out)
    file, run = args.out / f"seed_{args.seed}.json", run_folder(args.run or f"real_tldr_{args.seed}")
    args.out.mkdir(parents=True, exist_ok=True)

    env = lab.make_env("tldr", size="full", data=str(data_dir() / "tldr" / "posts.jsonl"))
    base = lab.load_base(args.model, adapters=2, rank=RANK, lr=LR, seed=args.seed, dtype="bfloat16")
    sampling = lab.Sampling(temperature=TEMPERATURE, max_tokens=MAX_TOKENS)
    team = lab.Team.per_agent(base.adapter, env.agents).with_sampling(sampling)
    recipe = lab.RECIPES["magrpo"].replace(plan=lab.joint(JOINT_ACTIONS))

    record = json.loads(file.read_text(encoding="utf-8")) if file.exists() and run.exists() else {}
    rows = {row["step"]: row for row in record.get("steps", [])}

    def write(**more) -> None:
        record.update(more, steps=[rows[step] for step in sorted(rows)])
        write_json(file, record)

    if not record:
        start = time.perf_counter()
        before = held_out(env, team, args.split)
        write(
            seed=args.seed, date=f"{datetime.now(UTC):%Y-%m-%d}", split=args.split, versions=versions(),
            settings={"recipe": "magrpo", "rank": RANK, "lr": LR, "posts": POSTS, "joint_actions": JOINT_ACTIONS,
                      "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, "dtype": "bfloat16"},
            before=before, seconds_before=round(time.perf_counter() - start, 1),
        )  # fmt: skip
        print(f"before: return {before['return']:.2f} of 3", flush=True)
    steps = lab.train(env, team, recipe, args.steps, args.seed, run, tasks=POSTS, save_every=5)
    processor = time.process_time()
    for report in steps:
        seconds = {name: round(value, 1) for name, value in report.profile.items()}
        rows[report.step] = {"step": report.step, **scores(report.turns), "seconds": seconds,
                             "processor_seconds": round(time.process_time() - processor, 1),
                             "load": round(os.getloadavg()[0], 1)}  # fmt: skip
        processor = time.process_time()
        write()
        print(f"step {report.step}: return {rows[report.step]['return']:.2f}, {seconds}", flush=True)
    start = time.perf_counter()
    after = held_out(env, team, args.split)
    write(after=after, seconds_after=round(time.perf_counter() - start, 1))
    minutes = (sum(sum(row["seconds"].values()) for row in rows.values())
               + record["seconds_before"] + record["seconds_after"]) / 60  # fmt: skip
    write(minutes=round(minutes, 1))
    print(f"after: return {after['return']:.2f} of 3 (before {record['before']['return']:.2f}), {minutes:.0f} minutes")
    for old, new in zip(record["before"]["texts"], after["texts"], strict=True):
        print(f"\n{old['post']}")
        for name in env.agents:
            print(f"- {name}, before: {old[name]}\n- {name}, after: {new[name]}")


if __name__ == "__main__":
    main()
