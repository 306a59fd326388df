"""A game for the notebooks, on pocket weights that exist.

Leaves out: games of other libraries (`tasks.textarena`), and tasks that are no games (`tasks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import chains


@dataclass(frozen=True)
class State:
    problem: str
    done: bool = False


@dataclass(frozen=True)
class Race(chains.ChainTask):
    """Game in which `left` and `right` answer the same chain of digits at once, without seeing each other.

    An agent wins if only its answer is right. `team_reward` is 0, since the game is `competitive`. `local_reward` is 1
    for the winner, -1 for the loser, and 0 in a draw. `success` means that left wins. An answer that cannot be read is
    invalid, and wrong.
    """

    name = "race"
    paper = "a game of the course"
    order = "left + right"
    agents = ("left", "right")
    competitive = True

    def start(self, task: Task) -> State:
        return State(task.data["problem"])

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else self.agents

    def observe(self, state: State, agent: str) -> list[Message]:
        return self.prompt(state.problem)

    def step(self, state: State, actions: Mapping[str, str]) -> Step:
        answers = {agent: self.read_answer(actions[agent]) for agent in self.agents}
        left, right = (answers[agent] == self.value(state.problem) for agent in self.agents)
        won = float(left) - float(right)
        valid = {agent: answer is not None for agent, answer in answers.items()}
        info = {"left": left, "right": right}
        return Step(State(state.problem, True), 0.0, {"left": won, "right": -won}, valid, won > 0, True, info)
