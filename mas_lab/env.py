"""The world a team acts in: tasks, states and steps, and a conformance check for them.

An environment is pure: `step` takes a state and returns a new one, so that a tree of candidates needs no copies and
steps may run in threads. One env is one file: roles, prompts and rewards of one task. Leaves out: who samples
(`rollout`), who learns (`policy`, `update`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

Message = dict[str, str]
"""`{"role": "system" | "user" | "assistant", "content": text}`, the chat format of the field."""


class EnvError(ValueError):
    """An environment that breaks its contract: names the env, the task, the agent and the step."""


@dataclass(frozen=True)
class Task:
    """One problem: `id` is unique over all splits; `data` is plain data (JSON types) that `start` reads."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """What one joint action did. The mappings have one entry per agent that acted."""

    state: Any
    team_reward: float
    local_rewards: Mapping[str, float]
    valid: Mapping[str, bool]
    success: bool
    done: bool
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Env(Protocol):
    """The contract. `agents` in acting order; `max_turns` counts the turns of one agent; `max_return` bounds the sum
    of `team_reward` over an episode; `pocket` names the pocket model that plays it; `max_tokens` bounds a completion.
    """

    agents: tuple[str, ...]
    max_turns: int
    max_return: float
    pocket: str
    max_tokens: int

    def tasks(self, n: int, split: str, seed: int) -> list[Task]: ...
    def start(self, task: Task) -> Any: ...
    def acting(self, state: Any) -> tuple[str, ...]: ...
    def observe(self, state: Any, agent: str) -> list[Message]: ...
    def step(self, state: Any, actions: Mapping[str, str]) -> Step: ...


def spec(env: Env) -> dict[str, Any]:
    """An env as plain data: `{"name": ..., **options}`; `make_env(**spec(env))` makes an equal one."""
    return {"name": env.name, **{f.name: getattr(env, f.name) for f in fields(env) if f.init}}
