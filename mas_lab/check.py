"""A conformance check for environments: run it on your own env before you train on it.

It plays real episodes with good and with hostile texts and checks the laws that the cells rely on. Leaves out: whether
the rewards are sensible, and speed.
"""

import json
import math
import pickle
import random
from collections import Counter
from copy import deepcopy
from typing import Any

import pandas as pd

from mas_lab.env import Env, EnvError, Step, Task

ROLES = ("system", "user", "assistant")
GARBAGE = "\x00 }{ <moves> 0/0 -1e999 \\boxed{ ```python\n] None"
UNICODE = "Ünïcode \u202e\u0301 \ud55c\uae00 \U0001f9ed \u2212\u00bd \ufeff\u2028 \u0660"
HOSTILE = ("nothing", "garbage", "cut", "long", "unicode")
"""Players whose texts an env must stand."""
EPSILON = 1e-9


def check_env(env: Env, tasks: int = 8, split: str = "train", seed: int = 0) -> pd.DataFrame:
    """Play `tasks` tasks of `split` and check the contract; a table of what was checked (`check`, `times`).

    Texts: the env's own `demonstrate(state, agent, rng)` if it has one, nothing, garbage, words cut from the prompt,
    a very long text, unicode. Raises `EnvError` naming the env, the task, the agent, its turn, and what to do.
    """
    return _Check(env).run(tasks, split, seed)


def hostile(player: str, prompt: str, rng: random.Random) -> str:
    """What `player`, one of `HOSTILE`, answers to a prompt."""
    words = prompt.split() or ["x"]
    if player == "cut":
        return " ".join(rng.choices(words, k=rng.randint(1, 6)))
    return {"nothing": "", "garbage": GARBAGE, "long": " ".join(words * 2000)[:20000], "unicode": UNICODE}[player]


class _Check:
    def __init__(self, env: Env):
        self.env, self.name, self.times = env, getattr(env, "name", type(env).__name__), Counter()

    def run(self, tasks: int, split: str, seed: int) -> pd.DataFrame:
        self.attributes()
        for task in self.tasks(tasks, split, seed):
            for player in self.players():
                self.episode(task, player, random.Random(f"{seed} {task.id} {player}"))
        return pd.DataFrame(self.times.items(), columns=["check", "times"])

    def law(self, check: str, holds: bool, problem: str, **where) -> None:
        """Count one more `check`, or raise with the `problem` and its place."""
        if not holds:
            place = "".join(f", {key} {value!r}" for key, value in where.items())
            raise EnvError(f"env {self.name!r}{place}: {problem}")
        self.times[check] += 1

    def pure(self, call: str, argument: Any, function, **where) -> Any:
        """The result of `function()`, called twice: `argument` unchanged, results equal."""
        before = deepcopy(argument)
        first = function()
        unchanged = _same(argument, before)
        self.law(f"{call} leaves its argument alone", unchanged, f"{call} changed what it was given; "
                 "build a new object instead (a frozen dataclass makes this mistake impossible)", **where)  # fmt: skip
        second = function()
        self.law(f"{call} gives the same answer twice", _same(first, second), f"{call} gave two answers to one "
                 "question; draw no random numbers in it and keep nothing in the env", **where)  # fmt: skip
        return first

    def attributes(self) -> None:
        env = self.env
        for name in ("agents", "max_turns", "max_return", "tasks", "start", "acting", "observe", "step"):
            self.law("has every part", hasattr(env, name), f"`{name}` is missing; see mas_lab.env.Env")
        agents = env.agents
        named = isinstance(agents, tuple) and agents and all(isinstance(agent, str) and agent for agent in agents)
        self.law("agents are names", named and len(set(agents)) == len(agents),
                 f"agents={agents!r}; give a tuple of different names")  # fmt: skip
        turns = isinstance(env.max_turns, int) and env.max_turns >= 1
        self.law("max_turns is a count", turns, f"max_turns={env.max_turns!r}; give an int from 1")
        self.law("max_return is finite", _finite(env.max_return), f"max_return={env.max_return!r}; give a number")

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """The tasks to play, after a look at both splits under a few seeds."""
        contents: dict[str, dict[str, str]] = {"train": {}, "test": {}}
        for part in contents:
            for s in range(seed, seed + 4):
                found = self.pure("tasks", (n, part, s), lambda part=part, s=s: self.env.tasks(n, part, s), split=part)
                ids = Counter(task.id for task in found)
                twice = [name for name, count in ids.items() if count > 1]
                self.law(
                    "task ids are unique", not twice, f"tasks({n}, {part!r}, {s}) has id {twice and twice[0]!r} twice"
                )
                self.law(
                    "tasks gives what was asked",
                    len(found) == n,
                    f"tasks({n}, {part!r}, {s}) gave {len(found)}; if that is all there is, check fewer",
                )
                for task in found:
                    text = self.plain(task)
                    self.law("one id, one problem", contents[part].setdefault(task.id, text) == text,
                             "two problems share this id; make it from the content", task=task.id)  # fmt: skip
        train, test = contents["train"], contents["test"]
        shared = [*(set(train) & set(test)), *(i for i, text in test.items() if text in set(train.values()))]
        self.law("train and test are disjoint", not shared, "in both splits; let the content decide its split "
                 "(a hash of it)", task=next(iter(shared), ""))  # fmt: skip
        return self.env.tasks(n, split, seed)

    def plain(self, task: Task) -> str:
        try:
            text = json.dumps(dict(task.data), sort_keys=True)
        except TypeError as error:
            raise EnvError(
                f"env {self.name!r}, task {task.id!r}: data is not plain ({error}); use JSON types"
            ) from None
        self.times["task data is plain"] += 1
        return text

    def players(self) -> list[str]:
        own = ["demonstrate"] if hasattr(self.env, "demonstrate") else []
        return [*own, *HOSTILE]

    def text(self, player: str, state: Any, agent: str, prompt: str, rng: random.Random) -> str:
        return self.env.demonstrate(state, agent, rng) if player == "demonstrate" else hostile(player, prompt, rng)

    def episode(self, task: Task, player: str, rng: random.Random) -> None:
        state = self.pure("start", task, lambda: self.env.start(task), task=task.id)
        turns, total, done, success = Counter(), 0.0, False, False
        while not done:
            acting = self.acting(state, task, turns)
            actions = {agent: self.speak(player, state, agent, rng, task, turns) for agent in acting}
            where = {"task": task.id, "agent": "+".join(acting), "turn": turns[acting[0]]}
            step = self.pure("step", state, lambda s=state, a=actions: self.env.step(s, dict(a)), **where)
            self.step(step, acting, **where)
            state, done, success, total = step.state, step.done, step.success, total + step.team_reward
            turns.update(acting)
        best = self.env.max_return
        self.law("return within max_return", total <= best + EPSILON, f"returned {total}, above max_return={best}; "
                 "state the true bound", task=task.id)  # fmt: skip
        self.law("max_return means success", success or total < best - EPSILON, f"returned max_return={best} without "
                 "success; one of the two is wrong", task=task.id)  # fmt: skip
        self.law("success pays", total > 0 or not success, f"success, but the return is {total}", task=task.id)

    def acting(self, state: Any, task: Task, turns: Counter) -> tuple[str, ...]:
        acting = self.pure("acting", state, lambda: self.env.acting(state), task=task.id)
        self.law("somebody acts until it is done", bool(acting), f"nobody acts after turns {dict(turns)}, and no step "
                 "said done; return Step(done=True) from the last one", task=task.id)  # fmt: skip
        for agent in acting:
            where = {"task": task.id, "agent": agent, "turn": turns[agent]}
            self.law("those who act are known", agent in self.env.agents, f"not in agents={self.env.agents}", **where)
            self.law("ends within max_turns", turns[agent] < self.env.max_turns, "acts again after "
                     f"max_turns={self.env.max_turns}; the episode must be done by then", **where)  # fmt: skip
        self.law("nobody acts twice at once", len(set(acting)) == len(acting), f"acting is {acting}", task=task.id)
        return tuple(acting)

    def speak(self, player: str, state: Any, agent: str, rng: random.Random, task: Task, turns: Counter) -> str:
        where = {"task": task.id, "agent": agent, "turn": turns[agent]}
        messages = self.pure("observe", state, lambda: self.env.observe(state, agent), **where)
        chat = isinstance(messages, list) and messages and all(_is_message(message) for message in messages)
        self.law("observe gives chat messages", chat, f"observe gave {messages!r}; give a list of "
                 "{'role': 'system' | 'user' | 'assistant', 'content': text}", **where)  # fmt: skip
        text = self.text(player, state, agent, " ".join(message["content"] for message in messages), rng)
        self.law("texts are texts", isinstance(text, str), f"demonstrate gave {text!r}; give a str", **where)
        return text

    def step(self, step: Step, acting: tuple[str, ...], **where) -> None:
        for name in ("local_rewards", "valid"):
            keys = set(getattr(step, name))
            self.law("one entry per agent that acted", keys == set(acting),
                     f"step.{name} has {sorted(keys)}, but {sorted(acting)} acted", **where)  # fmt: skip
        for name, value in (("team_reward", step.team_reward), *step.local_rewards.items()):
            self.law("rewards are finite", _finite(value), f"reward {name} is {value!r}; give a finite number", **where)
        flags = {"success": step.success, "done": step.done, **{f"valid[{a}]": step.valid[a] for a in acting}}
        for name, value in flags.items():
            self.law("flags are bool", isinstance(value, bool), f"step.{name} is {value!r}; give a bool", **where)


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and set(message) == {"role", "content"} and (
        message["role"] in ROLES and isinstance(message["content"], str)
    )  # fmt: skip


def _same(first: Any, second: Any) -> bool:
    """Equal, or (for objects without an equality of their own) pickled alike."""
    try:
        if bool(first == second):
            return True
    except ValueError:  # arrays compare elementwise
        pass
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        kind = type(first).__name__
        raise EnvError(f"a {kind} has neither equality nor a pickle ({error}); use frozen dataclasses") from None
