"""An environment's step within a rollout: what broke is named by its place, what breaks the contract is refused.

Leaves out: the whole contract (`check_env` plays it through).
"""

import math
from numbers import Real
from typing import Any

from mas_lab.cells.game import Act, Node
from mas_lab.env import Env, EnvError, Step, Task, not_plain


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
    for agent, reward in step.local_rewards.items():
        if agent not in env.agents:
            raise EnvError(f"{type(env).__name__}.step pays {agent!r} for {places}; the env plays {env.agents}")
        if not _finite(reward):
            raise EnvError(f"{type(env).__name__}.step: local_reward is {reward!r} for {where(task, act.at, agent)}")
    if not _finite(step.team_reward):
        raise EnvError(f"{type(env).__name__}.step: team_reward is {step.team_reward!r} for {places}")
    problem = not_plain(step.info, "info")
    if problem:
        raise EnvError(f"{type(env).__name__}.step: {problem}; for {places}")
    return step


def _finite(reward: Any) -> bool:
    return isinstance(reward, Real) and math.isfinite(reward)


def where(task: Task, at: Node, agent: str) -> str:
    return f"task {task.id!r}, agent {agent!r}, turn {at.turns[agent]}"
