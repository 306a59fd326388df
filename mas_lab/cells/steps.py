"""An environment's step within a rollout: what broke is named by its place, what breaks the contract is refused.

Leaves out: the whole contract (`check_env` plays it through).
"""

import math
from numbers import Real
from typing import Any

from mas_lab.cells.game import Act, Node
from mas_lab.env import Env, EnvError, Step, Task


class RolloutError(RuntimeError):
    """Something broke while a team played: names the task, the agent and the turn."""


def checked(env: Env, task: Task, act: Act, take_step) -> Step:
    """The environment's step, refused where it breaks the contract of `mas_lab.env.Step`."""
    agents = [one.agent for one in act.said]
    places = ", ".join(where(task, act.at, agent) for agent in agents)
    try:
        step = take_step()
    except Exception as error:
        raise RolloutError(
            f"rollout: {type(env).__name__}.step failed for {places}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(step, Step):
        raise EnvError(f"{type(env).__name__}.step returned {type(step).__name__} for {places}; it must return a Step")
    for agent in agents:
        if agent not in step.local_rewards or agent not in step.valid:
            raise EnvError(
                f"{type(env).__name__}.step gave no local reward or no `valid` for {where(task, act.at, agent)}"
            )
        for what, reward in (("team_reward", step.team_reward), ("local_reward", step.local_rewards[agent])):
            if not _finite(reward):
                raise EnvError(f"{type(env).__name__}.step: {what} is {reward!r} for {where(task, act.at, agent)}")
    return step


def _finite(reward: Any) -> bool:
    return isinstance(reward, Real) and math.isfinite(reward)


def where(task: Task, at: Node, agent: str) -> str:
    return f"task {task.id!r}, agent {agent!r}, turn {at.turns[agent]}"
