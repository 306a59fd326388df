"""Hold the base classes of the tasks: options, drawn problems, agents, and chat messages.

Roles and rewards belong to each task. Prompts and word lists stand in TOML files beside the tasks.
"""

import random
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared.rows import check_split, content_id

PROMPTS = tomllib.loads(Path(__file__).parents[1].joinpath("prompts.toml").read_text(encoding="utf-8"))
"""Task -> role or purpose -> text."""
WORD_LISTS = tomllib.loads(Path(__file__).parents[1].joinpath("words.toml").read_text(encoding="utf-8"))
MOST_AGENTS = 16
LATEST = 4
"""Number of last proposals or turns that an agent reads in full. With all of them, the cost of an episode would grow
with their square. The last agent of a round sees all proposals; of earlier turns an agent reads only the outcome."""


def chat(text: str, system: str = "") -> list[Message]:
    """Return a prompt of a user's text, after a system's text if one is given."""
    user = {"role": "user", "content": text}
    return [{"role": "system", "content": system}, user] if system else [user]


def numbered(role: str, count: int) -> tuple[str, ...]:
    """Return `("solver",)`, or `("solver_1", "solver_2", ...)` if several agents play the role."""
    return (role,) if count == 1 else tuple(f"{role}_{number + 1}" for number in range(count))


def role_of(agent: str) -> str:
    """Return the role of an agent: `solver` for `solver_2`."""
    return agent.split("_")[0]


def tagged(text: str, *tags: str) -> list[tuple[str, str]]:
    """Return each text between `<tag>` and `</tag>`, in any case, with its tag: `("moves", "U R")`."""
    found = re.findall(rf"<({'|'.join(tags)})>(.*?)</\1>", text, flags=re.DOTALL | re.IGNORECASE)
    return [(tag.lower(), inner.strip()) for tag, inner in found]


THOUGHTS = re.compile(r"\A.*(?:</think(?:ing)?>|<think(?:ing)?>.*)", flags=re.DOTALL)
"""A text up to the end of its last thought, `<think>…</think>`. A thought without an end is the whole text.

The opening mark may be missing, because many chat templates write it into the prompt.
"""


class DrawnTask:
    """Base class of the tasks that draw their problems.

    A subclass has `name`, `agents` and `problems(n, split, seed)`, which gives the text that names each problem, and
    its data.
    """

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return `n` different tasks; a longer list starts with the shorter one, and no problem is in two splits."""
        check_split(split, self.name)
        return [Task(f"{self.name}-{content_id(text)}", data) for text, data in self.problems(n, split, seed)]

    def acting(self, state: Any) -> tuple[str, ...]:
        """Return the agents that act now: all of them until the episode is over."""
        return () if state.done else self.agents

    @property
    def in_words(self) -> bool:
        return self.size == "words"

    @property
    def full(self) -> bool:
        return self.size == "full"

    @property
    def pocket(self) -> str:
        """Return the name of the pocket model that plays the task: its own name, unless the class says another."""
        return self.name

    def require(self, option: str, holds: bool, remedy: str) -> None:
        """Raise ValueError, with the value of the option and the `remedy`, if a condition does not hold."""
        if not holds:
            raise ValueError(f"{self.name}: {option}={getattr(self, option)!r}; {remedy}")


@dataclass(frozen=True)
class SizedTask(DrawnTask):
    """Base class of the tasks with several sizes, two kinds of rewards, and a single agent as an option.

    A subclass has `act`, which is its `step` for answers without thoughts, `max_turns` and `roles`. It may have
    `n_agents` and `default`, the number that "pocket" means.
    """

    size: str | int = "pocket"
    """One of `sizes`, or one of `numbers`, counted in `unit`."""
    rewards: str = "ours"
    """Either "ours", or "published" for the rewards of the paper with their known defects."""
    single_agent: bool = False
    """Whether one agent, `solo`, does all the work."""
    mistakes: float = 1.0
    """How imperfect `demonstrate` is, 0 to 1."""
    grade_thoughts: bool = field(default=False, kw_only=True, metadata={"younger": True})
    """Whether thoughts, `<think>…</think>`, are a part of what an agent says. By default only the text after them is
    graded and shown to others, and a thought without an end says nothing."""

    sizes = ("pocket", "full")
    """Known sizes: "full" is for an instruction model."""
    roles = ()
    """Agents of a team, in their order."""
    numbers = range(0)
    unit = ""
    fewest = 2
    """Least number of agents of a team."""
    default = None
    choices = {}
    """Option -> its known values."""

    def __post_init__(self):
        """Raise ValueError for a bad option."""
        counted = f"{self.numbers[0]} to {self.numbers[-1]} {self.unit}".strip()
        counts = type(self.size) is int and self.size in self.numbers
        named = ", ".join(map(repr, self.sizes))
        self.require("size", counts or self.size in self.sizes, f"use {named}, or {counted}")
        for option, known in {"rewards": ("ours", "published"), **self.choices}.items():
            self.require(option, getattr(self, option) in known, f"use {' or '.join(map(repr, known))}")
        agents, fewest = getattr(self, "n_agents", None), self.fewest
        fits = agents is None or (fewest <= agents <= MOST_AGENTS and not self.single_agent)
        self.require("n_agents", fits, f"use {fewest} to {MOST_AGENTS}, or single_agent=True alone")
        self.require("max_turns", self.max_turns >= 1, "an agent needs at least one turn")
        self.require("mistakes", 0 <= self.mistakes <= 1, "use a share from 0 to 1")

    def step(self, state: Any, actions: Mapping[str, str]) -> Step:
        """Return the result of a joint action, without its thoughts."""
        if not self.grade_thoughts:
            actions = {agent: THOUGHTS.sub("", text) for agent, text in actions.items()}
        return self.act(state, actions)

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return ("solo",) if self.single_agent else self.roles

    @property
    def published(self) -> bool:
        return self.rewards == "published"

    @property
    def number(self) -> int | None:
        """Return the size if it is a number, else `default`."""
        return self.size if type(self.size) is int else self.default


@dataclass(frozen=True, kw_only=True)
class ProposalState:
    """Base class of the states of a `ProposalTask`."""

    hints: tuple[Any, ...] = ()
    """Proposals of this round (`None`: unreadable)."""
    turn: int = 0
    done: bool = False


class ProposalTask(SizedTask):
    """Base class of the tasks whose agents propose in turn, until the last one acts.

    An episode ends with success, after `max_turns` turns, or if a state is `done`. A subclass has these methods:

    - `read(text)` returns the content of an answer, or `None` if it cannot be read, and `phrased(content)` the words of
      this content, which stand in a `tag` in full size.
    - `facts(state)` returns the values of the names in the task's prompts.
    - `carry_out(state, content)` returns the state after it, the team reward, the local reward and the success.
    - `imperfect(state, rng)` returns the content of an imperfect answer to learn from.
    """

    hints_are_copied = 0.3
    """Share of the answers of `demonstrate` that copy the last proposal."""

    def acting(self, state: Any) -> tuple[str, ...]:
        return () if state.done else (self.agents[len(state.hints)],)

    def observe(self, state: Any, agent: str) -> list[Message]:
        prompts, facts, role = PROMPTS[self.name], self.facts(state), role_of(agent)
        first = 0 if agent == self.agents[-1] else max(0, len(state.hints) - LATEST)
        hints = [self.phrased(hint) if hint else "none" for hint in state.hints[first:]]
        if not self.full:
            hint_lines = " ".join(f"hint {hint}" for hint in hints)
            return chat(" ".join(prompts["pocket"].format(hints=hint_lines, agent=role, **facts).split()))
        hint_lines = [prompts["hint"].format(number=i, hint=hint) for i, hint in enumerate(hints, start=first + 1)]
        text = "\n".join([prompts["full"].format(**facts), *hint_lines])
        return chat(text, prompts["system"].format(duty=prompts[role], **facts))

    def words_of(self, text: str) -> list[str]:
        """Return the words of an answer; in full size those of its last tag, in lower case."""
        if self.full:
            _, text = [("", ""), *tagged(text, self.tag)][-1]
            text = re.sub(r"[,;]", " ", text).lower()
        return text.split()

    def written(self, content: Any) -> str:
        """Return the answer with this content."""
        return f"<{self.tag}>{self.phrased(content)}</{self.tag}>" if self.full else self.phrased(content)

    def demonstrate(self, state: Any, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from, or a copy of the last proposal."""
        readable = [hint for hint in state.hints if hint]
        copies = readable and rng.random() < self.hints_are_copied
        return self.written(readable[-1] if copies else self.imperfect(state, rng))

    def act(self, state: Any, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        content = self.read(actions[agent])
        after, team, local, success = self.carry_out(state, content)
        if agent == self.agents[-1]:
            done = after.done or success or state.turn + 1 == self.max_turns
            after = replace(after, hints=(), turn=state.turn + 1, done=done)
        else:
            after, team, success = replace(state, hints=(*state.hints, content)), 0.0, False
        return Step(after, team, {agent: local}, {agent: content is not None}, success, after.done)
