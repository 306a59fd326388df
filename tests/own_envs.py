"""Two envs as a user would write them, with nothing registered: what `lab.make_pocket` makes a model for.

Leaves out: anything a test asserts.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Step, Task

COINS = (1, 2, 5, 10)


@dataclass(frozen=True)
class Purse:
    price: int
    coins: tuple[int, ...]
    given: tuple[int, ...] | None = None
    turn: int = 0
    done: bool = False


@dataclass(frozen=True)
class Change:
    """A giver pays a price out of a purse; a counter, who sees the coins alone, says what they come to. Two rounds."""

    max_turns: int = 2
    mistakes: float = 0.4
    """How often `demonstrate` gives or counts at random."""

    name = "change"
    pocket = ""
    agents = ("giver", "counter")
    max_return = 1.0
    max_tokens = 5

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        rng, found = random.Random(f"{split} {seed}"), {}
        while len(found) < n:
            coins = sorted(rng.choices(COINS, k=5))
            price = sum(rng.sample(coins, rng.randint(1, 3)))
            name = f"{price} of {coins}"
            if (random.Random(name).random() < 0.2) == (split == "test"):
                found[name] = Task(name, {"price": price, "coins": coins})
        return list(found.values())

    def start(self, task: Task) -> Purse:
        return Purse(task.data["price"], tuple(task.data["coins"]))

    def acting(self, state: Purse) -> tuple[str, ...]:
        return () if state.done else ("giver",) if state.given is None else ("counter",)

    def observe(self, state: Purse, agent: str) -> list[dict[str, str]]:
        if agent == "counter":
            return [{"role": "user", "content": f"count {spoken(state.given)}"}]
        return [{"role": "user", "content": f"price {state.price} purse {spoken(state.coins)}"}]

    def step(self, state: Purse, actions: Mapping[str, str]) -> Step:
        [(agent, text)] = actions.items()
        numbers = tuple(int(word) for word in text.split() if word.isascii() and word.isdigit())
        valid = bool(numbers) and len(numbers) == len(text.split())
        if agent == "giver":
            paid = valid and sum(numbers) == state.price and fits(numbers, state.coins)
            given = numbers if valid and fits(numbers, state.coins) else ()
            return Step(replace(state, given=given), 0.0, {agent: float(paid)}, {agent: valid}, False, False)
        counted = numbers == (sum(state.given),)
        success, turn = counted and sum(state.given) == state.price, state.turn + 1
        done = success or turn == self.max_turns
        after = replace(state, given=None, turn=turn, done=done)
        return Step(after, float(success), {agent: float(counted)}, {agent: valid}, success, done)

    def demonstrate(self, state: Purse, agent: str, rng: random.Random) -> str:
        wrong = rng.random() < self.mistakes
        if agent == "counter":
            return str(sum(state.given) + rng.choice((-1, 1, 2)) * wrong)
        parts = [part for part in subsets(state.coins) if part and (wrong or sum(part) == state.price)]
        return spoken(rng.choice([part for part in parts if len(part) <= self.max_tokens]))


def spoken(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers)) or "nothing"


def fits(numbers: tuple[int, ...], coins: tuple[int, ...]) -> bool:
    return all(numbers.count(number) <= coins.count(number) for number in numbers)


def subsets(coins: tuple[int, ...]) -> list[tuple[int, ...]]:
    found = [()]
    for coin in coins:
        found += [(*part, coin) for part in found]
    return sorted(set(found))


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
