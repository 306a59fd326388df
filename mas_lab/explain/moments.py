"""What a global baseline does to each agent's advantages, by the rewards alone: how large, and how much of it signal.

With g = ((R - mu) / sigma) z, z = grad log pi with the loss weight in it, Dr. MAS (arXiv 2602.08847) shows
E|g_global|^2 = E|z|^2 F_k + Delta_k, where agent-wise statistics put 1 in the place of F_k.

One definition everywhere: an agent's F is the mean, over all of its rows, of the squared advantage that the global
baseline gives them; V is the same under its own baseline. A flat group's rows have advantage 0 and count as 0, as they
do in the gradient. So V is the share of its rows in groups that are not flat, and F of several tasks the mean of their
F_k over rows, a flat task's being 0. Leaves out: gradients (`diagnostics`) and pictures (`widgets`).
"""

from collections.abc import Sequence

import pandas as pd

from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import is_flat, normalize
from mas_lab.keyed import keyed
from mas_lab.table import TableError, require, trained

COMPARED = ["credit", "group", "center", "scale", "advantage"]


def inflation(turns: pd.DataFrame, once_per: str | None = "episode") -> pd.DataFrame:
    """How a global baseline scales each agent's advantages: a row per (task, agent), and per `step` if there is one.

    The task's N trajectories have mean `mu` and population standard deviation `sigma` of their credits; each counts
    once, with its mean credit (`once_per=None`: every row counts, for trees, where a task is one episode). Agent k's
    `n_k` rows have `mu_k` and `sigma_k`. Then `b_k` = (mu_k - mu) / sigma, `v_k` = sigma_k^2 / sigma^2 and
    `F_k` = v_k + b_k^2, the mean of the global advantage squared over the agent's rows; F_k <= N - 1 where the rows of
    a trajectory have one credit. `flat`: the task's credits are all alike or N = 1, so b_k, v_k, F_k and `signal` are
    NaN (`pooled_inflation` counts it); `flat_k`: the agent's own are, so that its own baseline gives it no gradient.

    `signal` = sigma_k^2 / (sigma_k^2 + (mu_k - mu)^2): F_k says how large the global advantages are, this how much of
    that is information. The offset mu_k - mu is the same in all of the agent's rows and teaches nothing. An own mean
    takes it away at the price of one degree of freedom, which pays, approximately, where signal < 1 - 1 / n_k, that is
    (mu_k - mu)^2 / sigma_k^2 > 1 / (n_k - 1). A small signal harms under Adam too, where a large norm need not.
    """
    require(turns, ["task", "agent", "credit", *([once_per] if once_per else [])], "inflation")
    rows = turns[trained(turns)]
    task = [*(["step"] if "step" in rows.columns else []), "task"]
    trajectories = _means(rows, [*task, once_per]).reset_index() if once_per else rows
    if once_per and len(trajectories) and (trajectories.groupby(task, observed=True).size() < 2).all():
        raise TableError(
            f"inflation: every task has a single {once_per}, so a global baseline over them compares nothing; "
            "pass once_per=None to count every row (trees), or sample more episodes per task"
        )
    every = _moments(trajectories, task).rename(columns={"n": "N"})
    own = _moments(rows, [*task, "agent"]).rename(columns=lambda name: f"{name}_k")
    table = own.reset_index().merge(every.reset_index(), on=task, how="left")
    sigma = table["sigma"].mask(table["flat"])
    table["b_k"] = (table["mu_k"] - table["mu"]) / sigma
    table["v_k"] = (table["sigma_k"] / sigma) ** 2
    table["F_k"] = table["v_k"] + table["b_k"] ** 2
    table["signal"] = _signal(table["sigma_k"] ** 2, _offset(table) ** 2)
    statistics = ["n_k", "b_k", "v_k", "F_k", "signal", "N", "mu", "sigma", "mu_k", "sigma_k", "flat", "flat_k"]
    return keyed(table[[*task, "agent", *statistics]], "inflation")


def pooled_inflation(found: pd.DataFrame, by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """A row per agent of `inflation`'s table: `n` rows in all, and over them `b`, `v`, `F` and `signal`. `by`: columns
    of that table, with "step" a row for each step.

    b, v and F are the means of b_k, v_k and F_k over rows; the rows of a flat task count as 0 (see the top of this
    file). `signal` is that of the pooled sigma_k^2 and (mu_k - mu)^2, in the units of the credit, to which a flat task
    adds nothing: a mean of the tasks' own ratios would give a task whose credits hardly differ the voice of one in
    which they do.
    """
    found = pd.DataFrame(found)
    squares = {"within": found["sigma_k"] ** 2, "offset": _offset(found) ** 2}
    parts = found[["b_k", "v_k", "F_k"]].fillna(0.0).assign(**squares).mul(found["n_k"], axis=0)
    summed = parts.assign(n=found["n_k"]).groupby([found[name] for name in by], sort=False, observed=True).sum()
    means = summed[["b_k", "v_k", "F_k"]].div(summed["n"], axis=0).set_axis(["b", "v", "F"], axis=1)
    signal = _signal(summed["within"], summed["offset"])
    return means.assign(signal=signal).reset_index().assign(n=summed["n"].to_numpy())


def _offset(found: pd.DataFrame) -> pd.Series:
    """mu_k - mu, and exactly 0 where they differ by rounding alone."""
    return (found["mu_k"] - found["mu"]).mask(is_flat(found["mu_k"], found["mu"]), 0.0)


def _signal(within: pd.Series, offset: pd.Series) -> pd.Series:
    """NaN where nothing varies and nothing is offset."""
    return within / (within + offset).where(within + offset > 0)


def _means(rows: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Mean credit per key, measured from the minimum, so that equal credits have exactly their value as mean."""
    credits = rows.groupby(list(by), sort=False, observed=True)["credit"]
    above = (rows["credit"] - credits.transform("min")).groupby([rows[name] for name in by], sort=False, observed=True)
    return (credits.min() + above.mean()).rename("credit")


def _moments(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Size, mean, population standard deviation, and whether nothing varies, per key."""
    credits = rows.groupby(list(by), sort=False, observed=True)["credit"]
    flat = is_flat(credits.min(), credits.max())
    return pd.DataFrame({
        "n": credits.size(), "mu": _means(rows, by), "sigma": credits.std(ddof=0).mask(flat, 0.0), "flat": flat,
    })  # fmt: skip


def baseline_unit(turns: pd.DataFrame) -> str | None:
    """What a global baseline counts: "episode", or None (every row) where no task has two episodes, as in a tree."""
    by = [name for name in ("step", "task") if name in turns.columns]
    return "episode" if (turns.groupby(by, observed=True)["episode"].nunique() > 1).any() else None


def both_baselines(turns: pd.DataFrame) -> dict[str, pd.Series]:
    """The advantages of the same credits under GRPO's baseline, `global`, and under Dr. MAS's, `agent`.

    A number per row: where the table's own advantages are lists, one number per token, they are no part of it.
    """
    require(turns, ["task", "episode", "agent", "credit"], "both_baselines")
    bare, credit = turns.drop(columns=[name for name in COMPARED if name in turns.columns]), turns["credit"]
    task = [name for name in ("step", "task") if name in bare.columns]
    together = group(bare, by=task, credit=lambda _: credit)
    apart = group(bare, by=[*task, "agent"], credit=lambda _: credit)
    return {
        "global": normalize(together, once_per=baseline_unit(turns))["advantage"],
        "agent": normalize(apart)["advantage"],
    }
