"""Environments that only the studies use: a setting of our own, and a quiz that asks every agent.

A study names them by file and class, as in `env: {name: "settings:SpotCheck"}`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains

CHECKED = ("7", "8", "9")
"""Answers of the solver that are checked."""


@dataclass(frozen=True)
class State:
    problem: str
    speaker: str | None = "solver"


@dataclass(frozen=True)
class SpotCheck(chains.ChainTask):
    """A solver answers a chain. Where it answers 7, 8 or 9, a checker answers the same chain in its place.

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
        return [{"role": "user", "content": f"solve {state.problem}"}]

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        answer = chains.read_answer(actions[agent])
        right = answer == str(chains.value(state.problem))
        called = agent == "solver" and answer in CHECKED
        after = replace(state, speaker="checker" if called else None)
        success = right and not called
        return Step(after, float(success), {agent: float(right)}, {agent: answer is not None}, success, not called)


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
        wrong = (chains.value(chain) + random.Random(chain).randrange(1, 10)) % 10
        tried = f"tried {wrong} " if agent in self.helpers else ""
        return [{"role": "user", "content": f"{tried}solve {chain}"}]

    def step(self, state: tuple[str, ...], actions: Mapping[str, str]) -> Step:
        answers = {agent: chains.read_answer(actions[agent]) for agent in self.agents}
        right = {agent: float(answers[agent] == str(chains.value(chain)))
                 for agent, chain in zip(self.agents, state, strict=True)}  # fmt: skip
        share = sum(right.values()) / len(right)
        valid = {agent: answer is not None for agent, answer in answers.items()}
        return Step(None, share, right, valid, share == 1, True)
