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
from copy import deepcopy
from functools import singledispatch
from typing import Any

import pandas as pd

from mas_lab.display.svg_rules import validate_svg
from mas_lab.env import Env, EnvError, Step, Task, env_option, no_message, not_plain, transcript

HOSTILE = ("nothing", "garbage", "cut", "long", "unicode")
"""Players besides the env's own `demonstrate`; each of them says something that no env expects."""
GARBAGE = "\x00 }{ <moves> 0/0 -1e999 \\boxed{ ```python\n] None"
UNICODE = "Ünïcode \u202e\u0301 \ud55c\uae00 \U0001f9ed \u2212\u00bd \ufeff\u2028 \u0660"
LONG = 20_000
"""Length of a very long text in characters."""
HARRIED = 2
"""Number of tasks that the hostile players play too, if the env has `demonstrate`."""
CLOSELY, THEN_EVERY = 16, 24
"""Every call is made twice in the first `CLOSELY` steps of an episode, and then in every `THEN_EVERY`-th step."""
EPSILON = 1e-9
UNPICKLED = (pickle.PicklingError, TypeError, AttributeError)
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
    return _Check(env).run(tasks, split, seed)


def hostile(player: str, prompt: str, rng: random.Random) -> str:
    """Return the answer of one of `HOSTILE` to a prompt."""
    if player == "cut":
        return " ".join(rng.choices(prompt[-2000:].split() or ["x"], k=rng.randint(1, 6)))
    if player == "long":
        return (f"{prompt or 'x'} " * (1 + LONG // max(1, len(prompt))))[:LONG]
    return {"nothing": "", "garbage": GARBAGE, "unicode": UNICODE}[player]


class _Check:
    def __init__(self, env: Env):
        self.env, self.name, self.times = env, getattr(env, "name", type(env).__name__), Counter()
        self.closely, self.seen = True, None
        self.game = bool(env_option(env, "competitive"))

    def run(self, tasks: int, split: str, seed: int) -> pd.DataFrame:
        self.attributes()
        own = ("demonstrate",) if hasattr(self.env, "demonstrate") else ()
        for number, task in enumerate(self.tasks(tasks, split, seed)):
            for player in (*own, *HOSTILE) if number < HARRIED or not own else own:
                self.episode(task, player, random.Random(f"{seed} {task.id} {player}"))
        return pd.DataFrame(self.times.items(), columns=["check", "times"])

    def law(self, check: str, holds: bool, problem: str, **where) -> None:
        """Count one more `check`, or raise an error with the `problem` and its place."""
        if not holds:
            raise self.error(problem, where)
        self.times[check] += 1

    def error(self, problem: str, where: Mapping[str, Any]) -> EnvError:
        place = "".join(f", {key} {_quoted(value)}" for key, value in where.items())
        return EnvError(f"env {self.name!r}{place}: {problem}")

    def call(self, name: str, function: Callable[[], Any], where: Mapping[str, Any]) -> Any:
        """Return the result of `function()`; an error in it is raised again with its place."""
        try:
            return function()
        except Exception as error:
            told = f"{name} failed: {type(error).__name__}: {error}; an env answers whatever is said"
            raise self.error(told, where) from error

    def pure(self, name: str, argument: Any, function: Callable[[], Any], **where) -> Any:
        """Return the result of `function()`.

        In a close look, `argument` must stay unchanged, and a second call must give the same.
        """
        if not self.closely:
            return self.call(name, function, where)
        if self.seen is None or self.seen[0] is not argument:
            self.seen = argument, self.call("copying a state", lambda: kept(argument), where)
        first = self.call(name, function, where)
        self.law(f"{name} leaves its argument alone", self.seen[1](argument), f"{name} changed what it was given; "
                 "build a new object instead (a frozen dataclass makes this mistake impossible), or begin with "
                 "state = copy.deepcopy(state)", **where)  # fmt: skip
        second = self.call(name, function, where)
        self.law(f"{name} gives the same answer twice", same(first, second), f"{name} gave two answers to one "
                 "question; draw no random numbers in it and keep nothing in the env", **where)  # fmt: skip
        return first

    def attributes(self) -> None:
        env = self.env
        for name in PARTS:
            self.law("has every part", hasattr(env, name), f"`{name}` is missing; see mas_lab.env.Env")
        agents = env.agents
        named = isinstance(agents, tuple) and agents and all(isinstance(agent, str) and agent for agent in agents)
        self.law("agents are names", named and len(set(agents)) == len(agents),
                 f"agents={agents!r}; give a tuple of different names")  # fmt: skip
        self.law("a game has two sides", len(agents) > 1 or not self.game,
                 f"competitive, with agents={agents!r}; a game needs two")  # fmt: skip
        self.law("max_turns is a count", _count(env.max_turns), f"max_turns={env.max_turns!r}; give an int from 1")
        self.law("max_return is finite", _finite(env.max_return), f"max_return={env.max_return!r}; give a number")
        most = env.max_tokens if isinstance(env.max_tokens, Mapping) else dict.fromkeys(agents, env.max_tokens)
        self.law("max_tokens are counts", all(_count(most.get(agent)) for agent in agents),
                 f"max_tokens={env.max_tokens!r}; give an int from 1, or one per agent")  # fmt: skip

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return the tasks to play, after a look at both splits under a few seeds."""
        contents: dict[str, dict[str, str]] = {"train": {}, "test": {}}
        for part, known in contents.items():
            for task in [task for s in range(seed, seed + 4) for task in self.drawn(n, part, s)]:
                text = self.plain(task)
                self.law("one id, one problem", known.setdefault(task.id, text) == text,
                         "two problems share this id; make it from the content", task=task.id)  # fmt: skip
        if not env_option(self.env, "splits_meet"):
            train, test = contents["train"], contents["test"]
            shared = [*(set(train) & set(test)), *(i for i, text in test.items() if text in set(train.values()))]
            self.law("train and test are disjoint", not shared, "in both splits; let the content decide its split "
                     "(a hash of it), or declare splits_meet = True where there are few tasks",
                     task=next(iter(shared), ""))  # fmt: skip
        return self.env.tasks(n, split, seed)

    def drawn(self, n: int, split: str, seed: int) -> list[Task]:
        where = {"split": split, "seed": seed}
        found = self.pure("tasks", (n, split, seed), lambda: self.env.tasks(n, split, seed), **where)
        tasks = isinstance(found, list) and all(isinstance(task, Task) for task in found)
        told = "" if tasks else f"tasks gave {_quoted(found)}; give a list of mas_lab.Task"
        self.law("tasks gives tasks", tasks, told, **where)
        twice = [name for name, count in Counter(task.id for task in found).items() if count > 1]
        self.law("task ids are unique", not twice, f"tasks({n}) has id {next(iter(twice), '')!r} twice", **where)
        self.law("tasks gives what was asked", len(found) == n,
                 f"tasks({n}) gave {len(found)}; if that is all there is, check fewer", **where)  # fmt: skip
        return found

    def plain(self, task: Task) -> str:
        problem = not_plain(dict(task.data), "data")
        self.law("task data is plain", not problem, f"data is not plain: {problem}", task=task.id)
        return json.dumps(dict(task.data), sort_keys=True)

    def episode(self, task: Task, player: str, rng: random.Random) -> None:
        self.closely = True
        state = self.pure("start", task, lambda: self.env.start(task), task=task.id)
        turns, total, own, steps, done = Counter(), 0.0, Counter(dict.fromkeys(self.env.agents, 0.0)), 0, False
        while not done:
            self.closely, self.seen = steps < CLOSELY or steps % THEN_EVERY == 0, None
            self.picture(state, task, turns)
            acting = self.acting(state, task, turns)
            actions = {agent: self.speak(player, state, agent, rng, task, turns) for agent in acting}
            where = {"task": task.id, "agent": "+".join(acting), "turn": turns[acting[0]]}
            said = actions[acting[0]] if len(acting) == 1 else actions
            step = self.pure("step", state, lambda s=state, a=actions: self.env.step(s, dict(a)), **where, text=said)
            self.step(step, acting, turns, **where)
            state, done, total, steps = step.state, step.done, total + step.team_reward, steps + 1
            own.update(step.local_rewards)
            turns.update(acting)
        self.picture(state, task, turns)
        if self.game:
            self.won(step, own, task)
        else:
            self.earned(step, total, task)

    def earned(self, last: Step, total: float, task: Task) -> None:
        best, success = self.env.max_return, last.success
        self.law("return within max_return", total <= best + EPSILON, f"returned {total}, above max_return={best}; "
                 "state the true bound", task=task.id)  # fmt: skip
        self.law("max_return means success", success or total < best - EPSILON, f"returned max_return={best} without "
                 "success; one of the two is wrong", task=task.id)  # fmt: skip
        self.law("success pays", total > 0 or not success, f"success, but the return is {total}", task=task.id)

    def won(self, last: Step, own: Mapping[str, float], task: Task) -> None:
        first, *others = self.env.agents
        for agent, earned in own.items():
            self.law("own return within max_return", earned <= self.env.max_return + EPSILON, f"earned {earned}, above "
                     f"max_return={self.env.max_return}; state the true bound", task=task.id, agent=agent)  # fmt: skip
        won = own[first] > max(own[other] for other in others) + EPSILON
        self.law("success is the first agent's win", last.success == won, f"success is {last.success} at the end, but "
                 f"the agents earned {dict(own)}; in a competitive env it says whether {first!r} earned the most",
                 task=task.id)  # fmt: skip

    def picture(self, state: Any, task: Task, turns: Counter) -> None:
        if hasattr(self.env, "draw"):
            where = {"task": task.id, "state after turns": dict(turns)}
            problem = validate_svg(self.pure("draw", state, lambda: self.env.draw(state), **where))
            self.law("draw gives a picture", not problem, f"what draw gave {problem}", **where)

    def acting(self, state: Any, task: Task, turns: Counter) -> tuple[str, ...]:
        acting = tuple(self.pure("acting", state, lambda: self.env.acting(state), task=task.id, turns=dict(turns)))
        self.law("somebody acts until it is done", bool(acting), f"nobody acts after turns {dict(turns)}, and no step "
                 "said done; return Step(done=True) from the last one", task=task.id)  # fmt: skip
        for agent in acting:
            where = {"task": task.id, "agent": agent, "turn": turns[agent]}
            self.law("those who act are known", agent in self.env.agents, f"not in agents={self.env.agents}", **where)
            self.law("ends within max_turns", turns[agent] < self.env.max_turns, "acts again after "
                     f"max_turns={self.env.max_turns}; the episode must be done by then", **where)  # fmt: skip
        self.law("nobody acts twice at once", len(set(acting)) == len(acting), f"acting is {acting}", task=task.id)
        return acting

    def speak(self, player: str, state: Any, agent: str, rng: random.Random, task: Task, turns: Counter) -> str:
        where = {"task": task.id, "agent": agent, "turn": turns[agent]}
        messages = self.pure("observe", state, lambda: self.env.observe(state, agent), **where)
        chat = isinstance(messages, list) and messages
        problem = next(filter(None, map(no_message, messages)), "") if chat else _quoted(messages)
        self.law("observe gives chat messages", chat and not problem, f"observe gave {problem}; give a list of "
                 "{'role': 'system' | 'user' | 'assistant' | 'tool', 'content': text}", **where)  # fmt: skip
        if player == "demonstrate":
            text = self.call("demonstrate", lambda: self.env.demonstrate(state, agent, rng), where)
            self.law("texts are texts", isinstance(text, str), f"demonstrate gave {text!r}; give a str", **where)
            return text
        once = player == "long" and turns[agent]  # else the history would grow without bound
        return hostile("cut" if once else player, transcript(messages), rng)

    def step(self, step: Step, acting: tuple[str, ...], turns: Counter, **where) -> None:
        kind = type(step).__name__
        self.law("step gives a Step", isinstance(step, Step), f"step gave {kind}; give mas_lab.Step", **where)
        spoken = {agent for agent in self.env.agents if turns[agent] or agent in acting}
        for name, allowed in (("local_rewards", spoken), ("valid", set(acting))):
            keys = set(getattr(step, name))
            self.law("one entry per agent that acted", set(acting) <= keys <= allowed,
                     f"step.{name} has {sorted(keys)}, but {sorted(acting)} acted, and {sorted(allowed)} may be named "
                     "(others have said nothing that could earn it)", **where)  # fmt: skip
        for name, value in (("team_reward", step.team_reward), *step.local_rewards.items()):
            self.law("rewards are finite", _finite(value), f"reward {name} is {value!r}; give a finite number", **where)
        shared = step.team_reward if self.game else 0
        self.law("a game has no team reward", shared == 0, f"team_reward is {shared} in a competitive env; what an "
                 "agent earns there is its local reward", **where)  # fmt: skip
        flags = {"success": step.success, "done": step.done, **{f"valid[{a}]": step.valid[a] for a in acting}}
        for name, value in flags.items():
            self.law("flags are bool", isinstance(value, bool), f"step.{name} is {value!r}; give a bool", **where)
        mapping = isinstance(step.info, Mapping)
        problem = not_plain(step.info, "info") if mapping else f"info is {step.info!r}; give a dict"
        self.law("info is plain", not problem, problem, **where)


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}... ({len(text)} characters)"


def _count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1


def _finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except TypeError:
        return False


def kept(value: Any) -> Callable[[Any], bool]:
    """Return a function that says whether an object is still equal to `value`, from a pickle or else from a copy."""
    try:
        before = pickle.dumps(value)  # much faster than a copy
    except UNPICKLED:
        copy = deepcopy(value)
        return lambda now: same(now, copy)
    return lambda now: pickle.dumps(now) == before or same(now, pickle.loads(before))


def same(first: Any, second: Any) -> bool:
    """Return True if two objects are equal, or have equal pickles (for classes without their own equality)."""
    try:
        if bool(first == second):
            return True
    except ValueError:  # arrays are compared element by element
        pass
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except UNPICKLED as error:
        kind = type(first).__name__
        raise EnvError(f"a {kind} has neither equality nor a pickle ({error}); use frozen dataclasses") from None
