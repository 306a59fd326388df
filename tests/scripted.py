"""Worlds whose rewards are the numbers that are said, and a policy that says what a test tells it to.

Only for tests of who is asked what, in which order, and what is written down: nothing here samples or learns.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mas_lab.cells.rollout import rollout
from mas_lab.env import Step, Task
from mas_lab.locks import ModelLock
from mas_lab.policy import Completion
from mas_lab.team import Team


def number(text):
    return float(text) if text.lstrip("-").isdigit() else 0.0


@dataclass(frozen=True)
class Ladder:
    """Agents speak one after the other and hear all that was said; the last one's number is the team's reward.

    "win" is a success that ends the episode, "?" is not understood.
    """

    agents: tuple[str, ...] = ("planner", "executor")
    max_turns: int = 2
    max_return: float = 100.0
    pocket: str = ""
    max_tokens: int = 8

    def tasks(self, n, split, seed):
        return [Task(f"t{i}", {}) for i in range(n)]

    def start(self, task):
        return (task.id,)

    def acting(self, state):
        return (self.agents[(len(state) - 1) % len(self.agents)],)

    def observe(self, state, agent):
        return [{"role": "user", "content": f"{agent} hears {' '.join(state)}"}]

    def step(self, state, actions):
        [(agent, text)] = actions.items()
        win, last = text == "win", agent == self.agents[-1]
        done = win or (last and len(state) == self.max_turns * len(self.agents))
        return Step((*state, text), number(text) if last else 0.0, {agent: number(text) / 10}, {agent: text != "?"},
                    win, done)  # fmt: skip


@dataclass(frozen=True)
class Duet(Ladder):
    """Agents speak at once: the team earns 10 * the first one's number + the second one's; 9 from the first ends it."""

    agents: tuple[str, ...] = ("left", "right")
    enough: float = float("inf")

    def acting(self, state):
        return self.agents

    def step(self, state, actions):
        first, second, *_ = (number(actions[agent]) for agent in self.agents)
        valid = {agent: text != "?" for agent, text in actions.items()}
        local = {agent: number(text) / 10 for agent, text in actions.items()}
        done = len(state) == self.max_turns or first == 9
        return Step((*state, "+".join(actions.values())), 10 * first + second, local, valid, False, done)


@dataclass(frozen=True)
class Duel:
    """A game: `left` says a digit, then `right`; the higher wins 1 from the other, and both hear of it at the end."""

    name, agents, max_turns, max_return, max_tokens, pocket = "duel", ("left", "right"), 1, 1.0, 1, "none"
    competitive = True

    def tasks(self, n, split, seed):
        return [Task(f"{split}{seed}-{i}", {"split": split}) for i in range(n)]

    def start(self, task):
        return ()

    def acting(self, state):
        return (self.agents[len(state)],)

    def observe(self, state, agent):
        return [{"role": "user", "content": f"{agent}: say a digit"}]

    def step(self, state, actions):
        ((agent, text),) = actions.items()
        said, valid = (*state, int(text) if text in tuple("0123456789") else -1), {agent: text in tuple("0123456789")}
        if agent == "left":
            return Step(said, 0.0, {"left": 0.0}, valid, False, False)
        won = float((said[0] > said[1]) - (said[0] < said[1]))
        return Step(said, 0.0, {"left": won, "right": -won}, valid, won > 0, True, {"said": list(said)})

    def demonstrate(self, state, agent, rng):
        return str(rng.randrange(10))


class Scripted:
    """`reply(prompt, nth, seed)` is what it says to a prompt that it was asked `nth` times before.

    `streams`: whether its engine gives one answer at a time, the last question first.
    """

    name, lr, model, tokenizer, adapter = "scripted", 0.0, None, None, None

    def __init__(self, reply, streams=False, context=10_000):
        self.reply, self.streams, self.context = reply, streams, context
        self.engine, self.asked, self.waves, self._pending = self, Counter(), [], []
        self.lock = ModelLock()

    def encode(self, messages):
        return list(messages[-1]["content"].encode())

    def encode_all(self, chats):
        return [self.encode(messages) for messages in chats]

    def submit(self, policy, requests):
        self.waves.append(len(requests))
        tickets = []
        for request in requests:
            prompt = bytes(request.prompt_ids).decode()
            text = self.reply(prompt, self.asked[prompt], request.seed)
            self.asked[prompt] += 1
            tickets.append(sum(self.asked.values()))
            ids = tuple(text.encode())
            self._pending.append((tickets[-1], Completion(ids, (0.0,) * len(ids), text, "length")))
        return tickets

    def cancel(self, tickets):
        self._pending = []

    def ready(self):
        count = 1 if self.streams else len(self._pending)
        return [self._pending.pop() for _ in range(min(count, len(self._pending)))]


def says(lines):
    """A reply from a dict: prompt -> the texts of its candidates, in order."""
    return lambda prompt, nth, seed: lines[prompt][nth]


def team_of(env, reply, **settings):
    return Team.shared(Scripted(reply, **settings), env.agents)


DRAWN = ["node", "agent", "candidate", "parent", "kept", "completion", "finish", "team_reward", "local_reward"]
LINES = ["candidate", "kept", "team_reward", "local_reward"]
PLACES = ["node", "parent", "turn", "depth", "agent", "action"]


def play(env, reply, plan, tasks=1, **options):
    return rollout(env, team_of(env, reply), env.tasks(tasks, "train", 0), plan, **options)


def by_nth(prompt, nth, seed):
    """The nth candidate of a prompt says n + 1."""
    return str(nth + 1)


def by_seed(prompt, nth, seed):
    return str(seed % 5)


def lines(turns, columns):
    return [tuple(row) for row in turns[columns].itertuples(index=False)]


def by_side(prompt, nth, seed):
    return "3" if prompt.startswith("left") else "4"


def same_draws(one, other):
    """The same calls in any order, with the same tokens; log-probabilities up to float noise."""
    one, other = (t.sort_values(["node", "agent", "candidate"], ignore_index=True) for t in (one, other))
    logprobs = [np.concatenate(turns["logprobs"].tolist()) for turns in (one, other)]
    same = one[DRAWN].equals(other[DRAWN]) and one["completion_ids"].tolist() == other["completion_ids"].tolist()
    return same and np.abs(logprobs[0] - logprobs[1]).max() < 1e-4
