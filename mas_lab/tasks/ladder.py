"""Ladder: a teaching task in which each agent is reached only if those before it were right.

With one global baseline, more agents with separate weights do worse. A late agent is reached only in episodes that
already go well. All its rewards lie above the mean over all agents, so even its wrong answers are reinforced. With its
own baseline it learns. If one set of weights plays all stages, stage 8 profits from what stage 1 learns, and both
baselines do well. What a chain is, and how its answers are read, is in `chains`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from mas_lab.tasks.shared.chains import ChainSequence, ChainState

AGENTS = 8


@dataclass(frozen=True)
class Ladder(ChainSequence):
    """Agents `stage_1`, `stage_2`, … answer one chain of digits each, in turn, until one is wrong or all were right.

    Rewards: `team_reward` = stages passed / stages, once at the end. `local_reward` = [right]. Success means that all
    stages were passed.

    An answer that cannot be read is invalid, and wrong.
    """

    n_agents: int | None = None
    """Number of stages, 2 to 8; `None` means 8."""

    name = "ladder"
    order = "stage_1 → stage_2? → … stage_8?"

    def __post_init__(self):
        super().__post_init__()
        self.require("n_agents", self.n_agents in (None, *range(2, AGENTS + 1)), f"use 2 to {AGENTS}")

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"stage_{number + 1}" for number in range(self.n_agents or AGENTS))

    def result(self, state: ChainState, right: bool, text: str, answer: str | None) -> tuple[ChainState, float, bool]:
        passed, count = state.place + right, len(state.problems)
        after = replace(state, place=passed, done=passed == count or not right)
        return after, passed / count if after.done else 0.0, passed == count
