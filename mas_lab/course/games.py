"""Two games for the notebooks, on pocket weights that exist.

Leaves out: games of other libraries (`examples/textarena_env.py`), and tasks that are no games (`tasks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mas_lab.env import Message, Step
from mas_lab.tasks.shared.chains import ChainState, ChainTask

THROWS = ("rock", "paper", "scissors")
"""Throws of `RockPaperScissors`; each beats the one before it, and rock beats scissors."""
PAYOFF = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
"""What the throw of a row wins against the throw of a column, in the order of `THROWS`."""
ASKED = "1 + 1"
"""Chain of every prompt of `RockPaperScissors`. The pocket model answers it with nearly any digit."""


@dataclass(frozen=True)
class Duel(ChainTask):
    """Base class of games in which `left` and `right` act at once, without seeing each other, and the game ends.

    `team_reward` is 0, since the games are `competitive`. `local_reward` is 1 for the winner, -1 for the loser, and 0
    in a draw. `success` means that left wins. An answer that cannot be read is invalid. A subclass has `play(state,
    answers)`, which returns what left wins, and the `info` with an entry for each agent.
    """

    paper = "a game of the course"
    order = "left + right"
    agents = ("left", "right")
    competitive = True

    def acting(self, state: ChainState) -> tuple[str, ...]:
        return () if state.done else self.agents

    def step(self, state: ChainState, actions: Mapping[str, str]) -> Step:
        answers = {agent: self.read_answer(actions[agent]) for agent in self.agents}
        won, info = self.play(state, answers)
        valid = {agent: answer is not None for agent, answer in answers.items()}
        return Step(replace(state, done=True), 0.0, {"left": won, "right": -won}, valid, won > 0, True, info)


@dataclass(frozen=True)
class Race(Duel):
    """Game in which both agents answer the same chain of digits, and an agent wins if only its answer is right.

    `info` says for each agent whether its answer is right. An answer that cannot be read is wrong.
    """

    name = "race"

    def play(self, state: ChainState, answers: Mapping[str, str | None]) -> tuple[float, dict[str, Any]]:
        right = {agent: answer == self.value(self.posed(state)) for agent, answer in answers.items()}
        return float(right["left"]) - float(right["right"]), right


@dataclass(frozen=True)
class RockPaperScissors(Duel):
    """Rock, paper, scissors. The pocket model speaks in digits: 0, 3, 6, 9 are rock, 1, 4, 7 paper, 2, 5, 8 scissors.

    `info` has the throw of each agent. An answer that cannot be read is `None`, and loses against every throw.
    """

    name = "rock_paper_scissors"

    def observe(self, state: ChainState, agent: str) -> list[Message]:
        return self.prompt(ASKED)

    def play(self, state: ChainState, answers: Mapping[str, str | None]) -> tuple[float, dict[str, Any]]:
        thrown = {agent: None if answer is None else THROWS[int(answer) % 3] for agent, answer in answers.items()}
        left, right = thrown["left"], thrown["right"]
        if left is None or right is None:
            return float(left is not None) - float(right is not None), thrown
        return float(PAYOFF[THROWS.index(left), THROWS.index(right)]), thrown


def winnings(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return what shares of the three throws win on average against other shares, from -1 to 1."""
    return float(np.asarray(mine) @ PAYOFF @ np.asarray(theirs))


def exploitability(shares: Sequence[float]) -> float:
    """Return what the best throw wins on average against these shares, from 0 to 1."""
    return float((PAYOFF @ np.asarray(shares)).max())
