"""Environments that only the studies use: a setting of our own, and a quiz that asks every agent.

A study names them by file and class, as in `env: {name: "settings:SpotCheck"}`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.plan_path import PlanPath
from mas_lab.tasks.shared import chains

CHECKED = ("7", "8", "9")
"""Last digits of the solver's answers that are checked."""


@dataclass(frozen=True)
class State:
    problem: str
    speaker: str | None = "solver"


@dataclass(frozen=True)
class SpotCheck(chains.ChainTask):
    """A solver answers a chain. Where its answer ends with 7, 8 or 9, a checker answers the same chain in its place.

    The checker is called rarely and on a condition, but the condition hardly shifts its rewards: 1 for a right last
    answer, 0 for a wrong one, for both agents. So this is a negative control for baselines.
    """

    name = "spot_check"
    order = "solver → checker?"
    agents = ("solver", "checker")

    def start(self, task: Task) -> State:
        return State(task.data["problem"])

    def acting(self, state: State) -> tuple[str, ...]:
        return (state.speaker,) if state.speaker else ()

    def observe(self, state: State, agent: str) -> list[Message]:
        return self.prompt(state.problem)

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        answer = self.read_answer(actions[agent])
        right = answer == self.value(state.problem)
        called = agent == "solver" and answer is not None and answer[-1] in CHECKED
        after = replace(state, speaker="checker" if called else None)
        success = right and not called
        return Step(after, float(success), {agent: float(right)}, {agent: answer is not None}, success, not called)


@dataclass(frozen=True)
class AtTheGoal(PlanPath):
    """Plan-Path that pays 1 at the goal, and nothing on the way."""

    max_return = 1.0

    def step(self, state: Any, actions: Mapping[str, str]) -> Step:
        step = super().step(state, actions)
        return replace(step, team_reward=float(step.success))


@dataclass(frozen=True)
class Progress:
    chains: tuple[str, ...]
    right: int = 0
    turn: int = 0


@dataclass(frozen=True)
class Row(chains.ChainTask):
    """Two agents answer a row of chains in turn; the team earns the share of right answers.

    The same task for any length, so that only the number of turns differs: turns do not depend on each other, except
    that each agent is told how many answers were right so far. Success: more than half are right.
    """

    length: int = 4
    """Number of chains, 2 to 8."""
    dense: bool = False
    """False: the team earns everything after the last answer. True: after each answer."""

    sizes = ("pocket",)
    name = "row"
    order = "first → second → first ..."
    agents = ("first", "second")
    words = (*chains.WORDS, "others", "solve", "answer")

    @property
    def max_turns(self) -> int:
        return self.length // 2

    @property
    def chains_per_task(self) -> int:
        return self.length

    def start(self, task: Task) -> Progress:
        return Progress(tuple(task.data["problems"]))

    def acting(self, state: Progress) -> tuple[str, ...]:
        return () if state.turn == self.length else (self.agents[state.turn % 2],)

    def observe(self, state: Progress, agent: str) -> list[Message]:
        return [{"role": "user", "content": f"others {state.right} solve {state.chains[state.turn]}"}]

    def step(self, state: Progress, actions: Mapping[str, str]) -> Step:
        ((agent, said),) = actions.items()
        answer = chains.read_answer(said)
        right = answer == str(chains.value(state.chains[state.turn]))
        after = replace(state, right=state.right + right, turn=state.turn + 1)
        done = after.turn == self.length
        earned = (right if self.dense else after.right * done) / self.length
        success = 2 * after.right > self.length
        return Step(after, earned, {agent: float(right)}, {agent: answer is not None}, success, done)


@dataclass(frozen=True)
class Quiz(chains.ChainTask):
    """Ask every agent a chain of its own, outside the order of any episode: how often is each right?

    `agents`: who is asked. `helpers`: who of them is told a wrong answer first, as a helper is.
    """

    agents: tuple[str, ...] = ("stage_1",)
    helpers: tuple[str, ...] = ()

    name = "quiz"
    order = "all at once"
    words = (*chains.WORDS, "tried", "none", "solve", "answer")

    @property
    def chains_per_task(self) -> int:
        return len(self.agents)

    def start(self, task: Task) -> tuple[str, ...] | None:
        return (task.data["problem"],) if len(self.agents) == 1 else tuple(task.data["problems"])

    def acting(self, state: tuple[str, ...] | None) -> tuple[str, ...]:
        return self.agents if state else ()

    def observe(self, state: tuple[str, ...], agent: str) -> list[Message]:
        chain = state[self.agents.index(agent)]
        value, rng = int(self.value(chain)), random.Random(chain)
        wrong = value + rng.choice((-10, -1, 1, 10)) if self.in_words else (value + rng.randrange(1, 10)) % 10
        return self.prompt(chain, str(wrong) if agent in self.helpers else None)

    def step(self, state: tuple[str, ...], actions: Mapping[str, str]) -> Step:
        answers = {agent: self.read_answer(actions[agent]) for agent in self.agents}
        right = {agent: float(answers[agent] == self.value(chain))
                 for agent, chain in zip(self.agents, state, strict=True)}  # fmt: skip
        share = sum(right.values()) / len(right)
        valid = {agent: answer is not None for agent, answer in answers.items()}
        return Step(None, share, right, valid, share == 1, True)
