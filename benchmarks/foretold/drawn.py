"""Draw a team at random: who is called when, and what the team earns. `number` is the seed of the draw.

Nobody chose these teams, so they are settings that were not built to show an effect of baselines. Leaves out: the
trainings (`run`).
"""

import random
from dataclasses import dataclass, replace
from functools import cached_property

from mas_lab.env import Task
from mas_lab.tasks.shared.chains import ChainSequence, ChainState

SIZES = (3, 4, 5, 6)
CALLS = (
    "always",
    "after a right answer",
    "after a wrong answer",
    "if all were right",
    "if all were wrong",
    "in one of four tasks",
)
PAYS = ("each", "all", "any", "last", "weights")
WORD_COSTS = (0.0, 0.0, 0.005)


@dataclass(frozen=True)
class DrawnState(ChainState):
    right: tuple[bool | None, ...] = ()
    """One entry per agent so far; `None` if it was not called."""
    words: int = 0


@dataclass(frozen=True)
class Drawn(ChainSequence):
    """Agents `agent_1` to `agent_n` answer one chain of digits each, in turn, if they are called.

    The draw decides n, the condition of each call, and the team's reward at the end: the share of right answers
    ("each"), whether all or any of the answers or the last one was right, or a mean with a random weight per agent. In
    one of three teams each word costs 0.005. `local_reward` is 1 for a right answer. Success is a right last
    answer with a reward above 0.
    """

    number: int = 0

    name = "drawn"
    order = "agent_1, and others on a condition"

    @cached_property
    def rules(self) -> dict:
        rng = random.Random(f"team {self.number}")
        n = rng.choice(SIZES)
        return {
            "calls": ["always", *(rng.choice(CALLS) for _ in range(n - 1))], "pays": rng.choice(PAYS),
            "weights": [round(rng.uniform(0.1, 1), 2) for _ in range(n)], "word_cost": rng.choice(WORD_COSTS),
        }  # fmt: skip

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"agent_{i + 1}" for i in range(len(self.rules["calls"])))

    def start(self, task: Task) -> DrawnState:
        return DrawnState(tuple(task.data["problems"]))

    def called(self, state: DrawnState) -> bool:
        """Return whether the agent at `state.place` is called after the answers so far."""
        answers = [right for right in state.right if right is not None]
        return {
            "always": True, "after a right answer": answers[-1:] == [True],
            "after a wrong answer": answers[-1:] == [False], "if all were right": all(answers),
            "if all were wrong": not any(answers),
            "in one of four tasks": random.Random(self.posed(state)).random() < 0.25,
        }[self.rules["calls"][state.place]]  # fmt: skip

    def earned(self, state: DrawnState) -> float:
        answers = [right for right in state.right if right is not None]
        weights, cost = self.rules["weights"], self.rules["word_cost"]
        weighted = sum(w * bool(right) for w, right in zip(weights, state.right, strict=False)) / sum(weights)
        pays = {"each": sum(answers) / len(self.agents), "all": all(answers), "any": any(answers),
                "last": answers[-1], "weights": weighted}  # fmt: skip
        return float(pays[self.rules["pays"]]) - cost * state.words

    def result(self, state: DrawnState, right: bool, said: str, answer: str | None) -> tuple[DrawnState, float, bool]:
        state = replace(state, right=(*state.right, right), words=state.words + len(said.split()))
        while len(state.right) < len(self.agents):
            state = replace(state, place=len(state.right))
            if self.called(state):
                return state, 0.0, False
            state = replace(state, right=(*state.right, None))
        earned = self.earned(state)
        return replace(state, done=True), earned, right and earned > 0
