"""Finisher: a teaching task in which an agent is called only after a success, and little is at stake for it.

Only a right draft reaches the finisher, and even its wrong answer pays `low`. So all its rewards lie above the mean
over all agents, and one global baseline reinforces whatever it says. Its own baseline compares its right answers with
its wrong ones. What a chain is, and how its answers are read, is in `chains`.
"""

from dataclasses import dataclass, replace

from mas_lab.tasks.shared.chains import ChainState, ChainTask


@dataclass(frozen=True)
class Finisher(ChainTask):
    """The solver answers a chain of digits; if the answer is right, the finisher answers the same chain unseen.

    Rewards: `team_reward` = [the draft is right] (`low` + (1 - `low`) [the finisher is right]), with `low` = 0.8.
    `local_reward` = [right]. Success is a right answer of the finisher.

    An answer that cannot be read is invalid, and wrong. To study the effect of a baseline on the finisher alone, freeze
    the solver: `Team(…, frozen="solver")`.
    """

    low: float = 0.8
    """Team reward after a wrong answer of the finisher, at least 0 and below 1."""

    name = "finisher"
    order = "solver → finisher?"
    agents = ("solver", "finisher")

    def __post_init__(self):
        super().__post_init__()
        self.require("low", 0 <= self.low < 1, "a wrong ending is worth at least 0 and less than 1")

    def result(self, state: ChainState, right: bool, text: str, answer: str | None) -> tuple[ChainState, float, bool]:
        finishes = state.place == 1
        after = replace(state, place=1, done=finishes or not right)
        return after, (1.0 if right else self.low) if finishes else 0.0, right and finishes
