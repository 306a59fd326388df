"""Scores of a team: avg@k, unbiased pass@k, turns, tokens and cost per agent, and time, with intervals over tasks.

Evaluation has a random stream of its own and never changes weights. Leaves out: pictures of the scores (`widgets`).
"""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.episode import EpisodeState, Plan
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import play_tasks
from mas_lab.env import Env, Task
from mas_lab.team import Sampling, Team

STREAM = -1
"""The `step` of evaluation's random draws; training counts from 0."""
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
) -> pd.DataFrame:
    """Play each task several times and score the team.

    Args:
        env: The environment.
        team: The team that plays.
        tasks: The tasks, such as `env.tasks(n, split="test", seed=...)`.
        k: Episodes per task.
        swap: Two agents whose policies are exchanged. `None`: no exchange.
        seed: Seed of the draws.
        sampling: Settings in place of the team's, for all agents or by agent. `Sampling(temperature=0)` is greedy, and
            only here `top_p` and `top_k` are allowed. `None`: the team's settings.
        price: {agent: (price of a prompt token, price of a completion token)} in any currency. An agent that is not
            named is free. `None`: no column `cost`.
        workers: Threads for `env.step`, as in `rollout`. `None`: no threads.

    Returns:
        A table with a row per (task, agent). The columns are described below and by `lab.schema("evaluate")`.

    Raises:
        ValueError: `k` is below 1, there are no tasks, or `swap` or `price` names an unknown agent.
        RolloutError: The env or a policy fails.

    Columns of the whole task: `success` is the share of the k episodes that reached the goal (avg@k), and `return` is
    the mean episode return. `pass@j` for j = 1, 2, 4, ... k is the unbiased estimate 1 - C(k - c, j) / C(k, j) for c
    successes (Chen et al. 2021, arXiv 2107.03374).

    Columns of an agent, per episode: `own_return` is the sum of its local rewards. `turns` counts its calls, `tokens`
    the tokens that it said, and `prompt_tokens` the tokens that it read (each prompt in full, as if nothing were
    cached). `invalid` counts its outputs that the environment did not understand. `cost` is only there with `price`.

    Columns of time: `latency` is the mean number of seconds from an episode's start to its end over the task's k
    episodes. All len(tasks) * k episodes start at once and wait for each other. If the engine answers in waves, they
    wait for the longest completion of a wave. For the latency of a single user, play one task with k=1. `throughput` is
    the number of episodes per second of the whole evaluation, the same in all rows.

    If another thread trains the team, all episodes are played with the weights after one of its steps, and the training
    waits. `summary(scores)` gives means with 95 % intervals over tasks.
    """
    check_arguments(evaluate, locals(), k=1, workers=1)
    strangers = [agent for agent in (*(swap or ()), *(price or {})) if agent not in env.agents]
    if not tasks:
        raise ValueError("evaluate: no tasks; pass env.tasks(n, split='test', seed=...)")
    if strangers:
        raise ValueError(f"evaluate: unknown agent {strangers[0]!r}; the env plays {', '.join(env.agents)}")
    playing = team.swapped(*swap) if swap else team
    playing = playing.with_sampling(sampling) if sampling is not None else playing
    plan, start = TimedPlan(episodes(k)), time.perf_counter()
    turns = play_tasks(env, playing, tasks, plan, seed, workers, STREAM)
    throughput = len(tasks) * k / (time.perf_counter() - start)
    scores = _per_task(turns, tasks, k).merge(_per_agent(turns, tasks, env.agents, k), on="task")
    if price is not None:
        prices = np.array([price.get(agent, (0.0, 0.0)) for agent in scores["agent"]])
        scores["cost"] = (scores[["prompt_tokens", "tokens"]] * prices).sum(axis=1)
    latency = {task: sum(seconds) / k for task, seconds in plan.seconds.items()}
    return scores.assign(latency=scores["task"].map(latency), throughput=throughput)


@dataclass(frozen=True)
class TimedPlan:
    """A plan that records the seconds of each of its episodes, by task."""

    plan: Plan
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def instances(self) -> int:
        return self.plan.instances

    def __call__(self, episode: EpisodeState) -> Generator:
        start = time.perf_counter()
        yield from self.plan(episode)
        self.seconds.setdefault(episode.task.id, []).append(time.perf_counter() - start)


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
    """Return the unbiased estimate of the chance that at least one of `j` episodes succeeds.

    Args:
        j: Number of episodes in the estimate, at most `n`.
        n: Number of episodes that were played.
        c: Number of successes among them.

    Returns:
        pass@j, from 0 to 1.

    Raises:
        ValueError: `j` is larger than `n`.

    Chen et al. 2021, arXiv 2107.03374:

        pass@j = 1 - C(n - c, j) / C(n, j)
    """
    if j > n:
        raise ValueError(f"pass@{j} cannot be estimated from {n} episodes; play at least {j}")
    return 1.0 - comb(n - c, j) / comb(n, j)


def _per_agent(turns: pd.DataFrame, tasks: Sequence[Task], agents: Sequence[str], k: int) -> pd.DataFrame:
    lengths = {"tokens": turns["completion_ids"].map(len), "prompt_tokens": turns["prompt_ids"].map(len)}
    own = {"own_return": turns["local_reward"].astype(float), "turns": 1}
    counted = pd.DataFrame({**own, **lengths, "invalid": ~turns["valid"].astype(bool)})
    every = pd.MultiIndex.from_product([[task.id for task in tasks], agents], names=["task", "agent"])
    total = counted.groupby([turns["task"], turns["agent"]]).sum().reindex(every, fill_value=0)
    return (total / k).reset_index()


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over tasks of every score, with 95 % intervals.

    Args:
        scores: The table of `evaluate`.

    Returns:
        A table with a row per agent: the mean of each number, and `<name>_ci`, half of its 95 % interval over tasks.
        `throughput` has no interval, because it was measured once.

    The half interval is 1.96 * std / sqrt(number of tasks), with the sample standard deviation (ddof 1).
    """
    numbers = [name for name in scores.columns if name not in ("task", "agent")]
    by_agent = scores.groupby("agent", sort=False)[numbers]
    half = 1.96 * by_agent.std(ddof=1) / np.sqrt(by_agent.size()).to_numpy()[:, None]
    return by_agent.mean().join(half.drop(columns=OF_ALL, errors="ignore").add_suffix("_ci")).reset_index()
