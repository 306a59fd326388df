"""A conformance check for environments: run it on your own env before you train on it.

It plays real episodes with good and with hostile texts and checks the laws that the cells rely on. To test purity it
calls functions twice, which is slow where chats grow. It therefore does this at the first steps of an episode and at
some later ones. Leaves out: whether the rewards make sense.
"""

import json
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import singledispatch
from numbers import Real
from typing import Any

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.env import ROLES, Env, EnvError, Step, Task, env_option, no_message, not_plain, transcript, validate_step
from mas_lab.tool_calls import as_action

HOSTILE = ("nothing", "garbage", "cut", "long", "unicode")
"""Players besides the env's own `demonstrate`. Each says something that no env expects."""
GARBAGE = "\x00 }{ <moves> 0/0 -1e999 \\boxed{ ```python\n] None"
UNICODE = "Ünïcode \u202e\u0301 \ud55c\uae00 \U0001f9ed \u2212\u00bd \ufeff\u2028 \u0660"
LONG = 20_000
"""Length of a very long text in characters."""
HARRIED = 2
"""Number of tasks that the hostile players play too, if the env has `demonstrate`."""
CLOSELY, THEN_EVERY = 16, 24
"""Every call is made twice in the first `CLOSELY` steps of an episode, and then in every `THEN_EVERY`-th step."""
EPSILON = 1e-9
PARTS = ("agents", "max_turns", "max_return", "tasks", "start", "acting", "observe", "step", "max_tokens")


@singledispatch
def check_env(env: Env, tasks: int = 8, split: str = "train", seed: int = 0) -> pd.DataFrame:
    """Play some tasks and check that an env keeps its contract.

    Args:
        env: The environment.
        tasks: Number of tasks to play.
        split: Split of the tasks, "train" or "test".
        seed: Seed of the tasks and of the players.

    Returns:
        A table of what was checked: `check`, the law, and `times`, how often it was checked.

    Raises:
        EnvError: A law is broken, or the env raises an error. The message names the env, task, agent, turn and text,
            and what to do.

    The texts come from the env's own `demonstrate(state, agent, rng)`. In the first two tasks (in all tasks, if the env
    has no `demonstrate`) they also come from the players `HOSTILE`: nothing, garbage, words cut from the prompt, a very
    long text (each agent's first), and unicode.
    """
    check_arguments(check_env, {"env": env, "tasks": tasks, "split": split, "seed": seed}, tasks=1)
    return _Check(env).run(tasks, split, seed)


def hostile(player: str, prompt: str, rng: random.Random) -> str:
    """Return the answer of one of `HOSTILE` to a prompt."""
    if player == "cut":
        return " ".join(rng.choices(prompt[-2000:].split() or ["x"], k=rng.randint(1, 6)))
    if player == "long":
        return (f"{prompt or 'x'} " * (1 + LONG // max(1, len(prompt))))[:LONG]
    return {"nothing": "", "garbage": GARBAGE, "unicode": UNICODE}[player]


class _Check:
    """One check of an env: `task` and `turns` are the task that is played, and each agent's turns in it so far."""

    def __init__(self, env: Env):
        self.env, self.name, self.times = env, getattr(env, "name", type(env).__name__), Counter()
        self.closely, self.game = True, bool(env_option(env, "competitive"))

    def run(self, tasks: int, split: str, seed: int) -> pd.DataFrame:
        self.attributes()
        own = ("demonstrate",) if hasattr(self.env, "demonstrate") else ()
        for number, task in enumerate(self.tasks(tasks, split, seed)):
            self.task = task
            for player in (*own, *HOSTILE) if number < HARRIED or not own else own:
                self.episode(player, random.Random(f"{seed} {task.id} {player}"))
        return pd.DataFrame(self.times.items(), columns=["check", "times"])

    def law(self, check: str, holds: bool, problem: str, **where) -> None:
        """Count one more `check`, or raise an error with the `problem` and its place."""
        if not holds:
            raise EnvError(f"{self.place(where)}: {problem}")
        self.times[check] += 1

    def place(self, where: Mapping[str, Any]) -> str:
        return f"env {self.name!r}" + "".join(f", {key} {_quoted(value)}" for key, value in where.items())

    def call(self, name: str, function: Callable[[], Any], where: Mapping[str, Any]) -> Any:
        """Return the result of `function()`; an error in it is raised again with its place."""
        try:
            return function()
        except Exception as error:
            problem = f"{name} failed: {type(error).__name__}: {error}; an env answers whatever an agent says"
            raise EnvError(f"{self.place(where)}: {problem}") from error

    def pure(self, name: str, argument: Any, function: Callable[[], Any], **where) -> Any:
        """Return the result of `function()`.

        In a close look, `argument` must stay unchanged, and a second call must give the same.
        """
        if not self.closely:
            return self.call(name, function, where)
        before = self.call("copying a state", lambda: deepcopy(argument), where)
        first = self.call(name, function, where)
        problem = f"{name} changed its argument; return a new object, or begin with state = copy.deepcopy(state)"
        self.law(f"{name} leaves its argument alone", equal(argument, before), problem, **where)
        second = self.call(name, function, where)
        problem = f"{name} gave two answers to one call; draw no random numbers in it and store nothing in the env"
        self.law(f"{name} gives the same answer twice", equal(first, second), problem, **where)
        return first

    def attributes(self) -> None:
        env = self.env
        for name in PARTS:
            self.law("has every part", hasattr(env, name), f"`{name}` is missing; see mas_lab.env.Env")
        agents, tokens = env.agents, env.max_tokens
        names = isinstance(agents, tuple) and agents and all(isinstance(agent, str) and agent for agent in agents)
        differ = names and len(set(agents)) == len(agents)
        self.law("agents are names", differ, f"agents={agents!r}; give a tuple of different names")
        self.law("a game has two sides", len(agents) > 1 or not self.game, f"agents={agents!r}; a game needs two")
        self.law("max_turns is a count", _is_count(env.max_turns), f"max_turns={env.max_turns!r}; give an int from 1")
        finite = isinstance(env.max_return, Real) and math.isfinite(env.max_return)
        self.law("max_return is finite", finite, f"max_return={env.max_return!r}; give a number")
        counts = all(_is_count(tokens.get(agent) if isinstance(tokens, Mapping) else tokens) for agent in agents)
        self.law("max_tokens are counts", counts, f"max_tokens={tokens!r}; give an int from 1, or one per agent")

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return the tasks to play, after a look at both splits under a few seeds."""
        contents: dict[str, dict[str, str]] = {"train": {}, "test": {}}
        for part, known in contents.items():
            for task in [task for s in range(seed, seed + 4) for task in self.drawn(n, part, s)]:
                problem = not_plain(dict(task.data), "data")
                self.law("task data is plain", not problem, f"data is not plain: {problem}", task=task.id)
                one = known.setdefault(task.id, text := json.dumps(dict(task.data), sort_keys=True)) == text
                self.law("one id, one problem", one, "two problems have this id; hash the content", task=task.id)
        if not env_option(self.env, "splits_meet"):
            train, test = contents["train"], contents["test"]
            shared = [*(set(train) & set(test)), *(i for i, text in test.items() if text in set(train.values()))]
            problem = "in both splits; split by a hash of the content, or declare splits_meet = True"
            self.law("train and test are disjoint", not shared, problem, task=next(iter(shared), ""))
        return self.env.tasks(n, split, seed)

    def drawn(self, n: int, split: str, seed: int) -> list[Task]:
        where = {"split": split, "seed": seed}
        tasks = self.pure("tasks", (n, split, seed), lambda: self.env.tasks(n, split, seed), **where)
        listed = isinstance(tasks, list) and all(isinstance(task, Task) for task in tasks)
        self.law("tasks gives tasks", listed, f"tasks gave {_quoted(tasks)}; give a list of mas_lab.Task", **where)
        ids = len({task.id for task in tasks})
        problem = f"tasks({n}) gave {len(tasks)} tasks with {ids} ids; if these are all, pass tasks={ids}"
        self.law("tasks gives what was asked", len(tasks) == ids == n, problem, **where)
        return tasks

    def episode(self, player: str, rng: random.Random) -> None:
        self.closely, self.turns, task = True, Counter(), self.task
        state = self.pure("start", task, lambda: self.env.start(task), task=task.id)
        total, own, steps, done = 0.0, Counter(dict.fromkeys(self.env.agents, 0.0)), 0, False
        while not done:
            self.closely = steps < CLOSELY or steps % THEN_EVERY == 0
            acting = self.acting(state)
            texts = {agent: self.completion(player, state, agent, rng) for agent in acting}
            actions = {agent: as_action(self.env, agent, text, steps) for agent, text in texts.items()}
            where = {"task": task.id, "agent": "+".join(acting), "turn": self.turns[acting[0]]}
            text = actions[acting[0]] if len(acting) == 1 else actions
            step = self.pure("step", state, lambda s=state, a=actions: self.env.step(s, dict(a)), **where, text=text)
            self.step(step, acting, **where)
            state, done, total, steps = step.state, step.done, total + step.team_reward, steps + 1
            own.update(step.local_rewards)
            self.turns.update(acting)
        self.won(step, own) if self.game else self.returned(step.success, total)

    def returned(self, success: bool, total: float) -> None:
        best, where = self.env.max_return, {"task": self.task.id}
        problem = f"returned {total}, above max_return={best}; state the true bound"
        self.law("return within max_return", total <= best + EPSILON, problem, **where)
        problem = f"returned max_return={best} without success; one of the two is wrong"
        self.law("max_return means success", success or total < best - EPSILON, problem, **where)
        self.law("success pays", total > 0 or not success, f"success, but the return is {total}", **where)

    def won(self, last: Step, own: Mapping[str, float]) -> None:
        (first, *others), best, where = self.env.agents, self.env.max_return, {"task": self.task.id}
        for agent, total in own.items():
            problem = f"earned {total}, above max_return={best}; state the true bound"
            self.law("own return within max_return", total <= best + EPSILON, problem, **where, agent=agent)
        won = own[first] > max(own[other] for other in others) + EPSILON
        problem = f"success is {last.success}, but the agents earned {dict(own)}; it means that {first!r} earned most"
        self.law("success is the first agent's win", last.success == won, problem, **where)

    def acting(self, state: Any) -> tuple[str, ...]:
        task, turns, agents, most = self.task.id, self.turns, self.env.agents, self.env.max_turns
        acting = tuple(self.pure("acting", state, lambda: self.env.acting(state), task=task, turns=dict(turns)))
        known = set(acting) <= set(agents) and len(set(acting)) == len(acting) > 0
        problem = f"acting gave {acting} after turns {dict(turns)}; name one or more of {agents} until a step is done"
        self.law("agents act until it is done", known, problem, task=task)
        problem = f"acts again after max_turns={most}; the episode must be done by then"
        for agent in acting:
            self.law("ends within max_turns", turns[agent] < most, problem, task=task, agent=agent, turn=turns[agent])
        return acting

    def completion(self, player: str, state: Any, agent: str, rng: random.Random) -> str:
        where = {"task": self.task.id, "agent": agent, "turn": self.turns[agent]}
        messages = self.pure("observe", state, lambda: self.env.observe(state, agent), **where)
        chat = isinstance(messages, list) and messages
        problem = next(filter(None, map(no_message, messages)), "") if chat else _quoted(messages)
        roles = " | ".join(map(repr, ROLES))
        advice = f"observe gave {problem}; give a list of {{'role': {roles}, 'content': text}}"
        self.law("observe gives chat messages", not problem, advice, **where)
        if player == "demonstrate":
            return self.call("demonstrate", lambda: self.env.demonstrate(state, agent, rng), where)
        once = player == "long" and self.turns[agent]  # else the history would grow without bound
        return hostile("cut" if once else player, transcript(messages), rng)

    def step(self, step: Step, acting: tuple[str, ...], **where) -> None:
        validate_step(self.env, step, acting, self.place(where))
        for name, allowed in (("local_rewards", {*acting, *self.turns}), ("valid", set(acting))):
            problem = f"step.{name} has {sorted(getattr(step, name))}, but only {sorted(allowed)} may be named"
            self.law("others have no entry", set(getattr(step, name)) <= allowed, problem, **where)
        shared = step.team_reward if self.game else 0
        problem = f"team_reward is {shared} in a competitive env; what an agent earns there is its local reward"
        self.law("a game has no team reward", shared == 0, problem, **where)


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}... ({len(text)} characters)"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def equal(first: Any, second: Any) -> bool:
    """Return True if two objects are equal, or have equal pickles (for classes without their own equality)."""
    with suppress(ValueError):  # arrays are compared element by element
        if bool(first == second):
            return True
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        kind = type(first).__name__
        raise EnvError(f"a {kind} has neither equality nor a pickle ({error}); use frozen dataclasses") from None
