"""Scoring a team: avg@k, unbiased pass@k, turns, tokens and cost per agent, time, with intervals over tasks.

Evaluation has a random stream of its own and never touches weights. Leaves out: drawing the scores (`widgets`).
"""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb, isfinite
from numbers import Real

import numpy as np
import pandas as pd

from mas_lab.cells.episode import EpisodeState, Plan
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import play
from mas_lab.backends.workers import require_limit
from mas_lab.env import Env, Task
from mas_lab.team import Sampling, Team

STREAM = -1
"""The `step` under which evaluation draws; training counts from 0."""
OF_ALL = ["throughput"]
"""Numbers of the whole evaluation, which have no interval over tasks."""


def evaluate(
    env: Env,
    team: Team,
    tasks: Sequence[Task],
    k: int = 1,
    swap: tuple[str, str] | None = None,
    seed: int = 0,
    sampling: Sampling | Mapping[str, Sampling] | None = None,
    price: Mapping[str, tuple[float, float]] | None = None,
    workers: int | None = None,
    step_timeout: float | None = None,
) -> pd.DataFrame:
    """Play each task `k` times: a row per (task, agent).

    Columns: `success`, the share of the k episodes that reached the goal (avg@k); `pass@j` for j = 1, 2, 4, ... k, the
    unbiased estimate 1 - C(k - c, j) / C(k, j) for c successes (Chen et al. 2021, arXiv 2107.03374); `return`, the
    mean episode return; and per agent and episode its `own_return`, the sum of its local rewards, its `turns`, `tokens`
    said, `prompt_tokens` read (each prompt in full, as if nothing were cached), `invalid` outputs and, where a `price`
    is given, `cost`.
    `price`: {agent: (of a prompt token, of a completion token)}, in any currency; an agent that is not named is free.
    `latency`: seconds from an episode's start to its end, the mean over the task's k. All len(tasks) x k episodes start
    at once and wait for each other, for the longest of a wave where the engine answers in waves: play one task with k=1
    for what a lone user waits.
    `throughput`: episodes per second of the whole evaluation, one number in all rows.
    `swap` exchanges the policies of two roles. `sampling` overrides the team's: `Sampling(temperature=0)` is greedy,
    and here alone it may have `top_p` and `top_k`. `workers`, `step_timeout`: as in `rollout`.
    Beside a training in another thread, all episodes are played with the weights after one of its steps; it waits.
    `summary(scores)` gives means with 95 % intervals over tasks.
    """
    if k < 1:
        raise ValueError(f"evaluate: k={k}; a task is played at least once")
    require_limit(step_timeout, workers, "evaluate")
    _refuse_prices(price)
    strangers = [agent for agent in (*(swap or ()), *(price or {})) if agent not in env.agents]
    if not tasks:
        raise ValueError("evaluate: no tasks; pass env.tasks(n, split='test', seed=...)")
    if swap is not None and len(swap) != 2:
        raise ValueError(f"evaluate: swap={swap!r}; name the two roles whose policies are exchanged")
    if strangers:
        raise ValueError(f"evaluate: unknown agent {strangers[0]!r}; the env plays {', '.join(env.agents)}")
    playing = team.swapped(*swap) if swap else team
    playing = playing.with_sampling(sampling) if sampling is not None else playing
    plan, start = TimedPlan(episodes(k)), time.perf_counter()
    turns = play(env, playing, tasks, plan, seed, workers=workers, step=STREAM, step_timeout=step_timeout)
    throughput = len(tasks) * k / (time.perf_counter() - start)
    scores = _per_task(turns, tasks, k).merge(_per_agent(turns, tasks, env.agents, k), on="task")
    if price is not None:
        of_prompt, of_completion = (scores["agent"].map(lambda agent, end=end: price.get(agent, (0.0, 0.0))[end])
                                    for end in (0, 1))  # fmt: skip
        scores["cost"] = scores["prompt_tokens"] * of_prompt + scores["tokens"] * of_completion
    latency = {task: sum(seconds) / k for task, seconds in plan.seconds.items()}
    return scores.assign(latency=scores["task"].map(latency), throughput=throughput)


@dataclass(frozen=True)
class TimedPlan:
    """A plan that notes how long each of its episodes took, by task."""

    plan: Plan
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        return self.plan.instances

    def __call__(self, episode: EpisodeState) -> Generator:
        start = time.perf_counter()
        yield from self.plan(episode)
        self.seconds.setdefault(episode.task.id, []).append(time.perf_counter() - start)


def _is_price(one: object) -> bool:
    return isinstance(one, Real) and isfinite(one) and one >= 0


def _refuse_prices(price: Mapping[str, tuple[float, float]] | None) -> None:
    for agent, pair in (price or {}).items():
        if not isinstance(pair, Sequence) or len(pair) != 2 or not all(_is_price(one) for one in pair):
            raise ValueError(
                f"evaluate: the price of agent {agent!r} is {pair!r}; give two numbers of 0 or more, of a prompt token "
                "and of a completion token"
            )


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
    lengths = {"tokens": turns["completion_ids"].map(len), "prompt_tokens": turns["prompt_ids"].map(len)}
    counted = turns.assign(
        **lengths, invalid=~turns["valid"].astype(bool), turns=1, own_return=turns["local_reward"].astype(float)
    )
    every = pd.MultiIndex.from_product([[task.id for task in tasks], agents], names=["task", "agent"])
    names = ["own_return", "turns", "tokens", "prompt_tokens", "invalid"]
    total = counted.groupby(["task", "agent"])[names].sum().reindex(every, fill_value=0)
    return (total / k).reset_index()


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per agent: the mean over tasks of every number, and `<name>_ci`, half its 95 % interval over tasks (not of
    `throughput`, which was measured once)."""
    numbers = [name for name in scores.columns if name not in ("task", "agent")]
    by_agent = scores.groupby("agent", sort=False)[numbers]
    half = 1.96 * by_agent.std(ddof=1) / np.sqrt(by_agent.size()).to_numpy()[:, None]
    return by_agent.mean().join(half.drop(columns=OF_ALL, errors="ignore").add_suffix("_ci")).reset_index()
