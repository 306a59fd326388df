"""What the demo trains: one training as plain settings, which another process can be handed, and what came of it.

Leaves out: how several run side by side (`processes`), and what is shown of them (`report`).
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.backends.loading import load_policy
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.env import Env, Task
from mas_lab.explain.spike_rule import SpikeWatch
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.maze import distances
from mas_lab.team import Team
from mas_lab.train import Report, train
from mas_lab.train.evaluate import evaluate
from mas_lab.widgets.figures import way

ENV = "plan_path"
METHOD, BASELINES = "at_grpo", ("grpo", "grpo_mixed")
STEPS, SEEDS = 20, 3
SETTINGS = {"tasks": 32, "minibatches": 2, "save_every": 20}
LR = 1e-3
HELD_OUT, REPEATS = 128, 4
"""Mazes that a team is scored on, and episodes on each."""
SCORE_EVERY = 5
"""Steps between the scores of a learning curve."""
STAGES, LADDER_STEPS = 8, 30
SPIKES = {"warmup": 2, "threshold": 2.5}
"""Of the rule, both lower than usual: on the ladder norms are high and vary from the first step on."""
LADDER_RECIPES = ("dr_mas", "grpo")

Tell = Callable[[str, int, int], None]
"""Called with a training's name, how far it is, and how far it will go."""


@dataclass(frozen=True)
class Trial:
    """One training, as plain data. It ends after `steps`, or where `budget` tokens have been sampled."""

    env: Mapping[str, Any]
    """The arguments of `make_env`."""
    recipe: str
    seed: int
    lr: float
    settings: Mapping[str, Any]
    """Those of `train`."""
    steps: int | None = None
    budget: int | None = None
    per_agent: bool = False
    """Weights of its own for each agent, or one set for all."""
    frozen: tuple[str, ...] = ()
    held_out: int = 64
    """Tasks that training never shows, `REPEATS` episodes on each, for a score."""
    on_the_way: int = 64
    """Those for the scores between the first and the last."""
    keep: Path | None = None
    """A folder for the run, whose spikes are then watched."""

    @property
    def name(self) -> str:
        return f"{self.env['name']}, {self.recipe}, seed {self.seed}"


@dataclass
class Trained:
    """One run: held-out success before, on the way (`curve`) and after; `seconds` of training alone.

    `norms`: a row per step and policy, its largest gradient norm before clipping. `began`, `ended`: clock times.
    """

    trial: Trial
    before: float
    after: float
    seconds: float
    curve: pd.DataFrame
    norms: pd.DataFrame
    last: Report
    began: float
    ended: float
    team: Team | None = None
    shown: tuple[Task, pd.DataFrame, pd.DataFrame] | None = field(default=None, repr=False)
    """One task before and after, see `before_and_after`."""


def maze(recipe: str, seed: int, steps: int | None = None, budget: int | None = None) -> Trial:
    """Planner and executor with one set of weights in a maze."""
    return Trial({"name": ENV}, recipe, seed, LR, SETTINGS, steps, budget, held_out=HELD_OUT, on_the_way=HELD_OUT // 2)


def ladder(recipe: str, seed: int, steps: int = LADDER_STEPS, keep: Path | None = None) -> Trial:
    """Eight agents with weights of their own on a ladder: who stands high is seldom reached."""
    env, settings = {"name": "ladder", "n_agents": STAGES}, {"tasks": 16, "save_every": steps}
    return Trial(env, recipe, seed, 3e-4, settings, steps, per_agent=True, keep=keep)


def make_team(env: Env, lr: float = LR, per_agent: bool = False, frozen: tuple[str, ...] = ()) -> Team:
    """Pocket weights: one set for all roles, or a set for each."""
    if per_agent:
        return Team.per_agent(lambda agent: load_policy(env.pocket, lr=lr), env.agents, frozen=frozen)
    return Team.shared(load_policy(env.pocket, lr=lr), env.agents, frozen=frozen)


def held_out(env: Env, team: Team, tasks: int = HELD_OUT) -> float:
    """Sampled success on tasks that training never shows."""
    return evaluate(env, team, env.tasks(tasks, "test", seed=0), k=REPEATS)["success"].mean()


def learn(trial: Trial, tell: Tell = lambda name, done, total: None) -> Trained:
    """Train as the trial says."""
    began, env = time.time(), make_env(**trial.env)
    team = make_team(env, trial.lr, trial.per_agent, trial.frozen)
    before, tokens, seconds, norms = held_out(env, team, trial.held_out), 0, 0.0, []
    curve = [{"step": 0, "tokens": 0, "success": before}]
    tell(trial.name, 0, trial.budget or trial.steps)
    for report in _training(trial, env, team):
        tokens, seconds, done = tokens + report.tokens, seconds + sum(report.profile.values()), report.step + 1
        norms.append(report.stats.groupby("policy", sort=False)["policy_norm"].max().reset_index().assign(step=done))
        last = done == trial.steps or (trial.budget is not None and tokens >= trial.budget)
        if last or done % SCORE_EVERY == 0:
            success = held_out(env, team, trial.held_out if last else trial.on_the_way)
            curve.append({"step": done, "tokens": tokens, "success": success})
        tell(trial.name, min(tokens, trial.budget) if trial.budget else done, trial.budget or trial.steps)
        if last:
            break
    named = {"env": env.name, "recipe": trial.recipe, "seed": trial.seed}
    tables = pd.DataFrame(curve).assign(**named), pd.concat(norms, ignore_index=True).assign(**named)
    return Trained(trial, before, success, seconds, *tables, report, began, time.time(), team)


def _training(trial: Trial, env: Env, team: Team):
    watch = SpikeWatch(**SPIKES) if trial.keep else None
    steps = trial.steps or 10**6
    return train(env, team, trial.recipe, steps, trial.seed, run=trial.keep, watch=watch, **trial.settings)


def learn_apart(trial: Trial, tell: Tell) -> list[Trained]:
    """`learn` for another process: what came of it without the team, which stays there."""
    return [_without_team(learn(trial, tell))]


def learn_alike(seed: int, steps: int, tell: Tell) -> list[Trained]:
    """The method for `steps` in the maze, and then the baselines, each for as many tokens as it sampled."""
    runs = learn_apart(maze(METHOD, seed, steps), tell)
    budget = int(runs[0].curve["tokens"].iloc[-1])
    return runs + [run for baseline in BASELINES for run in learn_apart(maze(baseline, seed, budget=budget), tell)]


def _without_team(run: Trained) -> Trained:
    mazes = run.trial.env["name"] == ENV
    shown = before_and_after(make_env(**run.trial.env), run.team) if mazes else None
    return replace(run, team=None, shown=shown)


def before_and_after(env: Env, trained: Team) -> tuple[Task, pd.DataFrame, pd.DataFrame]:
    """A held-out maze that the untrained team fails and the trained one solves, with both episodes.

    Of 64, the one with the longest way that was walked without a wasted step; if there is none, the first maze.
    """
    tasks = env.tasks(64, "test", seed=1)
    untrained, learned = (rollout(env, team, tasks, episodes(1), seed=1) for team in (make_team(env), trained))
    solved = [turns.groupby("task")["success"].any() for turns in (untrained, learned)]
    won = [task for task in tasks if solved[1][task.id] and not solved[0][task.id]]
    straight = [task for task in won if len(way(env, task, learned)) - 1 == _least(env, task)]
    task = max(straight, key=lambda task: _least(env, task), default=tasks[0])
    return task, *(turns[turns["task"] == task.id] for turns in (untrained, learned))


def _least(env: Env, task: Task) -> int:
    """Moves from the start to the goal."""
    maze = env.start(task).maze
    return distances(maze)[maze.start]
