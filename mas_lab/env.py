"""The environment in which a team acts: its tasks, states and steps, and the contract that it keeps.

An environment is pure: `step` takes a state and returns a new one. A tree of candidates therefore needs no copies, and
steps may run in threads. One env is one file with the roles, prompts and rewards of one task. Leaves out: sampling
(`rollout`), learning (`policy`, `update`) and the check of the contract (`check`).
"""

import json
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any, NoReturn, Protocol, runtime_checkable

import numpy as np

from mas_lab.arguments import check_arguments
from mas_lab.describe import describe_options, part_name

Message = dict[str, Any]
"""One chat message, `{"role": "system" | "user" | "assistant" | "tool", "content": text}`. It may also have the keys
that chat templates know: `name`, `reasoning_content`, `tool_call_id` and `tool_calls`. `content` may be None beside
`tool_calls`."""
Tools = Sequence[Mapping[str, Any]]
"""Tools in the form of OpenAI's chat completions, `{"type": "function", "function": {"name", "description",
"parameters"}}`, where `parameters` is a JSON schema."""
LARGEST_REWARD = 1e100
"""Largest reward, whose square and whose sums are still numbers."""
ROLES = ("system", "user", "assistant", "tool")
MOST_NESTED = 100
"""Levels that plain data may nest. Python's readers and writers of JSON, and chat templates, fail at some hundreds."""
MESSAGE_KEYS = {"name": str, "reasoning_content": str, "tool_call_id": str, "tool_calls": list}
"""The further keys of a message, and the type of each value."""


NAMES: dict[str, str] = {}
"""The kit's own envs, `module:Class` -> name; `tasks` enters them."""


class EnvError(ValueError):
    """Error of an environment that breaks its contract; it names the env, the task, the agent and the step."""


@dataclass(frozen=True)
class Task:
    """One problem of an environment."""

    id: str
    """Name of the task, unique over all splits."""
    data: Mapping[str, Any]
    """Plain data (JSON types) that `start` reads."""

    def __post_init__(self):
        check_arguments(Task, vars(self))


@dataclass(frozen=True)
class Step:
    """The result of one joint action."""

    state: Any
    """The new state."""
    team_reward: float
    """Reward of the whole team for this action."""
    local_rewards: Mapping[str, float]
    """Reward of each agent that acted. An entry for another agent is added to that agent's last call before; only whole
    episodes (`episodes(n)`) can do this."""
    valid: Mapping[str, bool]
    """For each agent that acted: True if the environment understood its output."""
    success: bool
    """True if the goal of the episode stands after this action."""
    done: bool
    """True if the episode ends with this action."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Plain data (JSON types) for credits and instruments; it becomes the column `info`."""


@runtime_checkable
class Env(Protocol):
    """The contract of an environment.

    An env may also have:
    - `demonstrate(state, agent, rng) -> str`: imperfect play. `check_env` tries it, and `make_pocket` teaches it.
    - `tools(agent) -> list`: the tools that an agent may call, in OpenAI's form (`Tools`); the same in each turn. Its
      action is then the assistant's message, a dict with `content` and, if it made calls, `tool_calls` with `id` and
      `function`. `step` runs the tools, and `observe` shows their results as messages of the role "tool". A malformed
      call arrives as plain content, and the column `call_status` names the defect. `demonstrate` writes calls as Qwen3
      does.
    - `splits_meet = True`: the env has few tasks, and `train` and `test` share some of them. Scores on `test` then say
      nothing about tasks that were not trained on.
    - `competitive = True`: its agents play against each other. `team_reward` is then always 0, and an agent earns its
      `local_rewards`, which need not add up to 0 (`own_return()` is the credit for them). `max_return` bounds the sum
      of each agent. `success` says at the end whether the first of `agents` has earned more than any other. `evaluate`
      then counts its wins, and with `swap` the wins of the other seat. A draw is nobody's success.
    - An env that plays whole episodes itself, as a program behind the gateway does, registers a runner with
      `cells.driver.runner_for` and a check with `check_env` (`contrib.programs.program`).
    - `enough`: the team reward at which `joint` ends a branch, or all branches of a node (see its `stop`).
    """

    agents: tuple[str, ...]
    """Names of the agents in acting order."""
    max_turns: int
    """Most turns that one agent has in an episode."""
    max_return: float
    """Upper bound of the sum of `team_reward` over an episode."""
    pocket: str
    """Name of the pocket model that plays the env."""
    max_tokens: int | Mapping[str, int]
    """Most tokens of a completion: one number, or one per agent."""

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return tasks of a split.

        Args:
            n: Number of tasks.
            split: "train" or "test".
            seed: Seed of the choice; equal arguments give equal tasks.

        Returns:
            `n` tasks with different ids.
        """

    def start(self, task: Task) -> Any:
        """Return the first state of an episode.

        Args:
            task: The problem.

        Returns:
            A state, of any type.
        """

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the agents that act next.

        Args:
            state: The present state.

        Returns:
            One or more names of `agents`. Several agents act at the same time, without seeing each other.
        """

    def observe(self, state: Any, agent: str) -> list[Message]:
        """Return the prompt of an agent.

        Args:
            state: The present state.
            agent: The agent that is about to act.

        Returns:
            Chat messages.
        """

    def step(self, state: Any, actions: Mapping[str, Any]) -> Step:
        """Return the result of a joint action; `state` stays unchanged.

        Args:
            state: The present state.
            actions: Text of each agent that acts; a message if the env has `tools` for it.

        Returns:
            The new state, the rewards and the end of the episode.
        """


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
    for agent in step.local_rewards.keys() - set(env.agents):
        refuse(f"it pays {agent!r}", f"the env plays {env.agents}")
    for agent, reward in ((None, step.team_reward), *step.local_rewards.items()):
        if not (isinstance(reward, Real) and abs(reward) <= LARGEST_REWARD):
            name = "team_reward" if agent is None else f"local_rewards[{agent!r}]"
            refuse(f"{name} is {reward!r:.80}", f"give a number of at most {LARGEST_REWARD:g}, positive or negative")
    valid = [(f"valid[{agent!r}]", step.valid[agent]) for agent in agents]
    for name, flag in (("success", step.success), ("done", step.done), *valid):
        if not isinstance(flag, bool | np.bool_):
            refuse(f"{name} is {flag!r}", "give True or False")
    if problem := not_plain(step.info, "info"):
        raise EnvError(f"{type(env).__name__}.step: {problem}; for {place}")
    return step


def spec(env: Env) -> dict[str, Any]:
    """Return an env as plain data: `{"name": ..., **options}`.

    For an env in `ENVS`, `make_env(**spec(env))` makes an equal one. Your own env is named `module:Class`, as in a
    config.

    Raises:
        TypeError: The env has attributes and is no dataclass.
    """
    place = part_name(env, ":")
    return {"name": NAMES.get(place, place), **describe_options(env, "env", ":")}


def tools_of(env: Env, agent: str) -> Tools:
    """Return the tools that an env offers to an agent; none for an env without `tools`."""
    return env.tools(agent) if hasattr(env, "tools") else ()


def transcript(messages: Sequence[Message], tools: Tools = ()) -> str:
    """Return chat messages as one text for people: a line `user: ...` for each, tools and tool calls as JSON."""
    offered = [f"tools: {_json([tool['function'] for tool in tools])}"] if tools else []
    return "\n".join([*offered, *map(_line, messages)])


def _line(message: Message) -> str:
    about = [str(message[key]) for key in ("name", "tool_call_id") if key in message]
    calls = message.get("tool_calls")
    parts = [message.get("reasoning_content"), message["content"], None if calls is None else _json(calls)]
    return f"{' '.join([message['role'], *about])}: {' '.join(part for part in parts if part is not None)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def no_message(message: Any) -> str:
    """Return an error message if `message` is no chat message, else an empty string."""
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return f"{message!r} has no role; give {{'role': {' | '.join(map(repr, ROLES))}, 'content': text}}"
    unknown = sorted(map(str, set(message) - {"role", "content"} - set(MESSAGE_KEYS)))
    if unknown:
        return f"a message has the key {unknown[0]!r}; chat templates take role, content, {', '.join(MESSAGE_KEYS)}"
    silent = message.get("content", "") is None and message.get("tool_calls")
    if not silent and not isinstance(message.get("content"), str):
        return f"a message's content is {message.get('content')!r}; give text (None only beside tool_calls)"
    for key, kind in MESSAGE_KEYS.items():
        if key in message and not isinstance(message[key], kind):
            return f"a message's {key} is {message[key]!r}; give a {kind.__name__}"
    found = (not_plain(message.get(key), f"a message's {key}") for key in ("content", *MESSAGE_KEYS))
    return next(filter(None, found), "")


def not_plain(value: Any, name: str, depth: int = MOST_NESTED) -> str:
    """Return an error message if `value`, called `name`, is not plain data (JSON types), else an empty string.

    It may nest `depth` levels.
    """
    if isinstance(value, Mapping | list) and not depth:
        return f"{name:.80} nests more than {MOST_NESTED} levels deep; make it flatter"
    if isinstance(value, Mapping):
        strange = [key for key in value if not isinstance(key, str) or unwritable(key)]
        inner = (not_plain(part, f"{name}[{key!r}]", depth - 1) for key, part in value.items())
        return f"{name} has the key {strange[0]!r}; keys are UTF-8 text" if strange else next(filter(None, inner), "")
    if isinstance(value, list):
        return next(filter(None, (not_plain(part, f"{name}[{i}]", depth - 1) for i, part in enumerate(value))), "")
    if isinstance(value, str) and (problem := unwritable(value)):
        return f"{name} has {problem}, which no file holds; replace it, as text.encode(errors='replace').decode() does"
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return ""
    kinds = "text, finite numbers, True, False, None, lists and dicts"
    return f"{name} is {value!r} ({type(value).__name__}); use JSON types: {kinds}"


def unwritable(text: str) -> str:
    """Return an error message if `text` has no UTF-8 form, else an empty string."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"a lone surrogate ({text[error.start]!r} at character {error.start})"
    return ""


def max_tokens(env: Env, agent: str) -> int:
    """Return the bound on the tokens of one completion of `agent`."""
    return env.max_tokens[agent] if isinstance(env.max_tokens, Mapping) else env.max_tokens


def with_max_turns(env: Env, max_turns: int | None) -> Env:
    """Return the env with another bound on the turns of one agent; `None` keeps the present bound."""
    if max_turns is None:
        return env
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
