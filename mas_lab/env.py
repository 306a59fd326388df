"""The world a team acts in: tasks, states and steps, and a conformance check for them.

An environment is pure: `step` takes a state and returns a new one, so that a tree of candidates needs no copies and
steps may run in threads. One env is one file: roles, prompts and rewards of one task. Leaves out: who samples
(`rollout`), who learns (`policy`, `update`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from numbers import Real
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np

from mas_lab.holds import holding, own_repr

Message = dict[str, Any]
"""`{"role": "system" | "user" | "assistant" | "tool", "content": text}`, the chat format of the field, and what chat
templates take besides: `name`, `reasoning_content`, `tool_call_id`, and `tool_calls`, beside which `content` may be
None."""
ROLES = ("system", "user", "assistant", "tool")
TOLD = {"name": str, "reasoning_content": str, "tool_call_id": str, "tool_calls": list}
"""The further keys of a message, and what stands there."""


class EnvError(ValueError):
    """An environment that breaks its contract: names the env, the task, the agent and the step."""


@dataclass(frozen=True)
class Task:
    """One problem: `id` is unique over all splits; `data` is plain data (JSON types) that `start` reads."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """What one joint action did. `valid` has one entry per agent that acted, `local_rewards` at least one.

    A reward for an agent that did not act belongs to its last call before; whole episodes alone (`episodes(n)`) can
    pay it. `info` is plain data (JSON types) for credits and instruments: the column `info`.
    """

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
    of `team_reward` over an episode; `pocket` names the pocket model that plays it; `max_tokens` bounds a completion,
    one number or one per agent.

    An env may also have
    - `demonstrate(state, agent, rng) -> str`: imperfect play: `check_env` tries it, and `make_pocket` teaches it;
    - `draw(state) -> str`: the state as a small SVG picture, where that tells more than the prompt; instruments show it
      beside each turn. It has `width`, `height`, `viewBox` and a light ground of its own, and neither script, link nor
      style sheet; `check_env` looks at it (`drawn.no_picture`);
    - `splits_meet = True`: it has few tasks, and `train` and `test` share some. Scores on `test` then say nothing
      about tasks that were not trained on;
    - `competitive = True`: its agents play against each other. `team_reward` is then 0 throughout and what an agent
      earns is its `local_rewards` (`own_return()` is the credit for it; they need not add up to 0); `max_return` bounds
      each agent's own sum; `success` says at the end whether the first of `agents` has earned more than any other, so
      that `evaluate` counts its wins, and with `swap` those of the other seat; a draw is nobody's success;
    - `played(team, tasks, plan, seed, step)`: it plays itself whole, without the five functions below, as a program
      behind the gateway does (`bridges.program`); `checked(tasks, split, seed)` is then what `check_env` returns;
    - `enough`: a team reward at which `joint` follows a branch, or all of a node's, no further (its `stop`).
    """

    agents: tuple[str, ...]
    max_turns: int
    max_return: float
    pocket: str
    max_tokens: int | Mapping[str, int]

    def tasks(self, n: int, split: str, seed: int) -> list[Task]: ...
    def start(self, task: Task) -> Any: ...
    def acting(self, state: Any) -> tuple[str, ...]: ...
    def observe(self, state: Any, agent: str) -> list[Message]: ...
    def step(self, state: Any, actions: Mapping[str, str]) -> Step: ...


OPTIONAL = {"enough": math.inf, "competitive": False, "splits_meet": False}
"""Attributes that an env may have, and what holds for one without."""


def env_option(env: Env, name: str) -> Any:
    """Return an attribute that an env may have (`OPTIONAL`)."""
    return getattr(env, name, OPTIONAL[name])


def validate_step(env: Env, step: Any, agents: Sequence[str], place: str) -> Step:
    """Return a step of the environment; raise EnvError, which names `place`, if it breaks the contract of `Step`."""

    def refuse(problem: str, remedy: str) -> NoReturn:
        raise EnvError(f"{type(env).__name__}.step: {problem} for {place}; {remedy}")

    if not isinstance(step, Step):
        refuse(f"it returned {type(step).__name__}", "return a Step")
    for name in ("local_rewards", "valid", "info"):
        if not isinstance(getattr(step, name), Mapping):
            refuse(f"{name} is {getattr(step, name)!r:.200}", "give a dict")
    for agent in agents:
        if agent not in step.local_rewards or agent not in step.valid:
            refuse(f"agent {agent!r} has no local reward or no `valid`", "give both to each agent that acted")
    rewards = {"team_reward": step.team_reward}
    rewards |= {f"local_rewards[{agent!r}]": reward for agent, reward in step.local_rewards.items()}
    for agent in step.local_rewards.keys() - set(env.agents):
        refuse(f"it pays {agent!r}", f"the env plays {env.agents}")
    for name, reward in rewards.items():
        if not _is_finite(reward):
            refuse(f"{name} is {reward!r}", "give a finite number")
    flags = {"success": step.success, "done": step.done} | {f"valid[{one!r}]": step.valid[one] for one in agents}
    for name, flag in flags.items():
        if not isinstance(flag, bool | np.bool_):
            refuse(f"{name} is {flag!r}", "give True or False")
    if problem := not_plain(step.info, "info"):
        raise EnvError(f"{type(env).__name__}.step: {problem}; for {place}")
    return step


def _is_finite(reward: Any) -> bool:
    try:
        return isinstance(reward, Real) and math.isfinite(reward)
    except OverflowError:  # a whole number beyond every float
        return False


def spec(env: Env) -> dict[str, Any]:
    """An env as plain data: `{"name": ..., **options}`; of one in `ENVS`, `make_env(**spec(env))` makes an equal one.

    One's own is called `module:Class`, as a config may name it; one that is no dataclass is told by what it `holds`.
    """
    kind = type(env)
    name = env.name if kind.__module__.startswith("mas_lab.") else class_name(kind)
    if is_dataclass(env):
        return {"name": name, **_options(env), **holding(env, _option)}
    text = own_repr(env)
    return {"name": name, **({} if text is None else {"repr": text}), **holding(env, _option)}


def class_name(kind: type) -> str:
    """`module:Class`."""
    return f"{kind.__module__}:{kind.__qualname__}"


def _options(part: Any) -> dict[str, Any]:
    return {f.name: _option(getattr(part, f.name)) for f in fields(part) if f.init}


def _option(value: Any) -> Any:
    """An option as plain data; what is none is told by its class, or by its name."""
    if isinstance(value, list | tuple):
        return [_option(part) for part in value]
    if not not_plain(value, ""):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": class_name(type(value)), **_options(value), **holding(value, _option)}
    if not callable(value) and (text := own_repr(value)) is not None:
        return text
    name, held = class_name(value if hasattr(value, "__qualname__") else type(value)), holding(value, _option)
    return {"is": name, **held} if held else name


def transcript(messages: Sequence[Message]) -> str:
    """Chat messages as one text, for people: `user: ...`, a line each; tool calls as JSON."""
    return "\n".join(map(_line, messages))


def _line(message: Message) -> str:
    about = [str(message[key]) for key in ("name", "tool_call_id") if key in message]
    said = [message.get("reasoning_content"), message["content"], _calls(message.get("tool_calls"))]
    return f"{' '.join([message['role'], *about])}: {' '.join(part for part in said if part is not None)}"


def _calls(calls: Any) -> str | None:
    return None if calls is None else json.dumps(calls, ensure_ascii=False)


def no_message(message: Any) -> str:
    """Why `message` is no chat message, in words; empty if it is one."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return f"{message!r} has no role; give {{'role': {' | '.join(map(repr, ROLES))}, 'content': text}}"
    unknown = sorted(map(str, set(message) - {"role", "content"} - set(TOLD)))
    if unknown:
        return f"a message has the key {unknown[0]!r}; chat templates take role, content, {', '.join(TOLD)}"
    silent = message.get("content", "") is None and message.get("tool_calls")
    if not silent and not isinstance(message.get("content"), str):
        return f"a message's content is {message.get('content')!r}; give text (None only beside tool_calls)"
    for key, kind in TOLD.items():
        if key in message and not isinstance(message[key], kind):
            return f"a message's {key} is {message[key]!r}; give a {kind.__name__}"
    return next(filter(None, (not_plain(message.get(key), f"a message's {key}") for key in ("content", *TOLD))), "")


def not_plain(value: Any, name: str) -> str:
    """What in `value`, which is called `name`, is not plain data (JSON types), in words; empty if nothing."""
    if isinstance(value, Mapping):
        strange = [key for key in value if not isinstance(key, str)]
        inner = (not_plain(part, f"{name}[{key!r}]") for key, part in value.items())
        return f"{name} has the key {strange[0]!r}; keys are text" if strange else next(filter(None, inner), "")
    if isinstance(value, list):
        return next(filter(None, (not_plain(part, f"{name}[{i}]") for i, part in enumerate(value))), "")
    if isinstance(value, str) and (problem := unwritable(value)):
        return f"{name} has {problem}, which no file holds; replace it, as text.encode(errors='replace').decode() does"
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return ""
    kinds = "text, finite numbers, True, False, None, lists and dicts"
    return f"{name} is {value!r} ({type(value).__name__}); use JSON types: {kinds}"


def unwritable(text: str) -> str:
    """What in `text` has no UTF-8 form, in words; empty if nothing."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"a lone surrogate ({text[error.start]!r} at character {error.start})"
    return ""
