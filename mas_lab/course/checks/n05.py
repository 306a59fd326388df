"""Exercises of notebook 05: F and signal, positive advantages of wrong answers, and rewards designed by hand."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.course.compare import asked, close
from mas_lab.course.exercises import NotYet, exercise
from mas_lab.explain.moments import inflation

N = 8
SILENT = 0.1


@exercise(
    "05.1",
    "`rewards.mean()` and `rewards.var()` are μ and σ² of all trajectories; NumPy's `var` divides by n, as we do.",
    "F is the mean of `((own - rewards.mean()) / rewards.std()) ** 2`.",
    "Its parts are own.var() and (own.mean() - rewards.mean()) ** 2; signal is the first over their sum.",
)
def large_and_signal(answer: Callable) -> str:
    rng, told = np.random.default_rng(5), 0
    while told < 6:
        rewards = rng.integers(0, 5, N) / 4
        called = rng.choice(N, size=int(rng.integers(2, 7)), replace=False)
        found = _judged(rewards, called)
        if found["flat"] or not found["F_k"] > 0:
            continue
        yours = asked(answer, rewards, rewards[called])
        if not isinstance(yours, Iterable) or len(yours := list(yours)) != 2:
            raise NotYet("two numbers are asked for, (F, signal)")
        where = f"all {rewards.tolist()}, own {rewards[called].tolist()}"
        close(yours[0], found["F_k"], f"{where}: F", tolerance=1e-6)
        close(yours[1], found["signal"], f"{where}: signal", tolerance=1e-6)
        told += 1
    return "as `lab.inflation` has it"


@exercise(
    "05.2",
    "Leave only the wrong answers: `judged[~judged['right']]`. What is the lowest `global` advantage of each agent's?",
    "`wrong.groupby('agent')['global'].min() > 0` says of each agent whether all of its wrong answers are praised.",
)
def praised_for_anything(judged: pd.DataFrame, named: Any) -> str:
    if isinstance(named, str) or not isinstance(named, Iterable):
        raise NotYet("a set of agents' names is asked for")
    named, wrong = set(named), judged[~judged["right"].astype(bool)]
    lowest = wrong.groupby("agent", sort=False)["global"].min()
    if unknown := named - set(judged["agent"]):
        raise NotYet(f"there is no agent {sorted(map(str, unknown))[0]!r} in the table")
    for agent, least in lowest.items():
        if (agent in named) != (least > 0):
            why = "some wrong answers of its have an advantage below 0" if agent in named else "look at its wrong ones"
            raise NotYet(f"{agent}: {why}")
    if more := sorted(named - set(lowest.index)):
        raise NotYet(f"{more[0]} gave no wrong answer in this table")
    return f"{len(named)} of {judged['agent'].nunique()} agents"


@exercise(
    "05.3",
    "Few calls, and far below the others: the squared global advantages of all eight trajectories sum to 8.",
    "Call the critic twice, in the only trajectory that failed and in one that did not.",
)
def loud(rewards: Sequence[float], called: Sequence[int]) -> str:
    critic = _designed(rewards, called)
    if critic["flat_k"]:
        raise NotYet("all of the critic's own rewards are the same: its own baseline says nothing")
    if not critic["F_k"] > 3:
        raise NotYet(f"F = {critic['F_k']:.2f}")
    return f"F = {critic['F_k']:.2f}"


@exercise(
    "05.4",
    "Call it in more than half of the trajectories: the controlled team above had F below 1 there.",
    "Graded rewards: the critic's own ones differ a little (its stakes are small), and the others' lie far away.",
    "Others 1, 1 and 1; the critic's 0.2, 0.2, 0.2, 0.2 and 0.",
)
def quiet(rewards: Sequence[float], called: Sequence[int]) -> str:
    critic = _designed(rewards, called)
    if critic["flat_k"]:
        raise NotYet("all of the critic's own rewards are the same: there is nothing that it could learn")
    if critic["F_k"] > 1 + 1e-9:
        raise NotYet(f"F = {critic['F_k']:.2f}, above 1")
    if critic["signal"] > SILENT:
        raise NotYet(f"F = {critic['F_k']:.2f}, as asked; but signal = {critic['signal']:.2f}")
    return f"F = {critic['F_k']:.2f}, signal = {critic['signal']:.2f}"


def _designed(rewards: Sequence[float], called: Sequence[int]) -> pd.Series:
    if not isinstance(rewards, list | tuple) or len(rewards) != N or not all(0 <= one <= 1 for one in rewards):
        raise NotYet("eight rewards from 0 to 1 are asked for")
    if not isinstance(called, list | tuple) or len(set(called)) != len(called) or not set(called) <= set(range(N)):
        raise NotYet("`called` lists trajectories from 0 to 7, each at most once")
    if len(called) < 2:
        raise NotYet("a critic that is called once is compared with itself: call it twice or more")
    critic = _judged(rewards, called)
    if critic["flat"]:
        raise NotYet("all eight rewards are the same: no baseline says anything")
    return critic


def _judged(rewards: Sequence[float], called: Sequence[int]) -> pd.Series:
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": float(r)} for e, r in enumerate(rewards)]
    rows += [{"task": "t", "episode": int(e), "agent": "critic", "credit": float(rewards[e])} for e in called]
    return inflation(pd.DataFrame(rows)).set_index("agent").loc["critic"]
