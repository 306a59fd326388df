"""Cell 1, `rollout`: who said what, and what it earned.

Leaves out: how an instance is explored (`plans`), who asks the policies and the environment (`driver`), and how tokens
are drawn (the back end's engine).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pandas as pd

from mas_lab.cells.driver import Driver
from mas_lab.cells.game import Game, Plan
from mas_lab.cells.plans import episodes
from mas_lab.cells.steps import RolloutError
from mas_lab.cells.workers import Workers, require_limit
from mas_lab.env import Env, EnvError, Task, unwritable
from mas_lab.progress import progress_bar
from mas_lab.table import ROLLOUT
from mas_lab.team import Team

__all__ = ["RolloutError", "rollout"]


def rollout(
    env: Env,
    team: Team,
    tasks: Sequence[Task],
    plan: Plan = episodes(1),  # noqa: B008 - a frozen value
    seed: int = 0,
    max_turns: int | None = None,
    workers: int | None = None,
    step: int = 0,
    step_timeout: float | None = None,
) -> pd.DataFrame:
    """Let `team` play `tasks` by `plan`: a table with a row per model call, columns `mas_lab.table.ROLLOUT`.

    `max_turns` overrides the environment's bound on the turns of one agent; `workers` runs `env.step` in that many
    threads, and `step_timeout` bounds the seconds of each such step: RolloutError names the task and the turn of one
    that takes longer. Its thread is left behind (none can be ended), nobody waits for it, and its answer is not taken.

    Each completion is drawn by (seed, step, node, agent, candidate) alone, so that a draw does not depend on
    what else is in the batch. All of it is played with the same weights: an update in another thread waits. What the
    environment's steps tell in `info` is a column where any of them told anything.
    Raises ValueError where the team samples by `top_p` or `top_k`: its log-probabilities could not be trained on.
    """
    _refuse_cut_distributions(env, team)
    return played(env, team, tasks, plan, seed, max_turns, workers, step, step_timeout)


def played(
    env: Env,
    team: Team,
    tasks: Sequence[Task],
    plan: Plan,
    seed: int,
    max_turns: int | None = None,
    workers: int | None = None,
    step: int = 0,
    step_timeout: float | None = None,
) -> pd.DataFrame:
    """`rollout` by whatever distribution the team samples from: for what is scored and never trained on."""
    require_limit(step_timeout, workers, "rollout")
    env = with_max_turns(env, max_turns)
    refuse_strangers(env.agents, team, tasks, "rollout")
    if hasattr(env, "played"):
        rows, seconds = env.played(team, tasks, plan, seed, step)
        getattr(plan, "seconds", {}).update(seconds)
        return as_table(rows, step)
    games = [Game(env, task, episode) for task, episode in instances(tasks, plan)]
    threads = Workers(workers, step_timeout) if workers else nullcontext()
    with threads as steppers, progress_bar(len(games), "rollout", "episode") as bar:
        Driver(env, team, steppers, seed, step, bar).play([(game, plan(game)) for game in games])
    return as_table([row for game in games for row in game.rows], step)


def instances(tasks: Sequence[Task], plan: Plan) -> Iterator[tuple[Task, str]]:
    """Each task as often as the plan plays it, with the name of that episode."""
    for task in tasks:
        for number in range(plan.instances):
            yield task, f"{task.id}#{number}" if plan.instances > 1 else task.id


def as_table(rows: Sequence[Mapping[str, Any]], step: int) -> pd.DataFrame:
    """What games recorded, with the columns `mas_lab.table.ROLLOUT`; `info` where any row was told anything."""
    told = any(row["info"] for row in rows)
    columns = [name for name in ROLLOUT if name != "info" or told]
    return pd.DataFrame([{"step": step, **row} for row in rows], columns=columns)


def with_max_turns(env: Env, max_turns: int | None) -> Env:
    """The env with another bound on the turns of one agent, or as it is for None."""
    if max_turns is None:
        return env
    if max_turns < 1:
        raise ValueError(f"rollout: max_turns={max_turns} leaves nobody a turn")
    if is_dataclass(env) and any(f.name == "max_turns" and f.init for f in fields(env)):
        return replace(env, max_turns=max_turns)
    try:
        env = copy(env)
        env.max_turns = max_turns
    except AttributeError:
        raise ValueError(
            f"rollout: {type(env).__name__} has a fixed max_turns={env.max_turns}; make it a dataclass field"
        ) from None
    return env


def _refuse_cut_distributions(env: Env, team: Team) -> None:
    for agent in env.agents:
        sampling = team.sampling.get(agent)
        if sampling is not None and (sampling.top_p < 1 or sampling.top_k is not None):
            raise ValueError(
                f"rollout: agent {agent!r} samples with top_p={sampling.top_p}, top_k={sampling.top_k}: its "
                "log-probabilities would not be those of the full distribution, which training moves; leave both out, "
                "or score with evaluate(..., sampling=...)"
            )


def refuse_strangers(agents: Sequence[str], team: Team, tasks: Sequence[Task], who: str) -> None:
    """Raises ValueError where one of `agents` has no policy, or a task stands twice; `who` says so."""
    missing = [agent for agent in agents if agent not in team]
    if missing:
        raise ValueError(
            f"{who}: agent {missing[0]!r} has no policy; the env plays {tuple(agents)}, the team has {list(team)}"
        )
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        twice = next(task_id for task_id in ids if ids.count(task_id) > 1)
        raise ValueError(f"{who}: task {twice!r} stands twice among the tasks; ask a plan for more instances instead")
    for task_id in ids:
        if problem := unwritable(str(task_id)):
            raise EnvError(f"{who}: the id of task {task_id!r} has {problem}, which no file holds; give another id")
