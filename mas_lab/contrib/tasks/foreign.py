"""Hold what envs of other libraries share: a task is the seed of a world, and an agent gets one text.

How a world is played is in `textarena` and `pettingzoo`.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.env import Message, Task
from mas_lab.tasks.shared.bases import TextEnv
from mas_lab.tasks.shared.rows import SPLITS, check_split


@dataclass(frozen=True, kw_only=True)
class ForeignEnv(TextEnv):
    """Base class of envs that show an agent one text, `text_for(state, agent)`; `world` names their tasks.

    An env has `demonstrate` if it was given `show`.
    """

    max_turns: int = 30
    max_return: float = 1.0
    show: Callable[[str, random.Random], str] | None = None
    """Function that returns an imperfect answer to a text, for `make_pocket`. `None`: the env cannot demonstrate."""
    pocket: str = ""

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return `n` tasks with seeds; `train` and `test` have different seeds, but their worlds may be equal."""
        check_split(split, self.world)
        first = random.Random(f"{self.world} {seed}").randrange(2**20) * 2**10
        numbers = [len(SPLITS) * (first + number) + SPLITS.index(split) for number in range(n)]
        return [Task(f"{self.world}-{one}", {"seed": one}) for one in numbers]

    def observe(self, state: Any, agent: str) -> list[Message]:
        return [{"role": "user", "content": self.text_for(state, agent)}]

    def first_wins(self, rewards: Mapping[str, float]) -> bool:
        """Return whether the first agent has earned more than any other; an agent without an entry has earned 0."""
        first, *others = (rewards.get(agent, 0.0) for agent in self.agents)
        return first > max(others)

    def __getattr__(self, name: str) -> Any:
        if name == "demonstrate" and self.show is not None:
            return lambda state, agent, rng: self.show(self.text_for(state, agent), rng)
        raise AttributeError(name)
