"""Claims of papers on SmolLM2-135M: AT-GRPO's maze, MAGRPO's two summaries of a post, and Dr. MAS's math with a fixer.

    python benchmarks/carries/claims.py plan_path
    python benchmarks/carries/claims.py plan_path_slow    # `at_grpo` at a third of the rate
    python benchmarks/carries/claims.py tldr
    python benchmarks/carries/claims.py tldr_taught    # one agent that was taught to write both summaries
    python benchmarks/carries/claims.py math

Each arm has three seeds at equal sampled tokens, in math at equal episodes. Writes a record to
`data/results/carries/135M/`, and for summaries also `texts.json`: those of held-out posts before and after training, of
which it prints how much is copied. `README.md` has the predictions.
"""

import argparse
import json
import sys
from typing import Any

import pandas as pd
from run import BASE, OUT, RANK, RUNS, arm, measures, played

import mas_lab as lab
from mas_lab.tasks.shared.wording import words

sys.path.insert(0, "benchmarks")
from real_tldr import copied

SEEDS = [0, 1, 2]
MAZE = {"name": "plan_path"}
TOKENS = 16
"""Most tokens of an answer in the maze: four cells of two tokens each and the end of the turn, with room."""
POSTS = {"name": "tldr", "size": "full", "data": "data/tldr/posts.jsonl"}
HELD_OUT, SAMPLES = 12, 2
MATH = {"name": "math", "fixer": True, "size": "words"}
WARM: dict[str, dict[str, Any]] = {
    "plan_path": {
        "envs": [MAZE, MAZE | {"single_agent": True}], "rank": RANK, "lr": 1e-3, "batch": 32, "steps": 10,
        "sampling": {"max_tokens": TOKENS}, "tasks": 64, "k": 1, "score": "success", "enough": 0.25,
    },
    "tldr": {
        "envs": [POSTS | {"single_agent": True}], "rank": 16, "lr": 1e-3, "batch": 8, "steps": 5,
        "sampling": {"temperature": 0.7, "max_tokens": 300}, "tasks": HELD_OUT, "k": SAMPLES, "score": "return",
        "enough": 0.5,
    },
    "math": {
        "envs": [MATH], "rank": RANK, "lr": 1e-3, "batch": 32, "steps": 4, "sampling": {}, "tasks": 128, "k": 2,
        "score": "success", "enough": 0.3,
    },
}  # fmt: skip


def warm(name: str, seed: int) -> None:
    """Make the adapter of a seed that knows the form of a task's answers, unless it is there.

    The envs learn in turns, `steps` steps each. Then the first is scored on validation tasks, until that is `enough`.
    """
    folder, how = RUNS / "warm" / f"{name}-{seed}", WARM[name]
    if (folder / "start.json").is_file():
        return
    policy = lab.load_policy(BASE, lora=how["rank"], lr=how["lr"], dtype="bfloat16", seed=seed)
    envs, score, steps = [lab.make_env(**env) for env in how["envs"]], 0.0, 0
    while score < how["enough"]:
        for env in envs:
            team = lab.Team.shared(policy, env.agents)
            lab.imitate(team, env, how["batch"], how["steps"], batch=how["batch"], seed=1000 * seed + steps)
        steps += how["steps"] * len(envs)
        team = lab.Team.shared(policy, envs[0].agents).with_sampling(lab.Sampling(**how["sampling"]))
        scores = lab.evaluate(envs[0], team, envs[0].tasks(how["tasks"], "val", seed), k=how["k"], seed=seed)
        score = scores[how["score"]].mean()
        print(f"{name}, seed {seed}: {steps} steps, {how['score']} {score:.3f}", flush=True)
    policy.save(folder)
    (folder / "start.json").write_text(json.dumps({"seed": seed, "steps": steps, how["score"]: score}))


def maze(slow: bool = False) -> dict[str, Any]:
    start = "runs/carries/warm/plan_path-{seed}"
    member = {"max_tokens": TOKENS}
    two = {"planner": member, "executor": member}
    at_grpo = {"recipe": "at_grpo", "team": {"agents": two}}
    return {
        "name": "carries/135M/plan_path" + "_slow" * slow, "env": MAZE, "seeds": SEEDS,
        "team": {"weights": "shared", "model": BASE, "lora": RANK, "lr": 1e-4 if slow else 3e-4,
                 "options": {"start": start, "dtype": "bfloat16"}},
        "settings": {"tasks": 16, "minibatches": 2, "save_every": 30, "score_tasks": 64, "score_episodes": 4},
        "budget": {"tokens": 120_000}, "differ": ["recipe", "env.single_agent", "team.agents"],
        "arms": {"at_grpo at 1e-4": at_grpo} if slow else {
            "at_grpo": at_grpo,
            "grpo": {"recipe": "grpo", "team": {"agents": two}},
            "one agent": {"recipe": "at_grpo", "env": {"single_agent": True}, "team": {"agents": {"solo": member}}},
        },
    }  # fmt: skip


def walked(made: Any) -> pd.DataFrame:
    """Return how the maze was played, a row per training, agent and window (the first or the last three steps).

    `copied` is the share of answers that are the last hint of the prompt, `prompts` the number of different prompts in
    a step, `zero` the share of rows with advantage 0.
    """
    rows = []
    for cell in made.table[made.table["state"] == "made"].itertuples():
        run = lab.load_run(cell.run)
        for window, steps in (("start", range(3)), ("end", range(run.steps - 3, run.steps))):
            turns = pd.concat([run.step_turns(step) for step in steps])
            hint = turns["prompt"].str.extract(r".*hint ((?:[a-z]\d ?)+)", expand=False).str.strip()
            turns = turns.assign(copied=turns["completion"].str.strip() == hint, zero=turns["advantage"] == 0)
            found = turns.groupby("agent")[["copied", "zero"]].mean()
            found["prompts"] = turns.groupby("agent")["prompt"].nunique() / len(steps)
            found["entropy"] = run.stats[run.stats["step"].isin(steps)].groupby("agent")["entropy"].mean()
            rows.append(found.reset_index().assign(arm=cell.arm, seed=cell.seed, window=window))
    return pd.concat(rows)


def summaries(taught: bool = False) -> dict[str, Any]:
    def speak(tokens: int, *agents: str) -> dict[str, Any]:
        return {"agents": {agent: {"temperature": 0.7, "max_tokens": tokens} for agent in agents}}

    magrpo, two = {"name": "magrpo", "plan": {"is": "joint", "g": 6}}, speak(150, "short", "detailed")
    own = magrpo | {"credit": {"is": "mixed", "alpha": 0.0}}
    one = {"recipe": magrpo, "team": speak(300, "solo"), "env": {"single_agent": True}}
    start = {"start": "runs/carries/warm/tldr-{seed}"} if taught else {}
    return {
        "name": "carries/135M/tldr" + "_taught" * taught, "env": POSTS, "seeds": SEEDS, "score": "return",
        "team": {"weights": "per_agent", "model": BASE, "lora": 16, "lr": 5e-4,
                 "options": {"dtype": "bfloat16"} | start},
        "settings": {"tasks": 2, "save_every": 30, "score_tasks": HELD_OUT, "score_episodes": SAMPLES},
        "budget": {"tokens": 60_000}, "differ": ["recipe", "env.single_agent", "team.agents"],
        "arms": {"one agent, taught": one} if taught else {
            "magrpo": {"recipe": magrpo, "team": two}, "own rewards": {"recipe": own, "team": two}, "one agent": one,
        },
    }  # fmt: skip


def written(team: lab.Team, **called: Any) -> list[dict[str, Any]]:
    """Return what a team writes about each held-out post."""
    env = lab.make_env(**POSTS, single_agent="solo" in team)
    turns = lab.rollout(env, team, env.tasks(HELD_OUT, "test", 0), lab.episodes(SAMPLES), seed=1, step=10**6)
    columns = ["task", "episode", "agent", "team_reward", "completion"]
    return [called | row for row in turns[columns].to_dict("records")]


def texts(made: Any, taught: bool, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the summaries before training and by each trained team. Those that were `found` are not written again."""
    if not found:
        for seed in SEEDS if taught else [None]:
            start = {"lora": 16, "start": RUNS / "warm" / f"tldr-{seed}"} if taught else {}
            policy = lab.load_policy(BASE, dtype="bfloat16", **start)
            for agents, tokens in [(("solo",), 300)] if taught else [(("short", "detailed"), 150), (("solo",), 300)]:
                team = lab.Team.shared(policy, agents).with_sampling(lab.Sampling(temperature=0.7, max_tokens=tokens))
                found = found + written(team, arm="before training", seed=seed)
    known = {(one["arm"], one.get("seed")) for one in found}
    for cell in made.table[made.table["state"] == "made"].itertuples():
        if (cell.arm, cell.seed) not in known:
            found = found + written(lab.load_run(cell.run).team(), arm=cell.arm, seed=cell.seed)
    return found


def copies(found: list[dict[str, Any]]) -> pd.DataFrame:
    """Return how much of the texts is copied from the posts: means by arm, seed and agent."""
    table = pd.DataFrame(found)
    posts = {task.id: task.data["source"] for task in lab.make_env(**POSTS).tasks(HELD_OUT, "test", 0)}
    table["copied"] = [copied(one["completion"], posts[one["task"]]) for one in found]
    table["words"] = table["completion"].map(words).map(len)
    return table.groupby(["arm", "seed", "agent"], dropna=False)[["copied", "words", "team_reward"]].mean()


def problems() -> dict[str, Any]:
    """Return the study of math in which the fixer alone learns, at the rate that both arms have in `run`."""
    return {
        "name": "carries/135M/math", "env": MATH, "seeds": SEEDS,
        "team": {"weights": "per_agent", "model": BASE, "lora": RANK,
                 "options": {"start": "runs/carries/warm/math-{seed}", "dtype": "bfloat16"},
                 "agents": {agent: {"frozen": True} for agent in ("solver", "verifier")}},
        "settings": {"tasks": 8, "save_every": 30, "score_tasks": 64, "score_episodes": 4},
        "budget": {"episodes": 1920}, "differ": ["recipe", "team.lr"],
        "arms": {recipe: arm(recipe, 1e-4) for recipe in ("grpo", "own_pooled")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("claim", choices=["plan_path", "plan_path_slow", "tldr", "tldr_taught", "math"])
    parser.add_argument("--workers", type=int, help="trainings at a time; default: one per core")
    args = parser.parse_args()
    task = next(task for task in WARM if args.claim.startswith(task))
    slow, taught = args.claim == "plan_path_slow", args.claim == "tldr_taught"
    for seed in SEEDS if args.claim != "tldr" else ():
        warm(task, seed)
    data = {"plan_path": maze(slow), "tldr": summaries(taught), "math": problems()}[task]
    keep = "all" if task == "tldr" else "tables"  # texts() needs the weights
    made = played(data, args.workers, f"python benchmarks/carries/claims.py {args.claim}", keep)
    print(made.table[["arm", "seed", "start", "final"]].round(3).to_string(index=False))
    if task in ("plan_path", "math"):
        found = walked(made) if task == "plan_path" else measures(made)
        found.to_csv(OUT.parent / data["name"] / "measures.csv", index=False, float_format="%.4g")
        columns = ["arm", "agent", "window"] if task == "plan_path" else ["arm", "agent"]
        print(found.groupby(columns).mean(numeric_only=True).round(3).to_string())
    else:
        path = OUT.parent / data["name"] / "texts.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        found = texts(made, taught, found)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(copies(found).round(2).to_string())


if __name__ == "__main__":
    main()
