"""Cascade: a teaching task in which each agent is called only if all agents before it were wrong.

The later an agent is called, the less a right answer earns. All rewards of the last tiers lie below the task's mean, so
a global baseline punishes even their right answers. What a chain is, and how its answers are read, is in `chains`.
"""

from dataclasses import dataclass, replace

from mas_lab.tasks.shared.chains import ChainSequence, ChainState

PAYS = (1.0, 0.7, 0.4, 0.1)
"""Team reward for a right answer of each tier."""


@dataclass(frozen=True)
class Cascade(ChainSequence):
    """Agents `tier_1` to `tier_4` answer one chain of digits each, in turn, until one of them is right.

    Rewards: `team_reward` = 1.3 - 0.3 k if tier k is right. `local_reward` = [right]. Success is a right answer of any
    tier.

    An answer that cannot be read is invalid, and wrong.
    """

    name = "cascade"
    order = "tier_1 → tier_2? → tier_3? → tier_4?"
    agents = ("tier_1", "tier_2", "tier_3", "tier_4")

    def result(self, state: ChainState, right: bool, text: str, answer: str | None) -> tuple[ChainState, float, bool]:
        place = state.place + (not right)
        after = replace(state, place=place, done=right or place == len(self.agents))
        return after, PAYS[state.place] * right, right
