"""Scoring a team: avg@k, unbiased pass@k, turns, tokens, seconds and cost per agent, with intervals over tasks.

Evaluation has a random stream of its own and never touches weights. Leaves out: drawing the scores (`widgets`).
"""

import time
from collections.abc import Mapping, Sequence
from math import comb

import numpy as np
import pandas as pd

from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.env import Env, Task
from mas_lab.team import Sampling, Team

STREAM = -1
"""The `step` under which evaluation draws; training counts from 0."""


def evaluate(
    env: Env,
    team: Team,
    tasks: Sequence[Task],
    k: int = 1,
    swap: tuple[str, str] | None = None,
    seed: int = 0,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    price: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Play each task `k` times: a row per (task, agent).

    Columns: `success`, the share of the k episodes that reached the goal (avg@k); `pass@j` for j = 1, 2, 4, ... k, the
    unbiased estimate 1 - C(k - c, j) / C(k, j) for c successes (Chen et al. 2021, arXiv 2107.03374); `return`, the
    mean episode return; and per agent and episode its `turns`, `tokens`, `invalid` outputs and, where a `price` per
    agent and token is given, `cost`. `seconds` is the wall time of the whole evaluation per episode.
    `swap` exchanges the policies of two roles. `sampling` overrides the team's: `Sampling(temperature=0)` is greedy.
    `summary(scores)` gives means with 95 % intervals over tasks.
    """
    if k < 1:
        raise ValueError(f"evaluate: k={k}; a task is played at least once")
    strangers = [agent for agent in (*(swap or ()), *(price or {})) if agent not in env.agents]
    if not tasks:
        raise ValueError("evaluate: no tasks; pass env.tasks(n, split='test', seed=...)")
    if swap is not None and len(swap) != 2:
        raise ValueError(f"evaluate: swap={swap!r}; name the two roles whose policies are exchanged")
    if strangers:
        raise ValueError(f"evaluate: unknown agent {strangers[0]!r}; the env plays {', '.join(env.agents)}")
    playing = team.swapped(*swap) if swap else team
    playing = playing.with_sampling(sampling) if sampling is not None else playing
    start = time.perf_counter()
    turns = rollout(env, playing, tasks, episodes(k), seed=seed, step=STREAM)
    seconds = (time.perf_counter() - start) / (len(tasks) * k)
    scores = _per_task(turns, tasks, k).merge(_per_agent(turns, tasks, env.agents, k), on="task")
    if price is not None:
        scores["cost"] = scores["tokens"] * scores["agent"].map(price).fillna(0.0)
    return scores.assign(seconds=seconds)


def _per_task(turns: pd.DataFrame, tasks: Sequence[Task], k: int) -> pd.DataFrame:
    steps = turns.drop_duplicates(["episode", "depth"])
    episode = steps.sort_values("depth").groupby("episode").agg(
        task=("task", "first"), earned=("team_reward", "sum"), success=("success", "last")
    )  # fmt: skip
    by_task = episode.groupby("task")
    scores = pd.DataFrame({"success": by_task["success"].mean(), "return": by_task["earned"].mean()})
    reached = by_task["success"].sum().astype(int)
    for j in sorted({2**power for power in range(k.bit_length())} | {k}):
        scores[f"pass@{j}"] = [pass_at(j, k, c) for c in reached]
    return scores.reindex([task.id for task in tasks]).rename_axis("task").reset_index()


def pass_at(j: int, n: int, c: int) -> float:
    """Unbiased estimate of the chance that one of `j` episodes succeeds, from `c` successes in `n` >= j episodes."""
    if j > n:
        raise ValueError(f"pass@{j} cannot be estimated from {n} episodes; play at least {j}")
    return 1.0 - comb(n - c, j) / comb(n, j)


def _per_agent(turns: pd.DataFrame, tasks: Sequence[Task], agents: Sequence[str], k: int) -> pd.DataFrame:
    counted = turns.assign(tokens=turns["completion_ids"].map(len), invalid=~turns["valid"].astype(bool), turns=1)
    every = pd.MultiIndex.from_product([[task.id for task in tasks], agents], names=["task", "agent"])
    total = counted.groupby(["task", "agent"])[["turns", "tokens", "invalid"]].sum().reindex(every, fill_value=0)
    return (total / k).reset_index()


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per agent: the mean over tasks of every number, and `<name>_ci`, half its 95 % interval over tasks."""
    numbers = [name for name in scores.columns if name not in ("task", "agent")]
    by_agent = scores.groupby("agent", sort=False)[numbers]
    half = 1.96 * by_agent.std(ddof=1) / np.sqrt(by_agent.size()).to_numpy()[:, None]
    return by_agent.mean().join(half.add_suffix("_ci")).reset_index()
