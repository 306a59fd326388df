"""Compute what a global baseline does to each agent's advantages: their size, and the part that is signal.

Only rewards are needed. With g = ((R - mu) / sigma) z, where z is grad log pi times the loss weight, Dr. MAS (arXiv
2602.08847) shows E|g_global|^2 = E|z|^2 F_k + Delta_k. Agent-wise statistics put 1 in the place of F_k.

One definition holds everywhere: an agent's F is the mean, over all of its rows, of the squared advantage under the
global baseline. V is the same under its own baseline. Rows of a flat group have advantage 0 and count as 0, as they do
in the gradient. So V is the share of the agent's rows in groups that are not flat. F of several tasks is the mean of
their F_k over rows, with 0 for a flat task. Leaves out: gradients (`diagnostics`) and pictures (`widgets`).
"""

from collections.abc import Sequence
from operator import itemgetter

import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import is_flat, normalize, statistics_of
from mas_lab.display.documented_frame import documented
from mas_lab.explain.wrong_way import difference, wrong_way_share
from mas_lab.table import COMPARED, TableError, in_batch, require


def group_stats(turns: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (group, agent) with statistics of its credits.

    Args:
        turns: Table with `credit` and `group`. Without an `agent` column, a row per group is returned.

    Returns:
        A table with `size`, `mean`, `std` (population), `lone` and `flat`. If `turns` has a column `step`, there is a
        row per (`step`, group, agent), because a task that is drawn again is compared anew. After `normalize` there is
        also `dropped`, the number of rows with advantage 0 though their credit is not their center. With `local_reward`
        there is `wrong_way`: the share of |advantage| that reinforces less own reward than the agent's mean in the
        step, or discourages more. NaN without advantages.

    Raises:
        TableError: A column is missing, or a credit is not a finite number.

    `lone` means a single row, and `flat` means equal credits. If a group holds one agent, a lone or flat group has
    advantage 0 in all its rows and teaches nothing in this step.
    """
    require(turns, ["credit", "group"], "group_stats")
    turns = turns[in_batch(turns)].reset_index(drop=True)
    by = [*(["step"] if "step" in turns.columns else []), "group", *(["agent"] if "agent" in turns.columns else [])]
    credits = turns.groupby(by, sort=False, observed=True)["credit"]
    stats = credits.agg(size="size", mean="mean", std=lambda values: values.std(ddof=0), low="min", high="max")
    stats["lone"] = stats["size"] == 1
    stats["flat"] = is_flat(stats["low"], stats["high"])
    if {"center", "advantage"} <= set(turns.columns) and is_numeric_dtype(turns["advantage"]):
        dropped = (turns["advantage"] == 0) & ~is_flat(turns["credit"], turns["center"])
        stats["dropped"] = dropped.groupby([turns[name] for name in by], sort=False, observed=True).sum()
        if {"agent", "local_reward"} <= set(turns.columns):
            stats["wrong_way"] = wrong_way_share(turns, turns["advantage"], by)
    return documented(stats.drop(columns=["low", "high"]).reset_index(), "group_stats")


def inflation(turns: pd.DataFrame, once_per: str | None = "episode") -> pd.DataFrame:
    """Return how a global baseline scales each agent's advantages, a row per (task, agent).

    `F_k` is the size of the global advantages, and `signal` is the part of it that is information. The offset mu_k - mu
    is the same in all of the agent's rows and teaches nothing. A small signal harms under Adam too, where a large norm
    need not. Neither number foretold which agents an own mean helps (data/results/foretold).

    Args:
        turns: Table with the columns `task`, `agent` and `credit`, and `episode` for the default of `once_per`.
        once_per: Column of the trajectories. Each trajectory counts once in the task's statistics, with its mean
            credit. Default: "episode". `None` counts every row; use it for trees, where a task is one episode.

    Returns:
        A table with a row per (task, agent), and per `step` if `turns` has that column.
        - `N`, `mu`, `sigma`: number of the task's trajectories, and mean and population standard deviation of their
          credits.
        - `n_k`, `mu_k`, `sigma_k`: the same of the agent's rows.
        - `b_k` = (mu_k - mu) / sigma.
        - `v_k` = sigma_k^2 / sigma^2.
        - `F_k` = v_k + b_k^2, the mean squared global advantage over the agent's rows. F_k <= N - 1 if the rows of a
          trajectory have one credit.
        - `signal` = sigma_k^2 / (sigma_k^2 + (mu_k - mu)^2).
        - `flat`: all credits of the task are equal, or N = 1. Then b_k, v_k, F_k and `signal` are NaN
          (`pooled_inflation` counts the first three as 0).
        - `flat_k`: all credits of the agent are equal, so its own baseline gives it no gradient.

    Raises:
        TableError: A column is missing or holds no number, or every task has a single trajectory.
    """
    require(turns, ["task", "agent", "credit", *([once_per] if once_per else [])], "inflation")
    rows = turns[in_batch(turns)].reset_index(drop=True)
    task = [*(["step"] if "step" in rows.columns else []), "task"]
    every, own = statistics_of(rows, tuple(task), once_per), statistics_of(rows, (*task, "agent"), None)
    if once_per and len(rows) and (every["n"] < 2).all():
        raise TableError(
            f"inflation: every task has a single {once_per}, so a global baseline over them compares nothing; "
            "pass once_per=None to count every row (trees), or sample more episodes per task"
        )
    table = rows[[*task, "agent"]].assign(**_moments(every, ""), **_moments(own, "_k")).rename(columns={"n": "N"})
    table = table.drop_duplicates([*task, "agent"], ignore_index=True)
    sigma = table["sigma"].mask(table["flat"])
    table["b_k"] = (table["mu_k"] - table["mu"]) / sigma
    table["v_k"] = (table["sigma_k"] / sigma) ** 2
    table["F_k"] = table["v_k"] + table["b_k"] ** 2
    table["signal"] = _signal(table["sigma_k"] ** 2, _offset(table) ** 2)
    statistics = ["n_k", "b_k", "v_k", "F_k", "signal", "N", "mu", "sigma", "mu_k", "sigma_k", "flat", "flat_k"]
    return documented(table[[*task, "agent", *statistics]], "inflation")


def pooled_inflation(found: pd.DataFrame, by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """Return a row per agent of `inflation`'s table: `n` rows, and over them `b`, `v`, `F`, `signal` and `peerless`.

    `by` names the columns of that table to group by; with "step", there is a row for each step. b, v and F are the
    means of b_k, v_k and F_k over rows. The rows of a flat task count as 0 (see the top of this file).

    `signal` is computed from the pooled sigma_k^2 and (mu_k - mu)^2, in the units of the credit. A flat task adds
    nothing to them. A mean of the tasks' own ratios would give a task with almost equal credits the same weight as one
    in which credits differ. `peerless` is the share of rows that are alone or among equal credits in their task, of
    those in tasks whose credits vary. Only a global mean trains on them.
    """
    found = pd.DataFrame(found)
    squares = {"within": found["sigma_k"] ** 2, "offset": _offset(found) ** 2}
    counts = {"varied": ~found["flat"], "alone": ~found["flat"] & ((found["n_k"] == 1) | found["flat_k"])}
    parts = found[["b_k", "v_k", "F_k"]].fillna(0.0).assign(**squares, **counts).mul(found["n_k"], axis=0)
    summed = parts.assign(n=found["n_k"]).groupby([found[name] for name in by], sort=False, observed=True).sum()
    means = summed[["b_k", "v_k", "F_k"]].div(summed["n"], axis=0).set_axis(["b", "v", "F"], axis=1)
    signal = _signal(summed["within"], summed["offset"])
    peerless = summed["alone"] / summed["varied"].where(summed["varied"] > 0)
    return means.assign(signal=signal, peerless=peerless).reset_index().assign(n=summed["n"].to_numpy())


def _offset(found: pd.DataFrame) -> pd.Series:
    """Return mu_k - mu, and exactly 0 if they differ by rounding alone."""
    return difference(found["mu_k"], found["mu"])


def _signal(within: pd.Series, offset: pd.Series) -> pd.Series:
    """Return within / (within + offset), and NaN if both are 0."""
    return within / (within + offset).where(within + offset > 0)


def _moments(stats: pd.DataFrame, ending: str) -> dict[str, pd.Series]:
    """Return size, mean, population standard deviation and flatness of each row's group, from `statistics_of`."""
    flat = is_flat(stats["min"], stats["max"])
    sigma = (stats["squares"] / stats["n"].clip(lower=1)).pow(0.5).mask(flat, 0.0)
    moments = {"n": stats["n"], "mu": stats["mean"], "sigma": sigma, "flat": flat}
    return {f"{name}{ending}": values for name, values in moments.items()}


def baseline_unit(turns: pd.DataFrame) -> str | None:
    """Return the unit of a global baseline: "episode", or `None` (every row) if no task has two, as in a tree."""
    by = [name for name in ("step", "task") if name in turns.columns]
    return "episode" if (turns.groupby(by, observed=True)["episode"].nunique() > 1).any() else None


def both_baselines(turns: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the advantages of the same credits under GRPO's baseline, `global`, and Dr. MAS's, `agent`.

    Each row gets one number. The table's own advantages are not used, even if they are lists with one number per token.
    """
    require(turns, ["task", "episode", "agent", "credit"], "both_baselines")
    bare, credit = turns.drop(columns=COMPARED, errors="ignore").assign(known=turns["credit"]), itemgetter("known")
    task = [name for name in ("step", "task") if name in bare.columns]
    pooled, by_agent = group(bare, task, credit), group(bare, [*task, "agent"], credit)
    return {
        "global": normalize(pooled, once_per=baseline_unit(turns))["advantage"],
        "agent": normalize(by_agent)["advantage"],
    }
