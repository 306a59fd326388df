"""Stakes: a teaching task in which an agent's own standard deviation per task harms it.

In most tasks the helper's reward does not depend on its answer: only the number of its words changes it, by a small
cost. Dividing by the deviation of each task makes this cost as important as a right answer is in the other tasks, so
the helper learns to answer without working. One deviation per agent over the whole batch (`own_pooled`) keeps the
cost small. Pocket only. Leaves out: what a chain is, and how an answer to one is read (`chains`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains

HIGH = ("0", "1", "2")
"""A task is high if its second chain has one of these values."""
RIGHT_HELP, LOW_HELP, WORD_COST = 0.3, 0.5, 0.004
"""What the helper earns: for a right answer in a high task, for any answer in another, and less for each word."""


@dataclass(frozen=True)
class State:
    problems: tuple[str, ...]
    """The chain of solver and helper, and the clerk's."""
    speaker: str | None = "solver"
    """Who answers now; `None`: the episode is over."""
    tried: str | None = None
    """What the solver answered, where that was wrong: a digit, or "none" for what could not be read."""


@dataclass(frozen=True)
class Stakes(chains.ChainTask):
    """The solver answers a chain. Where it is wrong, the helper answers it too, and the episode ends.

    A task is high if its second chain has the value 0, 1 or 2. `team_reward`: where the solver is right, 1 at once in a
    high task; in another the clerk answers the second chain, and the team earns 1 if that is right. The helper earns
    0.3 for a right answer in a high task, 0.5 for any answer in another, less 0.004 for each of its words. So
    `max_return` = 1. Success is a right answer at the end. `local_reward`: 1 for a right answer. An answer that cannot
    be read is invalid, and wrong. To see what a baseline does to the helper alone: `Team(…, frozen=("solver",
    "clerk"))`.
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
