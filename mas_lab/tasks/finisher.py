"""Finisher: a teaching task in which an agent is called only after a success, and little is at stake for it.

Only a right draft reaches the finisher, and even a wrong ending pays `low`: all its rewards lie above everybody's mean,
so that under one global baseline it is praised for whatever it says. Under its own, what is compared is a right ending
with a wrong one. Pocket only. Leaves out: what a chain is, and how an answer to one is read (`chains`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains


@dataclass(frozen=True)
class State:
    problem: str
    drafted: bool = False
    """Was the draft right?"""
    done: bool = False


@dataclass(frozen=True)
class Finisher(chains.ChainTask):
    """The solver drafts an answer to a chain of digits; where it is right, the finisher answers the same chain anew.

    `team_reward` arrives when it ends: 0 after a wrong draft, `low` after a wrong ending, 1 after a right one, so
    `max_return` = 1. Success is a right ending. `local_reward`: 1 for a right answer. The finisher does not see the
    draft. An answer that cannot be read is invalid, and wrong. To see what a baseline does to the finisher alone, keep
    the solver as it is: `Team(…, frozen="solver")`.
    """

    low: float = 0.8
    """What a wrong ending pays, at least 0 and below 1."""

    name = "finisher"
    order = "solver → finisher?"
    agents = ("solver", "finisher")

    def __post_init__(self):
        if not 0 <= self.low < 1:
            raise ValueError(f"finisher: low={self.low!r}; a wrong ending is worth at least 0 and less than 1")

    def start(self, task: Task) -> State:
        return State(task.data["problem"])

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else ("finisher",) if state.drafted else ("solver",)

    def observe(self, state: State, agent: str) -> list[Message]:
        return [{"role": "user", "content": f"solve {state.problem}"}]

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        answer = chains.read_answer(actions[agent])
        right = answer == str(chains.value(state.problem))
        success = right and agent == "finisher"
        after = replace(state, drafted=right, done=not right or success)
        team = 1.0 if success else self.low if agent == "finisher" else 0.0
        return Step(after, team, {agent: float(right)}, {agent: answer is not None}, success, after.done)
