"""Set the reward statistics of a team by hand: completions that were really sampled, with made-up credits.

Two numbers set how far an agent's mean lies from the others', and how often it speaks. So the effect of a global
baseline on its gradient can be predicted on paper and compared with a measurement. Leaves out: learning.
"""

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.cells.update import policy_batches
from mas_lab.explain.diagnostics import norms_with, squared_scores
from mas_lab.explain.moments import both_baselines, inflation
from mas_lab.losses import clipped
from mas_lab.table import COMPARED, TableError, require
from mas_lab.team import Team


def controlled(turns: pd.DataFrame, agent: str, called: int, shift: float, seed: int = 0) -> pd.DataFrame:
    """Return `turns` with made-up credits, and with `agent` in `called` of each task's N trajectories only.

    A trajectory in which the agent speaks earns `shift` less than one in which it does not. Noise with mean 0 and
    standard deviation 1 is added on either side. With p = called / N, b = -shift (1 - p) / sigma, v = 1 / sigma^2 and
    sigma^2 = 1 + shift^2 p (1 - p), for any `seed`.

    Args:
        turns: Table with the columns `task`, `episode` and `agent`. Earlier credits and advantages are dropped.
        agent: The agent whose statistics are set.
        called: Number of trajectories per task that keep the agent's rows: the first ones in which it spoke.
        shift: Difference of mean credit, in standard deviations of the noise.
        seed: Seed of the noise.

    Returns:
        The table with `credit`, `group`, `center`, `scale` and `advantage`. Advantages are GRPO's.

    Raises:
        TableError: A column is missing, or `called` is below 2 or too high. The agent must have spoken in so many
            trajectories of each task, and two others must remain without it.
    """
    require(turns, ["task", "episode", "agent"], "controlled")
    every = turns.groupby("task")["episode"].unique()
    own = turns[turns["agent"] == agent]
    spoke = {task: sorted(own.loc[own["task"] == task, "episode"].unique()) for task in every.index}
    most = min(min(len(spoke[task]), len(every[task]) - 2) for task in every.index)
    if not 2 <= called <= most:
        raise TableError(
            f"controlled: agent {agent!r} cannot be called in {called} trajectories of each task: 2 to {most} are "
            "possible, since it must have spoken in them, and 2 of a task's trajectories must do without it"
        )
    rng, credits, called_in = np.random.default_rng(seed), {}, set()
    for task, episodes in every.items():
        with_agent = spoke[task][:called]
        called_in.update(with_agent)
        for side, offset in ((with_agent, -shift), (sorted(set(episodes) - set(with_agent)), 0.0)):
            noise = rng.normal(size=len(side))
            credits.update(zip(side, (noise - noise.mean()) / noise.std() + offset, strict=True))
    rows = turns[(turns["agent"] != agent) | turns["episode"].isin(called_in)].reset_index(drop=True)
    rows = rows.drop(columns=COMPARED, errors="ignore")
    return normalize(group(rows, by=("task",), credit=lambda table: table["episode"].map(credits)), once_per="episode")


def controlled_inflation(
    team: Team, turns: pd.DataFrame, agent: str, called: int, shift: float, draws: int = 8
) -> dict[str, Any]:
    """Predict and measure how much the global baseline inflates an agent's squared gradient norm.

    Each ratio is the squared gradient norm under the global baseline over the one under the agent's own baseline. It
    costs one pass of each of the agent's rows, and two `update`s per draw. No step is made.

    Args:
        team: The team whose gradients are measured.
        turns: Table of a rollout of this team, with its completions.
        agent: The agent whose statistics are set, see `controlled`.
        called: Number of trajectories per task in which the agent speaks.
        shift: Difference of mean credit, in standard deviations of the noise.
        draws: Number of draws of the noise on the same completions. Default: 8.

    Returns:
        A dict with `called`, `shift` and three ratios. `F` is predicted from the reward statistics alone. `predicted`
        adds the covariances of |z|^2 and the squared advantages, as in `baseline_ratio`. `measured` is the ratio of the
        mean |G|^2. The last two are over all draws.

    Raises:
        TableError: See `controlled`.
    """
    tables = [controlled(turns, agent, called, shift, seed) for seed in range(draws)]
    [batches] = policy_batches(team, tables[0], clipped(0.2), "token")
    batch = next(batch for batch in batches if agent in batch.agents)
    own = batch.rows.index[batch.rows["agent"] == agent]
    squares_R = squared_scores(batch, own)
    rows, batches = Counter(), Counter()
    for table in tables:
        for name, advantages in both_baselines(table).items():
            rows[name] += (squares_R * advantages[own] ** 2).sum()  # a mean of these is E|z|^2 F + delta
            batches[name] += norms_with(batch, advantages)[1][agent] ** 2
    statistics = inflation(tables[0]).set_index("agent").loc[agent]
    return {
        "called": called, "shift": shift, "F": statistics["F_k"].mean(),
        "predicted": rows["global"] / rows["agent"], "measured": batches["global"] / batches["agent"],
    }  # fmt: skip
