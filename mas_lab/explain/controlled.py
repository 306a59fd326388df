"""A team whose reward statistics are set by hand: completions that a model really sampled, credits that are made up.

How far an agent's mean lies from the others', and how often it speaks, are two numbers here, so that what a global
baseline does to its gradient can be predicted on paper and measured beside it. Leaves out: learning anything.
"""

from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.grouping import group
from mas_lab.cells.losses import clipped
from mas_lab.cells.normalization import normalize
from mas_lab.cells.update import policy_steps
from mas_lab.explain.diagnostics import squared_scores
from mas_lab.explain.moments import COMPARED, both_baselines, inflation
from mas_lab.table import TableError, require
from mas_lab.team import Team

BASELINES = ("global", "agent")


def controlled(turns: pd.DataFrame, agent: str, called: int, shift: float, seed: int = 0) -> pd.DataFrame:
    """`turns` with `agent` left in the first `called` of each task's N trajectories, and credits made up.

    A trajectory in which the agent speaks earns `shift` less than one in which it does not, beside noise that has mean
    0 and standard deviation 1 on either side. With p = called / N, b = -shift (1 - p) / sigma, v = 1 / sigma^2 and
    sigma^2 = 1 + shift^2 p (1 - p), whatever the `seed` of the noise. Advantages are GRPO's.
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
    rng, credits, kept = np.random.default_rng(seed), {}, set()
    for task, episodes in every.items():
        with_agent = spoke[task][:called]
        kept.update(with_agent)
        for side, offset in ((with_agent, -shift), (sorted(set(episodes) - set(with_agent)), 0.0)):
            noise = rng.normal(size=len(side))
            credits.update(zip(side, (noise - noise.mean()) / noise.std() + offset, strict=True))
    rows = turns[(turns["agent"] != agent) | turns["episode"].isin(kept)].reset_index(drop=True)
    rows = rows.drop(columns=[name for name in COMPARED if name in rows.columns])
    return normalize(group(rows, by=("task",), credit=lambda table: table["episode"].map(credits)), once_per="episode")


def controlled_inflation(
    team: Team, turns: pd.DataFrame, agent: str, called: int, shift: float, draws: int = 8
) -> dict[str, Any]:
    """Squared gradient norm under the global over that under the agent's own baseline, predicted and measured.

    `F`: by the reward statistics alone; `predicted`: with the covariances of |z|^2 and the squared advantages, as in
    `baseline_ratio`; `measured`: mean |G|^2 under either; the last two over `draws` of the noise on the same
    completions. Costs a pass of each of the agent's rows, and two `update`s a draw.
    """
    tables = [controlled(turns, agent, called, shift, seed) for seed in range(draws)]
    batch = next(batch for batch in policy_steps(team, tables[0], clipped(0.2), "token") if agent in batch.samples)
    own = batch.rows.index[batch.rows["agent"] == agent]
    squares_R = squared_scores(batch, own)
    rows, whole = dict.fromkeys(BASELINES, 0.0), dict.fromkeys(BASELINES, 0.0)
    for table in tables:
        for name, advantages in both_baselines(table).items():
            rows[name] += (squares_R * advantages[own] ** 2).sum()  # a mean of these is E|z|^2 F + delta
            whole[name] += batch.norms_with(advantages)[1][agent] ** 2
    statistics = inflation(tables[0]).set_index("agent").loc[agent]
    return {
        "called": called, "shift": shift, "F": statistics["F_k"].mean(),
        "predicted": rows["global"] / rows["agent"], "measured": whole["global"] / whole["agent"],
    }  # fmt: skip
