"""Centers and scales that are more than a statistic of the row's group: each is a `Center` or `Scale` of cell 3.

`running_mean` learns from step to step. `shrunken_mean` also uses an agent's other tasks: a group of few rows says
little about the expected credit E[R] of agent k, so it mixes the group's mean with a prior. Without the row's own
episode, a baseline is independent of what the row says, so the expected gradient stays the same. The weight of n other
rows of the group is n tau^2 / (n tau^2 + sigma^2). Here sigma^2 is the variance within the agent's groups, and tau^2
the variance between the groups' expectations, both by the moments of an analysis of variance. This is the shrinkage of
James and Stein. Leaves out: means, maxima and deviations of groups (`normalization`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.normalization import is_flat, statistics_of
from mas_lab.table import in_batch, plain, require

COLUMNS = ["task", "episode", "agent", "credit", "group"]
AGENT, OWN = ["agent"], ["agent", "group"]


@dataclass(frozen=True)
class running_mean:
    """Baseline of SPIRAL: the running mean of the credits over steps, one mean for each value of `by`.

    With b the baseline and m the mean credit of the batch:

        b <- decay * b + (1 - decay) * m

    SPIRAL, arXiv 2506.24119, role-conditioned advantage estimation: by role, decay 0.95, no division.

    A row is compared with b from before its batch, as in the authors' code, because a baseline that contains the row's
    own credit is biased. Before the first batch there is no b: it starts at m of that batch, and the rows of that batch
    are compared with m. SPIRAL moves b with every game, so one batch moves it further. Here `after` moves b once by a
    batch. Rows that only value a candidate (`probe`) do not move b.

    Raises:
        ValueError: `decay` is outside [0, 1), or `by` is not a tuple of columns.
    """

    by: tuple[str, ...] = ("agent",)
    """Columns whose values have a baseline each. The default is one baseline per agent."""
    decay: float = 0.95
    """Weight of the old baseline, from 0 (no memory) to below 1."""
    once_per: str | None = "episode"
    """Column whose values each count once in m, with their mean credit. `None`: every row counts."""
    state: Mapping[str, Any] = field(default_factory=lambda: {"means": []}, repr=False, compare=False)
    """The baselines so far, `{"means": [[values of by, b], ...]}`."""

    def __post_init__(self):
        if isinstance(self.by, str) or not self.by:
            raise ValueError(f"running_mean: by={self.by!r} must be a tuple of columns, such as ('agent',)")
        check_arguments(running_mean, {"by": self.by, "decay": self.decay, "once_per": self.once_per})
        if not 0 <= self.decay < 1:
            raise ValueError(f"running_mean: decay={self.decay!r} must be from 0 (no memory) to below 1")

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return b of each row.

        Args:
            turns: Table with `credit`, the columns `by` and the column `once_per`.
        """
        keys, batch, means = self._batch(turns)
        return pd.Series([means.get(key, batch.get(key, 0.0)) for key in keys], turns.index, dtype=float)

    def after(self, turns: pd.DataFrame) -> "running_mean":
        """Return the center whose b this batch has moved.

        Args:
            turns: The table of the call.
        """
        _, batch, means = self._batch(turns)
        for key, m in batch.items():
            means[key] = self.decay * means[key] + (1 - self.decay) * m if key in means else m
        return replace(self, state={"means": [[list(key), b] for key, b in sorted(means.items(), key=repr)]})

    def _batch(self, turns: pd.DataFrame) -> tuple[list[tuple], dict[tuple, float], dict[tuple, float]]:
        """Return the key of each row (its values of `by`), and by key the mean of the batch m and the baseline b."""
        require(turns, [*self.by, "credit"], "running_mean")
        rows = turns[list(self.by)].astype(object).itertuples(index=False, name=None)
        keys = [tuple(map(plain, key)) for key in rows]
        mean = statistics_of(turns, tuple(self.by), self.once_per)["mean"]
        batch = {key: float(m) for key, m, counts in zip(keys, mean, in_batch(turns), strict=True) if counts}
        return keys, batch, {tuple(key): b for key, b in self.state["means"]}


@dataclass(frozen=True)
class pooled_deviation:
    """Scale: the pooled standard deviation within groups, one for all groups of each value of `by`.

        sqrt(sum over groups g of sum over rows i of (credit_i - mean_g)^2 / (rows - groups))

    This is the square root of the mean square within groups of an analysis of variance. Cell 2, `group`, defines the
    groups. A group with a single row adds nothing. `scale=("agent",)` is the total deviation instead, which also
    contains the differences between the groups of an agent.
    """

    by: tuple[str, ...] = ("agent",)
    """Columns whose values have a deviation each. The default is one deviation per agent."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the deviation of each row's agent (or other value of `by`), 0 if the credits never differ in a group.

        Args:
            turns: Table with `credit`, `group` and the columns `by`.
        """
        require(turns, [*self.by, "credit", "group"], "pooled_deviation")
        columns = [*self.by, "group"]
        stats = statistics_of(turns, tuple(columns), None)
        squares = stats["squares"].mask(is_flat(stats["min"], stats["max"]), 0.0)
        groups = turns[columns].assign(squares=squares, freedom=(stats["n"] - 1).clip(lower=0))
        groups = groups.drop_duplicates(columns).sort_values("squares")  # one order of summation for all orders of rows
        sums = groups.groupby(list(self.by), observed=True)[["squares", "freedom"]].sum()
        pooled = np.sqrt(sums["squares"] / sums["freedom"].clip(lower=1))
        keys = pd.MultiIndex.from_frame(turns[list(self.by)])
        found = pooled.reindex(keys if len(self.by) > 1 else keys.get_level_values(0)).fillna(0.0)
        return pd.Series(found.to_numpy(), turns.index, dtype=float)


@dataclass(frozen=True)
class group_mean:
    """Scale: the mean credit of the row's group, so that advantages are relative: (credit - mean) / mean.

    `max_rl` of prime-rl has it. A group whose mean is 0 or less gets advantage 0.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the mean credit of each row's group.

        Args:
            turns: Table with `credit` and `group`.
        """
        require(turns, ["credit", "group"], "group_mean")
        return statistics_of(turns, ("group",), None)["mean"]


@dataclass(frozen=True)
class shrunken_mean:
    """Center: the agent's mean, with a prior from the team and the agent's other tasks.

        center = w * mean of the agent's other episodes in the group
                 + (1 - w) * (mean of the task's other episodes + the agent's usual distance from the task's mean)

    The usual distance is a mean over the agent's rows in other tasks. w is the weight at the top of this file, for
    these distances.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the baseline of each row.

        Args:
            turns: Table with `task`, `episode`, `agent`, `credit` and `group`.
        """
        rows = _in_order(turns, "shrunken_mean")
        credit, one = rows["credit"], pd.Series(1.0, rows.index)
        others = elsewhere(rows, OWN, "episode", one)
        of_task, of_others = _task_means(rows)
        usual = elsewhere(rows, AGENT, "task", credit - of_task) / elsewhere(rows, AGENT, "task", one)
        own, prior = elsewhere(rows, OWN, "episode", credit) / others, of_others + usual
        share = share_of_own(rows, others, credit - of_task)
        mixed = share * own + (1 - share) * prior
        return _in_place(mixed.fillna(own).fillna(prior), turns)  # the known one, if the other is unknown


def _in_order(turns: pd.DataFrame, center: str) -> pd.DataFrame:
    """Return the rows that count, in an order that does not depend on that of `turns`: sums then have the same bits."""
    require(turns, COLUMNS, center)
    rows = turns.assign(credit=turns["credit"].astype(float)).reset_index(drop=True)[in_batch(turns).to_numpy()]
    names = ("task", "episode", "agent", "turn", "node", "candidate", "credit")
    return rows.sort_values([name for name in names if name in rows.columns])


def _in_place(center: pd.Series, turns: pd.DataFrame) -> pd.Series:
    """Return the baselines of `_in_order` on the index of `turns`; a row without one gets its own credit."""
    found = center.reindex(range(len(turns))).to_numpy()
    return pd.Series(found, turns.index).fillna(turns["credit"].astype(float))


def elsewhere(rows: pd.DataFrame, by: Sequence[str], part: str, values: pd.Series) -> pd.Series:
    """Return per row the sum of `values` over the rows equal in `by` but not in `part`; NaN if there are none."""
    keys = [[rows[name] for name in names] for names in (by, [*by, part])]
    every, own = (values.groupby(key, observed=True).transform("sum") for key in keys)
    size, own_size = (values.groupby(key, observed=True).transform("size") for key in keys)
    return (every - own).where(size > own_size)


def share_of_own(rows: pd.DataFrame, others: pd.Series, values: pd.Series) -> pd.Series:
    """Return the weight n tau^2 / (n tau^2 + sigma^2) of a group's `others`, n of them, per row.

    sigma^2 and tau^2 are the variances of `values` within the groups of an agent, and between their expectations. If
    they are unknown, because an agent has a single group or its values never differ, the weight is 1.
    """
    groups = rows.assign(value=values).groupby(OWN, observed=True)["value"]
    table = pd.DataFrame({"n": groups.size(), "mean": groups.mean(), "squares": groups.var(ddof=0) * groups.size()})
    agent = table.index.get_level_values("agent")
    n, count, squares = (
        table[name].groupby(agent).agg(how) for name, how in (("n", "sum"), ("n", "size"), ("squares", "sum"))
    )
    within = squares / (n - count).where(n > count)
    away = table["mean"] - ((table["n"] * table["mean"]).groupby(agent).sum() / n).loc[agent].to_numpy()
    between = (table["n"] * away**2).groupby(agent).sum() - (count - 1) * within
    tau_square = (between / (n - (table["n"] ** 2).groupby(agent).sum() / n).where(count > 1)).clip(lower=0)
    sigma_square, tau_square = (rows["agent"].map(found).astype(float) for found in (within, tau_square))
    return (others * tau_square / (others * tau_square + sigma_square)).fillna(1.0)


def _task_means(rows: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return the mean credit of the row's task, and of its task's other episodes; an episode counts once."""
    mean = rows.groupby(["task", "episode"], observed=True)["credit"].transform("mean")
    once = (~rows.duplicated(["task", "episode"])).astype(float)
    total, n = (part.groupby(rows["task"], observed=True).transform("sum") for part in (mean * once, once))
    return total / n, (total - mean) / (n - 1).where(n > 1)
