"""Paid help: a teaching task in which one number decides whether a global baseline harms.

A helper is called only if the solver was wrong. It can earn at most `pay`, which is less than the solver earns alone.
So all its rewards lie below the mean over all agents, far below if `pay` is small. A global baseline then punishes
whatever it says, although its gradient norms hardly grow. With `pay=1.0` the helper can earn as much as the solver, and
the harm is gone. The task has only a pocket size. What a chain is, and how its answers are read, is in `chains`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains


@dataclass(frozen=True)
class State:
    problem: str
    tried: str | None = None
    """Solver's answer: a digit, or "none" if it could not be read. `None`: the solver has not answered yet."""
    done: bool = False


@dataclass(frozen=True)
class PaidHelp(chains.ChainTask):
    """The solver answers a chain of digits; if it is wrong, the helper sees this answer and answers too.

    `team_reward` is 1 for a right answer of the solver and `pay` for a right answer of the helper, so `max_return` = 1.
    Success is a right answer in the end. `local_reward` is 1 for a right answer. An answer that cannot be read is
    invalid, and wrong. To study the effect of a baseline on the helper alone, freeze the solver: `Team(…,
    frozen="solver")`.
    """

    pay: float = 0.2
    """Team reward for a right answer of the helper, above 0 and at most 1."""

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
