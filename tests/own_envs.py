"""An env as a user would write it, with nothing registered: what `lab.make_pocket` makes a model for.

Leaves out: anything a test asserts.
"""

import random
from collections.abc import Mapping

from mas_lab.env import Step, Task


class Agree:
    """Two speak at once, told apart by their system prompt alone, and are to name one colour; the chat grows.

    No dataclass, a limit for each agent, and only ten tasks in each split.
    """

    agents, max_turns, max_return, pocket = ("left", "right"), 3, 1.0, ""
    max_tokens = {"left": 1, "right": 2}
    colours = ("red", "green", "blue", "grey")

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        first = 0 if split == "train" else 10
        return [Task(f"{split} {i}", {"word": f"round-{i}"}) for i in range(first, first + min(n, 10))]

    def start(self, task: Task) -> tuple[str, ...]:
        return (task.data["word"],)

    def acting(self, state: tuple[str, ...]) -> tuple[str, ...]:
        return self.agents

    def observe(self, state: tuple[str, ...], agent: str) -> list[dict[str, str]]:
        word, *said = state
        chat = [{"role": "system", "content": f"you are {agent}"}, {"role": "user", "content": f"play {word}"}]
        for both in said:
            mine, theirs = both.split("|")[:: 1 if agent == "left" else -1]
            chat += [{"role": "assistant", "content": mine}, {"role": "user", "content": f"other said {theirs}"}]
        return chat

    def step(self, state: tuple[str, ...], actions: Mapping[str, str]) -> Step:
        left, right = (actions[agent].split("|")[0] for agent in self.agents)
        agree = left in self.colours and left == right
        valid = {agent: text in self.colours for agent, text in actions.items()}
        done = agree or len(state) == self.max_turns
        return Step((*state, f"{left}|{right}"), float(agree), dict.fromkeys(actions, 0.0), valid, agree, done)

    def demonstrate(self, state: tuple[str, ...], agent: str, rng: random.Random) -> str:
        return rng.choice(self.colours)
