"""Paid help: a teaching task in which one number decides whether a global baseline harms.

A helper is called only if the solver was wrong. It can earn at most `pay`, which is less than the solver earns alone.
So all its rewards lie below the mean over all agents, far below if `pay` is small. A global baseline then punishes
whatever it says, although its gradient norms hardly grow. With `pay=1.0` the helper can earn as much as the solver, and
the harm is gone. What a chain is, and how its answers are read, is in `chains`.
"""

from dataclasses import dataclass, replace

from mas_lab.tasks.shared.chains import WORDS, ChainState, ChainTask


@dataclass(frozen=True)
class PaidHelp(ChainTask):
    """The solver answers a chain of digits; if it is wrong, the helper sees this answer and answers too.

    Rewards: `team_reward` = [the solver is right] + `pay` [the helper is right], with `pay` = 0.2. `local_reward` =
    [right]. Success is a right answer in the end.

    An answer that cannot be read is invalid, and wrong. To study the effect of a baseline on the helper alone, freeze
    the solver: `Team(…, frozen="solver")`.
    """

    pay: float = 0.2
    """Team reward for a right answer of the helper, above 0 and at most 1."""

    name = "paid_help"
    order = "solver → helper?"
    agents = ("solver", "helper")
    words = (*WORDS, "tried", "none", "solve", "answer")

    def __post_init__(self):
        super().__post_init__()
        self.require("pay", 0 < self.pay <= 1, "help is worth more than 0 and at most 1")

    def result(self, state: ChainState, right: bool, text: str, answer: str | None) -> tuple[ChainState, float, bool]:
        helps = state.place == 1
        after = replace(state, place=1, tried=state.tried or answer or "none", done=right or helps)
        return after, (self.pay if helps else 1.0) * right, right
