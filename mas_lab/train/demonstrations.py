"""Play the episodes that an env demonstrates: in each turn, a function answers in place of a policy.

Leaves out: learning from them (`imitate`, and `pocket` for a model from nothing).
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from mas_lab.env import Env, EnvError, Message, Task, Tools, tools_of
from mas_lab.tool_calls import as_action

Speaker = Callable[[Any, str, list[Message], str], str]
"""A function (state, agent, messages, place) -> answer."""


class Demonstration(NamedTuple):
    """One demonstrated answer."""

    messages: list[Message]
    """The messages that the agent saw."""
    text: str
    """Its answer."""
    tools: Tools = ()
    """The tools that it was offered."""
    agent: str = ""
    """Its name."""
    place: str = ""
    """Env, task, agent and turn, for error messages."""


def require_demonstrate(env: Env, cell: str) -> None:
    """Raise EnvError, naming the `cell`, if the env has no `demonstrate`."""
    if not callable(getattr(env, "demonstrate", None)):
        raise EnvError(
            f"{cell}: {type(env).__name__} has no `demonstrate(self, state, agent, rng) -> str`; write one that "
            "says what `agent` could well answer in `state`: mostly right, and wrong now and then by rng.random()"
        )


def speaker(env: Env, rng: random.Random) -> Speaker:
    """Return a speaker by the env's own `demonstrate`; EnvError names task, agent and turn if that gave no text."""

    def speak(state: Any, agent: str, messages: list[Message], place: str) -> str:
        try:
            text = env.demonstrate(state, agent, rng)
        except Exception as error:
            raise EnvError(f"{place}: demonstrate failed: {type(error).__name__}: {error}") from error
        if not isinstance(text, str):
            raise EnvError(f"{place}: demonstrate gave {text!r:.200}; give a str")
        return text

    return speak


def play(env: Env, task: Task, speak: Speaker) -> Iterator[Demonstration]:
    """Yield the messages and the answer of every turn of one episode."""
    state, done, turns = env.start(task), False, Counter()
    while not done:
        actions = {}
        for agent in env.acting(state):
            messages = env.observe(state, agent)
            place = f"env {name_of(env)!r}, task {task.id!r}, agent {agent!r}, turn {turns[agent]}"
            text = speak(state, agent, messages, place)
            actions[agent] = as_action(env, agent, text, sum(turns.values()))
            turns[agent] += 1
            yield Demonstration(messages, text, tools_of(env, agent), agent, place)
        step = env.step(state, actions)
        state, done = step.state, step.done


def name_of(env: Env) -> str:
    return getattr(env, "name", type(env).__name__)
