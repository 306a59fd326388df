"""Centers of one agent that use more than the mean of a group: its other tasks, and how much a row moves the weights.

For agent k let R be the credit of a row and z its score, see `scores`. Without the row's own episode, a baseline is
independent of what the row says, so the expected gradient stays the same. Its noise is least at

    b* = E[|z|^2 R] / E[|z|^2] = E[R] + Cov(|z|^2, R) / E[|z|^2].

A group of few rows says little about b* or E[R], so both centers mix it with a prior from the agent's other tasks. The
weight of n other rows of the group is n tau^2 / (n tau^2 + sigma^2). Here sigma^2 is the variance within the agent's
groups, and tau^2 the variance between the groups' expectations, both by the moments of an analysis of variance. This is
the shrinkage of James and Stein. Leaves out: the other centers (`normalization`), and scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mas_lab.cells.scores import squared_scores
from mas_lab.table import require, trained
from mas_lab.team import Team

COLUMNS = ["task", "episode", "agent", "credit", "group"]
AGENT, OWN = ["agent"], ["agent", "group"]
LEAST = 1e-9
"""Smallest sum of |z|^2, relative to the agent's largest |z|^2, that is told from rounding errors."""


@dataclass(frozen=True)
class optimal_mean:
    """Center: the baseline of least noise, b* = sum |z|^2 R / sum |z|^2 over the agent's other episodes of the group.

        center = (1 - w) B + w * sum over others |z|^2 R / sum over others |z|^2

    B is the same ratio over all rows of the agent in other tasks. w is the weight at the top of this file, with n = sum
    over others |z|^2 / mean |z|^2. For a frozen agent, |z|^2 counts as 1. It costs a forward and a backward pass per
    row.
    """

    def __call__(self, turns: pd.DataFrame, team: Team | None = None) -> pd.Series:
        """Return the baseline of each row.

        Args:
            turns: Table with `task`, `episode`, `agent`, `credit`, `group`, and the columns of a rollout.
            team: The team that played `turns`, with the same weights.

        Returns:
            One baseline per row, on the index of `turns`.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
            ValueError: There is no team.
        """
        if team is None:
            raise ValueError("optimal_mean: it measures gradients; pass the team, recipe.advantages(turns, team)")
        rows = _in_order(turns, "optimal_mean")
        credit, square = rows["credit"], squared_scores(team, rows).fillna(1.0)
        others, rest = elsewhere(rows, OWN, "episode", square), elsewhere(rows, AGENT, "task", square)
        least = LEAST * square.groupby(rows["agent"], observed=True).transform("max")
        own = elsewhere(rows, OWN, "episode", square * credit) / others.where(others > least)
        prior = elsewhere(rows, AGENT, "task", square * credit) / rest.where(rest > least)
        unit = square.groupby(rows["agent"], observed=True).transform("mean")
        return _in_place(blended(own, prior, share_of_own(rows, others / unit, credit)), turns)


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

        Returns:
            One baseline per row, on the index of `turns`.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
        """
        rows = _in_order(turns, "shrunken_mean")
        credit, one = rows["credit"], pd.Series(1.0, rows.index)
        others = elsewhere(rows, OWN, "episode", one)
        of_task, of_others = _task_means(rows)
        usual = elsewhere(rows, AGENT, "task", credit - of_task) / elsewhere(rows, AGENT, "task", one)
        own = elsewhere(rows, OWN, "episode", credit) / others
        return _in_place(blended(own, of_others + usual, share_of_own(rows, others, credit - of_task)), turns)


def _in_order(turns: pd.DataFrame, center: str) -> pd.DataFrame:
    """Return the rows that count, in an order that does not depend on that of `turns`: sums then have the same bits."""
    require(turns, COLUMNS, center)
    rows = turns.assign(credit=turns["credit"].astype(float)).reset_index(drop=True)[trained(turns).to_numpy()]
    names = ("task", "episode", "agent", "turn", "node", "candidate", "credit")
    return rows.sort_values([name for name in names if name in rows.columns])


def _in_place(center: pd.Series, turns: pd.DataFrame) -> pd.Series:
    """Return the baselines of `_in_order` on the index of `turns`; a row without one gets its own credit."""
    found = center.reindex(range(len(turns))).to_numpy()
    return pd.Series(found, turns.index).fillna(turns["credit"].astype(float))


def elsewhere(rows: pd.DataFrame, whole: Sequence[str], part: str, values: pd.Series) -> pd.Series:
    """Return per row the sum of `values` over the rows equal in `whole` but not in `part`; NaN if there are none."""
    keys = [[rows[name] for name in names] for names in (whole, [*whole, part])]
    every, own = (values.groupby(key, observed=True).transform("sum") for key in keys)
    size, own_size = (values.groupby(key, observed=True).transform("size") for key in keys)
    return (every - own).where(size > own_size)


def blended(own: pd.Series, prior: pd.Series, share: pd.Series) -> pd.Series:
    """Return share * own + (1 - share) * prior; if one of them is unknown (NaN), the other."""
    return (share * own + (1 - share) * prior).fillna(own).fillna(prior)


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
