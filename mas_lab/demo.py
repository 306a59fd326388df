"""The quickstart's job, headless: a planner and an executor learn, beside two baselines on the same token budget.

`python -m mas_lab demo` runs it and writes `quickstart/report.html` under `runs_dir()`; the first notebook takes the
same settings one step at a time. Leaves out: what a recipe is (`recipes`).
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mas_lab.backends import load_policy, probe_threads, set_threads
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.env import Env, Task
from mas_lab.progress import progress_bar
from mas_lab.recipes import Recipe, find
from mas_lab.runs.run import runs_dir
from mas_lab.tasks import make_env
from mas_lab.team import Team
from mas_lab.train import Report, train
from mas_lab.train.evaluate import evaluate
from mas_lab.widgets.document import document, escape, figure_html, table_html, write
from mas_lab.widgets.figures import dialogue, learning_curves, mazes
from mas_lab.widgets.rewards import NOTE, reward_table, two_baselines

ENV = "plan_path"
METHOD, BASELINES = "at_grpo", ("grpo", "grpo_mixed")
STEPS, SEEDS = 20, 3
SETTINGS = {"tasks": 32, "minibatches": 2, "save_every": 20}
LR = 1e-3
HELD_OUT, REPEATS = 128, 4
"""Mazes that a team is scored on, and episodes on each."""
SCORE_EVERY = 5
"""Steps between the scores of a learning curve."""


@dataclass
class Trained:
    """One run: held-out success before, on the way (`curve`) and after; `seconds` of training alone."""

    recipe: str
    seed: int
    before: float
    after: float
    seconds: float
    curve: pd.DataFrame
    last: Report
    team: Team


def make_team(env: Env) -> Team:
    """One set of pocket weights for all roles."""
    return Team.shared(load_policy(env.pocket, lr=LR), env.agents)


def held_out(env: Env, team: Team, tasks: int = HELD_OUT) -> float:
    """Sampled success on mazes that training never shows."""
    return evaluate(env, team, env.tasks(tasks, "test", seed=0), k=REPEATS)["success"].mean()


def learn(recipe: str | Recipe, seed: int, steps: int | None = None, budget: int | None = None, run=None) -> Trained:
    """Train for `steps`, or until `budget` tokens have been sampled; seconds are those of training alone."""
    recipe, env = find(recipe), make_env(ENV)
    team = make_team(env)
    before, tokens, seconds = held_out(env, team), 0, 0.0
    curve = [{"step": 0, "tokens": 0, "success": before}]
    for report in train(env, team, recipe, steps or 10**6, seed=seed, run=run, **SETTINGS):
        tokens, seconds = tokens + report.tokens, seconds + sum(report.profile.values())
        last = report.step + 1 == steps or (budget is not None and tokens >= budget)
        if last or (report.step + 1) % SCORE_EVERY == 0:
            success = held_out(env, team, HELD_OUT if last else HELD_OUT // 2)
            curve.append({"step": report.step + 1, "tokens": tokens, "success": success})
        if last:
            break
    curve = pd.DataFrame(curve).assign(recipe=recipe.name, seed=seed)
    return Trained(recipe.name, seed, before, success, seconds, curve, report, team)


def main(out: str | Path | None = None, seeds: int = SEEDS, steps: int = STEPS) -> list[Trained]:
    """Train all recipes over all seeds, write the report, and print one line of results."""
    out = Path(out) if out else runs_dir() / "quickstart"
    set_threads(probe_threads())
    runs: list[Trained] = []
    with progress_bar(seeds * (1 + len(BASELINES)), "quickstart", "run") as bar:
        for seed in range(seeds):
            runs.append(learn(METHOD, seed, steps=steps))
            bar.update()
            budget = int(runs[-1].curve["tokens"].iloc[-1])
            for baseline in BASELINES:
                runs.append(learn(baseline, seed, budget=budget))
                bar.update()
    scores = results(runs)
    out.mkdir(parents=True, exist_ok=True)
    scores.to_json(out / "results.json", orient="records", indent=1)
    pd.concat([one.curve for one in runs]).to_csv(out / "curves.csv", index=False)
    _report(out / "report.html", runs, scores)
    print(f"report: {out / 'report.html'}")
    print(headline(scores))
    return runs


def results(runs: list[Trained]) -> pd.DataFrame:
    """A row per run."""
    fields = ("recipe", "seed", "before", "after", "seconds")
    rows = [{name: getattr(one, name) for name in fields} for one in runs]
    last = pd.DataFrame([one.curve.iloc[-1] for one in runs]).reset_index(drop=True)
    return pd.DataFrame(rows).assign(steps=last["step"].astype(int), tokens=last["tokens"].astype(int))


def headline(scores: pd.DataFrame) -> str:
    """`plan_path: at_grpo 0.56 -> 0.93, grpo 0.56 -> 0.81, 3 seeds, 74 s`: means over seeds, and all training time."""
    means = scores.groupby("recipe", sort=False)[["before", "after"]].mean()
    learned = ", ".join(f"{name} {row.before:.2f} -> {row.after:.2f}" for name, row in means.iterrows())
    return f"{ENV}: {learned}, {scores['seed'].nunique()} seeds, {scores['seconds'].sum():.0f} s"


def before_and_after(env: Env, trained: Team) -> tuple[Task, pd.DataFrame, pd.DataFrame]:
    """A held-out maze that the untrained team fails and the trained one solves, with both episodes.

    The first such maze by the order of the test split; if there is none, the first maze.
    """
    tasks = env.tasks(64, "test", seed=1)
    untrained, learned = (rollout(env, team, tasks, episodes(1), seed=1) for team in (make_team(env), trained))
    solved = [turns.groupby("task")["success"].any() for turns in (untrained, learned)]
    task = next((task for task in tasks if solved[1][task.id] and not solved[0][task.id]), tasks[0])
    return task, *(turns[turns["task"] == task.id] for turns in (untrained, learned))


def _report(path: Path, runs: list[Trained], scores: pd.DataFrame) -> None:
    env, best = make_env(ENV), runs[0]
    task, before, after = before_and_after(env, best.team)
    curves, turns = pd.concat([one.curve for one in runs]), best.last.turns
    figures = {
        "curves": figure_html(learning_curves(curves), "Success on held-out mazes, a line per run", curves, first=True),
        "rewards": figure_html(two_baselines(turns, env.agents), "Credits and advantages of planner and executor"),
        "maze": figure_html(mazes(env, task, {"before": before, "after": after}), "The way through one maze"),
    }
    body = [
        f"<p>{escape(headline(scores))}</p><p>Every run starts from the same pocket model and samples the same number "
        f"of tokens. The numbers are sampled success on {HELD_OUT} mazes that training never shows, {REPEATS} episodes "
        f"each; seconds are training alone.</p>",
        table_html(scores, "Every run"),
        "<h2>How each recipe learned</h2><p>at_grpo compares the candidates of one agent at one turn, and rewards each "
        "for its own moves; grpo compares whole episodes by their return; grpo_mixed is grpo "
        "with each call's own reward beside the team's return.</p>",
        figures["curves"],
        f"<h2>What each agent earned in the last step of {escape(best.recipe)}</h2>",
        table_html(reward_table(turns), NOTE),
        figures["rewards"],
        "<h2>One maze, before and after</h2>",
        figures["maze"],
        table_html(dialogue(before, before["episode"].iloc[0]), "Before"),
        table_html(dialogue(after, after["episode"].iloc[0]), "After"),
        "<h2>The optimizer's view of the last step</h2>",
        table_html(
            best.last.stats.drop(columns=["step", "culprits"]), "What the columns mean: help(mas_lab.cells.update)"
        ),
    ]
    title = "A planner and an executor learn to walk through mazes"
    write(path, document(title, "".join(body)))
