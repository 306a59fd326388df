"""Ladder: a teaching task in which each agent is reached only if those before it were right.

Under one global baseline, more agents with weights of their own are worse: whoever stands high is reached only in
episodes that went well, all its rewards lie above everybody's mean, and it is praised for whatever it says. Under its
own baseline it learns. Where one set of weights plays all stages, what stage 1 learns serves stage 8, and both do well.
Pocket only. Leaves out: what a chain is, and how an answer to one is read (`chains`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Step
from mas_lab.tasks.shared import chains
from mas_lab.tasks.shared.pictures import ladder

AGENTS = 8


@dataclass(frozen=True)
class Ladder(chains.ChainSequence):
    """`stage_1`, `stage_2`, … answer a chain of digits each, one after the other, until one of them is wrong or all
    were right.

    `team_reward` arrives once, when it ends: the share of stages that were passed, so `max_return` = 1. Success is all
    of them. `local_reward`: 1 for a right answer. An answer that cannot be read is invalid, and wrong.
    """

    n_agents: int | None = None
    """2 to 8 stages; `None`: 8."""

    name = "ladder"
    order = "stage_1 → stage_2? → … stage_8?"

    def __post_init__(self):
        if self.n_agents is not None and not (type(self.n_agents) is int and 2 <= self.n_agents <= AGENTS):
            raise ValueError(f"ladder: n_agents={self.n_agents!r}; use 2 to {AGENTS}")

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"stage_{number + 1}" for number in range(self.n_agents or AGENTS))

    def step(self, state: chains.Progress, actions: Mapping[str, str]) -> Step:
        agent, right, valid = self.marked(state, actions)
        passed = state.passed + right
        success = passed == len(state.problems)
        after = replace(state, passed=passed, done=success or not right)
        team = passed / len(state.problems) if after.done else 0.0
        return Step(after, team, {agent: float(right)}, {agent: valid}, success, after.done)

    def draw(self, state: chains.Progress) -> str:
        """A rung for each stage, the first at the bottom, with its chain; a disc stands on the last one passed."""
        passed, count = state.passed, len(state.problems)
        rungs = [f"{problem} = {chains.value(problem)}" for problem in state.problems]
        fell = " The next answer was wrong." if state.done and passed < count else ""
        return ladder(rungs, passed, f"A ladder. {passed} of {count} stages are passed.{fell}", fallen=bool(fell))
