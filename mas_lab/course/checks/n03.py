"""Exercises of notebook 03: an agent's own baseline, its signal, when it pays, and harm that no norm shows."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import asked, close, same_rows, tables
from mas_lab.course.exercises import NotYet, exercise
from mas_lab.explain.moments import inflation

EPISODES, LEAST = 8, 3


@exercise(
    "03.1",
    "`turns.groupby([...])['credit']` with the two columns that name an own baseline; then `.transform('mean')`.",
    "pandas divides by n - 1 unless told otherwise: `.transform('std', ddof=0)`.",
    "A lone row has no deviation; `.where(scale > 0, 0.0)` keeps what is compared and makes the rest 0.",
)
def own_advantage(answer):
    for table in tables():
        compared = normalize(group(table, ("task", "agent"), episode_return()))
        yours = asked(answer, compared[["task", "episode", "agent", "turn", "credit"]])
        same_rows(yours, compared["advantage"], compared)
    return "lone and flat groups included"


@exercise(
    "03.2",
    "Three numbers are needed: the mean of all episodes, the mean of the agent's rows, and their variance.",
    "In the mean of all, an episode counts once, however many rows it has: mean by episode first, then mean of these.",
    "variance / (variance + (own mean - mean of all) ** 2), the variance with ddof=0.",
)
def signal(answer):
    for place, table in enumerate(_single_tasks()):
        found = inflation(table).set_index("agent")["signal"].dropna()
        for agent, ours in found.items():
            close(asked(answer, table, agent), ours, f"table {place}, {agent}", tolerance=1e-4)


def _single_tasks() -> Iterator[pd.DataFrame]:
    for table in tables(seed=3):
        scored = group(table, ("task", "agent"), episode_return())
        for _, own in scored.groupby("task"):
            yield own[["task", "episode", "agent", "turn", "credit"]].reset_index(drop=True)


@exercise(
    "03.3",
    "For each agent two numbers: (b / sigma_k) ** 2, and 1 / (n_k - 1). The own mean pays where the first is larger.",
    "A large offset is not enough: with hardly more than one row a task there is little to compare.",
)
def pays(candidates, answer):
    known = list(candidates["agent"])
    if not isinstance(answer, list | tuple | set) or not set(answer) <= set(known):
        raise NotYet(f"a list of names out of {', '.join(known)} is asked for")
    offset = (candidates["b"] / candidates["sigma_k"]) ** 2
    threshold = (1 - candidates["n_k"] / EPISODES) / (candidates["n_k"] - 1)
    right = set(candidates.loc[offset > threshold, "agent"])
    wrong = [agent for agent in known if (agent in right) != (agent in answer)]
    if wrong:
        raise NotYet(f"{len(known) - len(wrong)} of {len(known)} are right; look at the {wrong[0]} again")
    return "by offset and by the number of rows, not by the offset alone"


@exercise(
    "03.4",
    "F near 1 means that the critic's mean lies about one standard deviation of all rewards from everybody's mean.",
    "Half of the episodes at 1 and half near 0 have a deviation of 0.5, and their means lie 0.5 from the mean of all.",
    "Call the critic in the episodes near 0, and let their rewards differ by very little.",
)
def hidden_harm(rewards, called):
    rewards, called = _design(rewards, called)
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": r} for e, r in enumerate(rewards)]
    rows += [{"task": "t", "episode": e, "agent": "critic", "credit": rewards[e]} for e in called]
    critic = inflation(pd.DataFrame(rows)).set_index("agent").loc["critic"]
    if critic["flat"] or critic["flat_k"]:
        raise NotYet("all rewards of the critic's episodes are the same, so that it could learn nothing anyway")
    told = f"F = {critic['F_k']:.2f}, signal = {critic['signal']:.2f}"
    if not 0.9 <= critic["F_k"] <= 1.1:
        raise NotYet(f"{told}; F should lie between 0.9 and 1.1")
    if critic["signal"] >= 0.1:
        raise NotYet(f"{told}; signal should be below 0.1")
    return f"{told}: no norm would tell, and {1 - critic['signal']:.0%} of what it is taught is noise"


def _design(rewards, called) -> tuple[list[float], list[int]]:
    try:
        rewards, called = [float(reward) for reward in rewards], [int(episode) for episode in called]
    except (TypeError, ValueError):
        raise NotYet(
            "two lists of numbers are asked for: rewards, and the episodes in which the critic is called"
        ) from None
    if len(rewards) != EPISODES or not np.all((np.array(rewards) >= 0) & (np.array(rewards) <= 1)):
        raise NotYet(f"{EPISODES} rewards from 0 to 1 are asked for")
    if len(set(called)) != len(called) or not set(called) <= set(range(EPISODES)):
        raise NotYet(f"`called` holds episodes from 0 to {EPISODES - 1}, each at most once")
    if len(called) < LEAST:
        raise NotYet(f"the critic is called in {len(called)} episodes; at least {LEAST} are asked for")
    return rewards, called
