"""Stakes: a teaching task in which an agent's own standard deviation per task harms it.

In most tasks the helper's reward does not depend on its answer: only the number of its words changes it, by a small
cost. Dividing by the deviation of each task makes this cost as important as a right answer is in the other tasks. So
the helper learns to answer without working. One deviation per agent over the whole batch (`own_pooled`) keeps the cost
small. The task has only a pocket size. What a chain is, and how its answers are read, is in `chains`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains

HIGH = ("0", "1", "2")
"""A task is high if its second chain has one of these values."""
RIGHT_HELP, LOW_HELP, WORD_COST = 0.3, 0.5, 0.004
"""Team reward of the helper for a right answer in a high task, for any answer in another task, and its cost per
word."""


@dataclass(frozen=True)
class State:
    problems: tuple[str, ...]
    """First chain for solver and helper, second chain for the clerk."""
    speaker: str | None = "solver"
    """Agent that answers now; `None`: the episode is over."""
    tried: str | None = None
    """Solver's wrong answer: a digit, or "none" if it could not be read. `None`: it was not wrong so far."""


@dataclass(frozen=True)
class Stakes(chains.ChainTask):
    """The solver answers a chain; if it is wrong, the helper answers it too, and the episode ends.

    A task is high if its second chain has the value 0, 1 or 2. If the solver is right in a high task, `team_reward` is
    1 at once. If it is right in another task, the clerk answers the second chain, and the team earns 1 if that is
    right. The helper earns 0.3 for a right answer in a high task and 0.5 for any answer in another task, less 0.004 for
    each of its words. So `max_return` = 1. Success is a right answer at the end. `local_reward` is 1 for a right
    answer. An answer that cannot be read is invalid, and wrong. To study the effect of a baseline on the helper alone,
    freeze the other agents: `Team(…, frozen=("solver", "clerk"))`.
    """

    name = "stakes"
    order = "solver → clerk? or helper?"
    agents = ("solver", "clerk", "helper")
    words = (*chains.WORDS, "tried", "none", "solve", "answer")
    chains_per_task = 2

    def start(self, task: Task) -> State:
        return State(tuple(task.data["problems"]))

    def acting(self, state: State) -> tuple[str, ...]:
        return (state.speaker,) if state.speaker else ()

    def observe(self, state: State, agent: str) -> list[Message]:
        tried = f"tried {state.tried} " if state.tried else ""
        return [{"role": "user", "content": f"{tried}solve {self._problem(state)}"}]

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        answer = chains.read_answer(actions[agent])
        right = answer == str(chains.value(self._problem(state)))
        high = str(chains.value(state.problems[1])) in HIGH
        team, after = float(right), replace(state, speaker=None)
        if agent == "helper":
            team = (RIGHT_HELP * right if high else LOW_HELP) - WORD_COST * len(actions[agent].split())
        elif agent == "solver" and not right:
            after = replace(state, speaker="helper", tried=answer or "none")
        elif agent == "solver" and not high:
            team, after = 0.0, replace(state, speaker="clerk")
        done = after.speaker is None
        return Step(after, team, {agent: float(right)}, {agent: answer is not None}, right and done, done)

    def _problem(self, state: State) -> str:
        """Return the chain that the present speaker answers."""
        return state.problems[state.speaker == "clerk"]
