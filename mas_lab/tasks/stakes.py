"""Stakes: a teaching task in which an agent's own standard deviation per task harms it.

In most tasks the helper's reward does not depend on its answer: only the number of its words changes it, by a small
cost. Dividing by the deviation of each task makes this cost as important as a right answer is in the other tasks. So
the helper learns to answer without working. One deviation per agent over the whole batch (`own_pooled`) keeps the cost
small. What a chain is, and how its answers are read, is in `chains`.
"""

from dataclasses import dataclass, replace

from mas_lab.tasks.shared.chains import WORDS, ChainState, ChainTask

HIGH = ("0", "1", "2")
"""A task is high if the value of its second chain ends with one of these digits."""
RIGHT_HELP, LOW_HELP, WORD_COST = 0.3, 0.5, 0.004
"""Team reward of the helper for a right answer in a high task, for any answer in another task, and its cost per
word."""


@dataclass(frozen=True)
class Stakes(ChainTask):
    """The solver answers a chain of digits; if it is wrong, the helper answers it too, and the episode ends.

    A task has high stakes if its second chain has the value 0, 1 or 2. In any other task, the clerk answers the second
    chain after a right solver.

    Rewards: `team_reward` = [right] for the clerk, and for the solver at high stakes; for the helper it is 0.3 [right]
    at high stakes and 0.5 otherwise, less 0.004 for each word. `local_reward` = [right]. Success is a right answer at
    the end.

    In words, a value that ends with 0, 1 or 2 means high stakes. An answer that cannot be read is invalid, and wrong.
    To study the effect of a baseline on the helper alone, freeze the other agents: `Team(…, frozen=("solver",
    "clerk"))`.
    """

    name = "stakes"
    order = "solver → clerk? or helper?"
    agents = ("solver", "clerk", "helper")
    words = (*WORDS, "tried", "none", "solve", "answer")
    chains_per_task = 2

    def posed(self, state: ChainState) -> str:
        return state.problems[self.agents[state.place] == "clerk"]

    def result(self, state: ChainState, right: bool, text: str, answer: str | None) -> tuple[ChainState, float, bool]:
        agent, high = self.agents[state.place], self.value(state.problems[1])[-1] in HIGH
        if agent == "helper":
            team = (RIGHT_HELP * right if high else LOW_HELP) - WORD_COST * len(text.split())
            return replace(state, done=True), team, right
        if agent == "solver" and not right:
            return replace(state, place=2, tried=answer or "none"), 0.0, False
        if agent == "solver" and not high:
            return replace(state, place=1), 0.0, False
        return replace(state, done=True), float(right), right
