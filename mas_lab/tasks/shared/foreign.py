"""Hold what envs of other libraries share: a task is the seed of a world, and an agent gets one text.

How a world is played is in `textarena` and `pettingzoo`.
"""

import random
from collections.abc import Callable
from typing import Any

from mas_lab.env import Message, Task
from mas_lab.tasks.shared.rows import SPLITS, check_split


def seeds(world: str, n: int, split: str, seed: int) -> list[Task]:
    """Return `n` tasks with seeds; `train` and `test` have different seeds, but their worlds may be alike."""
    check_split(split, world)
    first = random.Random(f"{world} {seed}").randrange(2**20) * 2**10
    numbers = [len(SPLITS) * (first + number) + SPLITS.index(split) for number in range(n)]
    return [Task(f"{world}-{one}", {"seed": one}) for one in numbers]


class Shown:
    """Base class of envs that show an agent one text, `shown(state, agent)`.

    An env has `demonstrate` if it was given `show`, a function that returns an imperfect answer to such a text.
    """

    show: Callable[[str, random.Random], str] | None

    def observe(self, state: Any, agent: str) -> list[Message]:
        return [{"role": "user", "content": self.shown(state, agent)}]

    def __getattr__(self, name: str) -> Any:
        if name == "demonstrate" and self.show is not None:
            return lambda state, agent, rng: self.show(self.shown(state, agent), rng)
        raise AttributeError(name)
