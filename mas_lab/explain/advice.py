"""Predict whether an agent's own baseline would help, before any training: from its credits, and from its gradients.

The criterion is the signal-to-noise ratio, not the size of advantages. Agent k's gradient under a center is the sum
over its rows of (R - center) z, with z = grad log pi. The global mean mu adds mu_k - mu to every advantage, which is
noise. The agent's own mean mu_k removes this noise. It also removes some signal, since each row's own credit is part of
the mean that it is compared with.

Let S_k and S be the sums of the rows' squared differences to the own mean and to the global mean. Let c_k and c be the
weight of a row's own episode in either mean, averaged over rows. A lone row has c_k = 1: it is compared with itself.
The squared signal-to-noise ratios of the two gradients then have the ratio

    SNR^2(own) / SNR^2(global) = ((1 - c_k) / (1 - c))^2 S / S_k,

if a row's expected gradient is the same in all groups, and |z| is independent of R. A flat group adds nothing to S_k,
but its offset to S. For an agent that speaks at most once per episode, c_k = 1 / n_k and c = 1 / N. The ratio then
exceeds 1 if b^2 / sigma_k^2 exceeds (1 - n_k / N) / (n_k - 1), which is 1 / (n_k - 1) for large N.

The ratio was checked in simulations of a tabular softmax policy that says 16 words, one of which decides its credit. It
is accurate within 15 % (1.4 to 6.4 rows per task, up to half of them lone, one turn or up to three turns per episode,
b^2 up to 20 sigma_k^2). For a policy of one word, whose gradient is nearly all signal, it is up to 2.3 times too high.
It is also too high for a language model under two conditions: its wrong answers are less probable, so that their z is
larger, and they lie nearer to the global mean. The lower stages of `ladder` are an example.

In two tests that were fixed before their trainings, the gain did not foretell who learned more (docs/findings.md).
With the team, the verdict comes from gradients (`uphill`). Leaves out: the effect of the scale beyond a warning, and
the dependence between an agent's turns.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.display.documented_frame import documented
from mas_lab.explain.advice_words import (
    COSTS,
    FEW,
    LEAST_DIFFERENCE,
    MAY_COST,
    MAY_PAY,
    MOSTLY,
    PAYS,
    PEERLESS,
    UNKNOWN,
    UNTOLD,
    cosine_of,
    difference,
    sentences,
)
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.explain.uphill import uphill_of_table
from mas_lab.policy import SAMPLED
from mas_lab.table import TableError, require, trained
from mas_lab.team import Team

LEAST, TAIL = 3, 0.1
"""Rows of a group whose deviation counts for this ratio, and the share of groups left out at either end. Groups of two
normal credits of one deviation would have a ratio of 13, those of three 4.7."""
NUMBERS = ["rows", "n_k", "N", "lone", "flat", "signal", "offset", "threshold", "gain"]
GLOBAL, OWN = "grpo", "own_robust"
"""The recipes whose gradients are compared with a team."""


def advise(
    turns: pd.DataFrame, agents: Sequence[str] = (), by: Sequence[str] = ("agent",), team: Team | None = None
) -> pd.DataFrame:
    """Say for each agent whether its own mean may serve it better than a global mean.

    The comparison is between the mean over an agent's rows in a task (`dr_mas_mean`) and the mean over the task's
    episodes (`grpo`). In trees, the second is the mean over all rows of the task. `turns` may come from any recipe.

    The advice holds for the policies that played `turns`, which should be as many as in a training step. From credits
    alone, `gain` leaves out how much each row moves the weights, whether the signal is high already, and the scale.

    Args:
        turns: Table with the columns `task`, `episode`, `agent` and `credit`. `step`, `policy` and `node` are used if
            present.
        agents: Agents that come first in the result, also those that never spoke. Default: none; agents follow in the
            order of `turns`.
        by: ("agent",), the default, gives a row per agent. With "turn", each turn of an agent is judged as an agent of
            its own, whose own mean is over (task, agent, turn).
        team: The team that played `turns`, with the same weights. It adds the columns `cos_grpo` and `cos_own_robust`,
            which decide then. The tasks are dealt to twelve parts that take the place of the rollouts of `uphill`, so
            there should be fifty or more; `lab.uphill(team, env)` plays its own. It costs four forward and backward
            passes over all rows.

    Returns:
        A table with a row per agent, and per `turn` if `by` names it. Its columns are:
        - `own`: "may pay", "hardly matters" or "may cost", from `policy_gain` and the bounds `PAYS` and `COSTS`. With a
          team it is from `cos_own_robust` - `cos_grpo` and the bound `LEAST_DIFFERENCE`, for an agent whose gradients
          tell. It is "mostly without a peer" if `peerless` is above `MOSTLY`: what matters then is whether such rows
          are trained on. It is "cannot be told" for an agent with fewer than `FEW` rows, or whose gain is NaN.
        - `spoke`: the share of episodes in which the agent spoke.
        - `rows` counts all of its rows. `n_k` = 1 / c_k and `N` = 1 / c are rows per group and episodes per task, see
          the top of this file; groups are the agent's rows in a task (and step). Both are harmonic means over rows,
          which are plain means over groups. Rows of one episode count as one, even if their credits differ, since a
          comparison between them shows nothing. This is strict.
        - `lone`: the share of the rows in groups of one row. `flat`: their share in groups of several rows with one
          credit. `signal` = S_k / S, as in `pooled_inflation`.
        - `offset` = b^2 / sigma_k^2 with b = mu_k - mu in units of the credit. Both are pooled over groups with their
          degrees of freedom, so `offset` may be below 0 if there is none.
        - `threshold` = (1 - n_k / N) / (n_k - 1). `gain` = SNR^2(own) / SNR^2(global), which is above 1 exactly if
          `offset` is above `threshold`. For an agent that never spoke in two episodes of a group, `gain` is 0 and
          `threshold` is infinite. `offset` and `gain` are NaN if credits do not vary within the agent's groups, since
          sigma_k is then unknown, or if no task has two episodes (in trees: two rows).
        - `shared`: whether its policy speaks for other agents too; `False` without a column `policy`.
        - `policy_gain`: the gain for all agents of its policy together, whose offsets meet in one gradient. It assumes
          that their expected gradients are alike. Without shared weights it equals `gain`. With "turn" in `by`, the
          turns of an agent share its weights: `gain` is for the part of one turn, `policy_gain` and `own` are for
          everything that the weights learn from.
        - `peerless`: the share of rows that only a global mean trains on: alone, or among equal credits, in a task
          whose credits vary. It is a share of the agent's rows in such tasks.
        - `sigma_ratio`: how far the agent's standard deviation differs between its groups, as the ratio of their upper
          to their lower tenth. Above `UNEVEN`, `why` warns of an own deviation per task. NaN if fewer than two groups
          have three rows and credits that vary.
        - `cos_grpo`, `cos_own_robust` (with a team): `cos_own` of `uphill` for either recipe (`cos_team` where own
          rewards never differ). NaN for an agent that does not learn or is "untold".
        - `why`: the verdict in sentences.

    Raises:
        TableError: A column is missing or holds no number, or no row is left to judge.
        ValueError: `by` lacks "agent" or names another column; with a team, it names "turn", or there is a single task.
        TypeError: An argument is of another type.
    """
    check_arguments(advise, {"agents": agents, "team": team})
    if team is not None and "turn" in by:
        raise ValueError(
            f"advise: by={by!r} with a team; an agent has one gradient for all of its turns, leave out team"
        )
    rows = _rows(turns, by)
    of = _speakers(rows, agents, by)
    codes = pd.Index(of.index, name="agent")
    rows = _coded(rows, of, by)
    found, weights = _parts(rows)
    table = _pooled(found, weights).set_index("agent").reindex(codes)
    table["name"] = [_name(row) for row in of.itertuples()]
    peers = _peers(rows, of)
    named = [name for name in ("step", "task", "episode") if name in rows.columns]
    episode = rows.groupby(named, sort=False, observed=True).ngroup()
    table["spoke"] = episode.groupby(rows["agent"]).nunique().reindex(codes, fill_value=0) / episode.nunique()
    table["rows"] = table["rows"].fillna(0).astype(int)
    table["shared"] = [bool(peers[code]) for code in codes]
    table["policy_gain"] = [
        _shared_gain(found, weights, [code, *peers[code]]) if peers[code] else gain
        for code, gain in table["gain"].items()
    ]
    table = table.join(_groups(found))
    if team is not None:
        table = table.join(_cosines(turns, team).reindex(of["agent"]).set_axis(codes))
    table["own"] = [_verdict(row) for row in table.itertuples()]
    names = table["name"]
    table["why"] = [" ".join(sentences(row, [names[peer] for peer in peers[row.Index]])) for row in table.itertuples()]
    advice = of.join(table)
    measured = [f"cos_{GLOBAL}", f"cos_{OWN}"] if team is not None else []
    columns = [*by, "own", "spoke", *NUMBERS, "shared", "policy_gain", "peerless", "sigma_ratio", *measured, "why"]
    return documented(advice[columns].reset_index(drop=True), "advise")


def _speakers(rows: pd.DataFrame, agents: Sequence[str], by: Sequence[str]) -> pd.DataFrame:
    """Return a numbered row for each agent that is judged, `agents` first; turns that were not taken have none."""
    names = pd.DataFrame({"agent": list(dict.fromkeys([*agents, *rows["agent"]]))})
    if "turn" not in by:
        return names
    return names.merge(rows[["agent", "turn"]].drop_duplicates().sort_values("turn"), on="agent")[list(by)]


def _coded(rows: pd.DataFrame, of: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Replace each agent by its number in `of`; without a column `policy`, each agent has its own weights."""
    policy = rows["policy"] if "policy" in rows.columns else rows["agent"]
    codes = rows[list(by)].merge(of.reset_index(names="code"), on=list(by), how="left")["code"]
    return rows.assign(policy=policy, agent=codes.to_numpy())


def _name(row) -> str:
    return f"{row.agent} at turn {row.turn}" if hasattr(row, "turn") else str(row.agent)


def _rows(turns: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    if "agent" not in by or set(by) - {"agent", "turn"}:
        raise ValueError(f"advise: by={by!r}; it is 'agent', and maybe 'turn'")
    require(turns, ["task", "episode", "agent", "credit", *by], "advise", optional=["step", "policy", "node"])
    rows = turns[trained(turns)].reset_index(drop=True)
    if not len(rows):
        raise TableError("advise: the table has no row to judge by; pass the turns of a rollout, with their credits")
    return rows


def _parts(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return `inflation`'s table, and for each row its agent and the weight of its episode in both means."""
    unit = baseline_unit(rows)
    task = [rows[name] for name in ("step", "task") if name in rows.columns]
    own = [*task, rows["agent"]]

    def count(by: Sequence[pd.Series], of: str = "size", column: str = "credit") -> pd.Series:
        return rows[column].groupby(list(by), sort=False, observed=True).transform(of)

    if unit:
        c_k, c = count([*own, rows[unit]]) / count(own), 1 / count(task, "nunique", unit)
    else:  # agents that act together share a credit
        acting = count([*task, rows["node"]], "nunique", "agent") if "node" in rows.columns else 1
        c_k, c = 1 / count(own), acting / count(task)
    return pd.DataFrame(inflation(rows, once_per=unit)), pd.DataFrame({"agent": rows["agent"], "c_k": c_k, "c": c})


def _pooled(found: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `NUMBERS`, a row per `agent` of both tables."""
    shares = pd.DataFrame({"lone": found["n_k"] == 1, "flat": found["flat_k"] & (found["n_k"] > 1)})
    shares = shares.mul(found["n_k"], axis=0).groupby(found["agent"], sort=False, observed=True).sum()
    table = pooled_inflation(found).rename(columns={"n": "rows"}).set_index("agent")
    mean = weights.groupby("agent", sort=False, observed=True)[["c_k", "c"]].mean()
    own, everyone = 1 - mean["c_k"], 1 - mean["c"]
    left = own / everyone.where(everyone > 0)
    noise = 1 / table["signal"].where(table["signal"] > 0)
    table = table.join(shares.div(table["rows"], axis=0)).assign(
        n_k=1 / mean["c_k"], N=1 / mean["c"], offset=left * noise - 1, threshold=1 / left - 1,
        gain=(left**2 * noise).mask(left == 0, 0.0),
    )  # fmt: skip
    return table.reset_index()[["agent", *NUMBERS]]


def _groups(found: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `peerless` and `sigma_ratio`, a row per `agent` of `inflation`'s table."""
    varied = found[~found["flat"]]
    rows = varied[["n_k"]].assign(alone=varied["n_k"].where((varied["n_k"] == 1) | varied["flat_k"], 0))
    rows = rows.groupby(varied["agent"], observed=True).sum()
    sigmas = found[(found["n_k"] >= LEAST) & ~found["flat_k"]].groupby("agent", observed=True)["sigma_k"]
    low, high = (sigmas.quantile(tail, interpolation=near) for tail, near in ((TAIL, "lower"), (1 - TAIL, "higher")))
    return pd.DataFrame({"peerless": rows["alone"] / rows["n_k"], "sigma_ratio": (high / low)[sigmas.size() > 1]})


def _peers(rows: pd.DataFrame, of: pd.DataFrame) -> dict[int, list[int]]:
    """Return for each row of `of` the other rows that use its weights."""
    spoken = rows.groupby("agent", sort=False, observed=True)["policy"].agg(set).to_dict()
    return {
        one: [other for other in of.index if other != one and spoken.get(one, set()) & spoken.get(other, set())]
        for one in of.index
    }


def _shared_gain(found: pd.DataFrame, weights: pd.DataFrame, group: Collection[int]) -> float:
    """Return the gain of the gradient that a group of agents shares."""
    parts = (part[part["agent"].isin(group)].assign(agent=0) for part in (found, weights))
    return float(_pooled(*parts)["gain"].iloc[0])


def _cosines(turns: pd.DataFrame, team: Team) -> pd.DataFrame:
    """Return both recipes' cosines, with a row per agent that learns; NaN where the gradients are untold."""
    require(turns, [*SAMPLED, "local_reward", "team_reward"], "advise")
    rows = turns[trained(turns)]
    if rows["task"].nunique() < 2:
        raise ValueError("advise: with a team, the table needs two tasks or more, and fifty to tell much")
    found = uphill_of_table(rows, [GLOBAL, OWN], team)
    known = cosine_of(found).mask(found["verdict"] == UNTOLD)
    return found.assign(known=known).pivot(index="agent", columns="recipe", values="known").add_prefix("cos_")


def _verdict(row) -> str:
    if row.rows >= FEW and row.peerless > MOSTLY:
        return PEERLESS
    if row.rows < FEW or np.isnan(row.policy_gain) or np.isnan(row.gain):
        return UNKNOWN
    if not np.isnan(apart := difference(row)):
        return MAY_PAY if apart >= LEAST_DIFFERENCE else MAY_COST if apart <= -LEAST_DIFFERENCE else "hardly matters"
    return MAY_PAY if row.policy_gain > PAYS else MAY_COST if row.policy_gain < COSTS else "hardly matters"
