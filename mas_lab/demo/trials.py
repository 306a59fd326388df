"""Describe each training of the demo as plain settings, run it, and return its results.

Plain settings can be sent to another process. Running several trainings side by side is in `mas_lab.study.processes`,
the page in `report`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.backends.loading import load_base, load_policy
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.env import Env, Task
from mas_lab.explain.spike_rule import SpikeWatch
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.maze import distances
from mas_lab.team import Team
from mas_lab.train import train
from mas_lab.train.evaluate import evaluate
from mas_lab.widgets.figures import way

ENV = "plan_path"
METHOD = "at_grpo"
STEPS, SEEDS = 20, 1
SETTINGS = {"tasks": 32, "minibatches": 2, "save_every": 20}
LR = 1e-3
HELD_OUT, REPEATS = 128, 4
"""Number of mazes that a team is scored on, and episodes on each."""
SCORE_EVERY, ON_THE_WAY = 5, 64
"""Steps between two scores of a learning curve, and the number of tasks of those in between."""
STAGES, LADDER_STEPS = 8, 30
LADDER_RECIPES = ("grpo", "own_robust")
REAL, REAL_STEPS, REAL_RECIPES = "smollm2-135m", 12, ("grpo", "dr_mas")


@dataclass(frozen=True)
class Trial:
    """One training as plain data."""

    env: Mapping[str, Any]
    """Arguments of `make_env`."""
    recipe: str
    seed: int
    steps: int
    lr: float
    settings: Mapping[str, Any]
    """Arguments of `train`."""
    per_agent: bool = False
    """Whether each agent has its own weights; otherwise all agents share one set."""
    held_out: int = 64
    """Number of tasks for the first and the last score, `REPEATS` episodes each; training never shows them."""
    base: str | None = None
    """A language model whose adapters the agents train; they start from the warm start "words". `None`: pocket
    weights."""
    keep: Path | None = None
    """Folder that the run is stored in; its spikes are then watched. `None`: not stored."""


@dataclass
class Trained:
    """Results of one run.

    `curve` has a row per score: step, tokens sampled so far, and held-out success. `norms` has a row per step: the
    largest gradient norm of its policies before clipping. `seconds` are those of training and scoring. `example` is a
    task with its episodes before and after training, see `before_and_after`.
    """

    trial: Trial
    curve: pd.DataFrame
    norms: pd.DataFrame
    seconds: float
    example: tuple[Task, pd.DataFrame, pd.DataFrame] | None = field(default=None, repr=False)


def maze(steps: int = STEPS) -> Trial:
    """Return a training of planner and executor in a maze, with one set of weights."""
    return Trial({"name": ENV}, METHOD, 0, steps, LR, SETTINGS, held_out=HELD_OUT)


def ladder(recipe: str, seed: int, steps: int = LADDER_STEPS, keep: Path | None = None) -> Trial:
    """Return a training of eight agents on a ladder, each with its own weights; late stages are rarely reached."""
    env, settings = {"name": "ladder", "n_agents": STAGES}, {"tasks": 16, "save_every": steps}
    return Trial(env, recipe, seed, steps, 3e-4, settings, per_agent=True, keep=keep)


def real(recipe: str, steps: int = REAL_STEPS) -> Trial:
    """Return a training of solver and helper in words, an adapter each on a language model of 135 million weights."""
    env, settings = {"name": "paid_help", "size": "words"}, {"tasks": 16, "save_every": steps}
    return Trial(env, recipe, 0, steps, 6e-4, settings, per_agent=True, base=REAL)


def make_team(env: Env, lr: float = LR, per_agent: bool = False, base: str | None = None) -> Team:
    """Return a team with pocket weights, one set for all agents or for each, or with adapters of a language model."""
    if base is not None:
        adapters = load_base(base, adapters=len(env.agents), rank=8, lr=lr, start="words")
        return Team.per_agent(adapters.adapter, env.agents)
    if per_agent:
        return Team.per_agent(lambda agent: load_policy(env.pocket, lr=lr), env.agents)
    return Team.shared(load_policy(env.pocket, lr=lr), env.agents)


def held_out(env: Env, team: Team, tasks: int = HELD_OUT) -> float:
    """Return the success rate on tasks that training never shows, with sampled answers."""
    return evaluate(env, team, env.tasks(tasks, "test", seed=0), k=REPEATS)["success"].mean()


def learn(trial: Trial) -> Trained:
    """Train as `trial` says and return the results."""
    began, env = time.time(), make_env(**trial.env)
    team = make_team(env, trial.lr, trial.per_agent, trial.base)
    curve, norms, tokens = [(0, 0, held_out(env, team, trial.held_out))], [], 0
    kept = {"run": trial.keep, "watch": SpikeWatch()} if trial.keep else {}
    for report in train(env, team, trial.recipe, trial.steps, trial.seed, **kept, **trial.settings):
        tokens, done = tokens + report.tokens, report.step + 1
        norms.append((report.step, report.stats["policy_norm"].max()))
        if done == trial.steps or done % SCORE_EVERY == 0:
            curve.append((done, tokens, held_out(env, team, trial.held_out if done == trial.steps else ON_THE_WAY)))
    scores = pd.DataFrame(curve, columns=["step", "tokens", "success"])
    tables = [table.assign(recipe=trial.recipe, seed=trial.seed)
              for table in (scores, pd.DataFrame(norms, columns=["step", "policy_norm"]))]  # fmt: skip
    untrained = make_team(env, trial.lr, trial.per_agent, trial.base)
    example = before_and_after(env, untrained, team) if env.name == ENV or trial.base else None
    return Trained(trial, *tables, time.time() - began, example)


def results(runs: Sequence[Trained]) -> pd.DataFrame:
    """Return one row per run: recipe, seed, success before and after training, and the largest gradient norm."""
    return pd.DataFrame([
        {"recipe": run.trial.recipe, "seed": run.trial.seed, "before": run.curve["success"].iloc[0],
         "after": run.curve["success"].iloc[-1], "largest_norm": run.norms["policy_norm"].max()} for run in runs
    ])  # fmt: skip


def seconds(runs: Sequence[Trained]) -> float:
    """Return the mean seconds of a training."""
    return sum(run.seconds for run in runs) / len(runs)


def before_and_after(env: Env, untrained: Team, trained: Team) -> tuple[Task, pd.DataFrame, pd.DataFrame]:
    """Return a held-out task that the untrained team fails and the trained team solves, with both episodes.

    Of 64 mazes it is the one with the longest path that the trained team walked without a wasted step. Of 64 questions
    it is the one on which the trained team spoke most. If there is none, it is the first task.
    """
    tasks = env.tasks(64, "test", seed=1)
    before, after = (rollout(env, team, tasks, episodes(1), seed=1) for team in (untrained, trained))
    was, solved = (turns.groupby("task")["success"].any() for turns in (before, after))
    won = [task for task in tasks if solved[task.id] and not was[task.id]]
    size = after["task"].value_counts()
    if env.name == ENV:
        size = {task.id: distances(env.start(task).floor)[env.start(task).start] for task in won}
        won = [task for task in won if len(way(env, task, after)) - 1 == size[task.id]]
    task = max(won, key=lambda task: size[task.id], default=tasks[0])
    return task, *(turns[turns["task"] == task.id] for turns in (before, after))
