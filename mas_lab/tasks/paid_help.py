"""Paid help: a teaching task in which one number decides whether a global baseline harms.

A helper is called only where the solver was wrong, and what it can earn, `pay`, is less than what the solver earns
alone: all its rewards lie below everybody's mean, far below where `pay` is small, and it is blamed for whatever it
says. Its gradient norms are hardly larger for that. With `pay=1.0` its stakes are the solver's, and the harm is gone.
Pocket only. Leaves out: what a chain is, and how an answer to one is read (`chains`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains


@dataclass(frozen=True)
class State:
    problem: str
    tried: str | None = None
    """What the solver answered, where that was wrong: a digit, or "none" for what could not be read."""
    done: bool = False


@dataclass(frozen=True)
class PaidHelp(chains.ChainTask):
    """The solver answers a chain of digits; where it is wrong, the helper hears what was tried, and answers too.

    `team_reward`: 1 for a right answer of the solver, `pay` for one of the helper, so `max_return` = 1. Success is a
    right answer in the end. `local_reward`: 1 for a right answer. An answer that cannot be read is invalid, and wrong.
    To see what a baseline does to the helper alone, keep the solver as it is: `Team(…, frozen="solver")`.
    """

    pay: float = 0.2
    """What help is worth, above 0 and at most 1."""

    name = "paid_help"
    order = "solver → helper?"
    agents = ("solver", "helper")
    words = (*chains.WORDS, "tried", "none", "solve", "answer")

    def __post_init__(self):
        if not 0 < self.pay <= 1:
            raise ValueError(f"paid_help: pay={self.pay!r}; help is worth more than 0 and at most 1")

    def start(self, task: Task) -> State:
        return State(task.data["problem"])

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else ("solver",) if state.tried is None else ("helper",)

    def observe(self, state: State, agent: str) -> list[Message]:
        told = "" if state.tried is None else f"tried {state.tried} "
        return [{"role": "user", "content": f"{told}solve {state.problem}"}]

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        answer = chains.read_answer(actions[agent])
        right = answer == str(chains.value(state.problem))
        worth = 1.0 if agent == "solver" else self.pay
        after = replace(state, tried=state.tried or answer or "none", done=right or agent == "helper")
        return Step(after, worth * right, {agent: float(right)}, {agent: answer is not None}, right, after.done)
