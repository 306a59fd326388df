"""An environment within a rollout: what it raises is named by its place, what breaks the contract is refused.

Leaves out: the whole contract (`check_env` plays it through).
"""

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from mas_lab.env import Env, EnvError, Step, Task, not_plain

if TYPE_CHECKING:
    from mas_lab.cells.game import Act, Node


class RolloutError(RuntimeError):
    """Something broke while a team played: names the task, the agent and the turn."""


class naming:
    """What the environment's `part` raises inside, with its `place`, which is asked for only then."""

    def __init__(self, env: Env, part: str, place: Callable[[], str]):
        self.env, self.part, self.place = env, part, place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind, error: BaseException | None, trace) -> None:
        if isinstance(error, Exception):
            raise RolloutError(
                f"rollout: {type(self.env).__name__}.{self.part} failed for {self.place()}: "
                f"{type(error).__name__}: {error}"
            ) from error


def checked(env: Env, task: Task, act: "Act", take_step) -> Step:
    """The environment's step, refused where it breaks the contract of `mas_lab.env.Step`."""
    agents = [one.agent for one in act.said]
    step_of = f"{type(env).__name__}.step"

    def places() -> str:
        return ", ".join(where(task, act.at, agent) for agent in agents)

    with naming(env, "step", places):
        step = take_step()
    if not isinstance(step, Step):
        raise EnvError(f"{step_of} returned {type(step).__name__} for {places()}; it must return a Step")
    for name in ("local_rewards", "valid", "info"):
        if not isinstance(getattr(step, name), Mapping):
            raise EnvError(f"{step_of}: {name} is {getattr(step, name)!r:.200} for {places()}; give a dict")
    for agent in agents:
        if agent not in step.local_rewards or agent not in step.valid:
            raise EnvError(f"{step_of} gave no local reward or no `valid` for {where(task, act.at, agent)}")
    for agent, reward in step.local_rewards.items():
        if agent not in env.agents:
            raise EnvError(f"{step_of} pays {agent!r} for {places()}; the env plays {env.agents}")
        if not _finite(reward):
            raise EnvError(f"{step_of}: local_reward is {reward!r} for {where(task, act.at, agent)}")
    if not _finite(step.team_reward):
        raise EnvError(f"{step_of}: team_reward is {step.team_reward!r} for {places()}")
    if not all(map(_is_flag, (step.success, step.done, *(step.valid[agent] for agent in agents)))):
        flags = {"success": step.success, "done": step.done}
        flags |= {f"valid[{agent!r}]": step.valid[agent] for agent in agents}
        name, flag = next(one for one in flags.items() if not _is_flag(one[1]))
        raise EnvError(f"{step_of}: {name} is {flag!r} for {places()}; give True or False")
    problem = not_plain(step.info, "info")
    if problem:
        raise EnvError(f"{step_of}: {problem}; for {places()}")
    return step


def _finite(reward: Any) -> bool:
    try:
        return isinstance(reward, Real) and math.isfinite(reward)
    except OverflowError:  # a whole number beyond every float
        return False


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def where(task: Task, at: "Node", agent: str) -> str:
    return f"task {task.id!r}, agent {agent!r}, turn {at.turns[agent]}"
