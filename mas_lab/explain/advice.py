"""Predict from an agent's credits alone whether its own baseline would help, before any training.

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

Leaves out: the scale (a division by sigma_k changes the weights of tasks), gradients (`diagnostics`), and the effect on
training.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from mas_lab.display.documented_frame import documented
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.table import TableError, require, trained

PAYS, COSTS = 1.25, 0.8
"""An own baseline "pays" if its gain is above the first, "costs" below the second, else it "hardly matters"."""
FEW = 10
"""Fewer rows give no verdict, and fewer degrees of freedom give a warning."""
NUMBERS = ["rows", "n_k", "N", "lone", "flat", "signal", "offset", "threshold", "gain"]
UNKNOWN = "cannot be told"
RATIO = "its gradient's squared signal-to-noise ratio"


def advise(turns: pd.DataFrame, agents: Sequence[str] = (), by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """Predict for each agent whether its own mean would serve it better than a global mean.

    The comparison is between the mean over an agent's rows in a task (`dr_mas_mean`) and the mean over the task's
    episodes (`grpo`). In trees, the second is the mean over all rows of the task. `turns` may come from any recipe.

    The advice holds for the policies that played `turns`. A gain in signal helps training only as far as the signal was
    too weak.

    Args:
        turns: Table with the columns `task`, `episode`, `agent` and `credit`. `step`, `policy` and `node` are used if
            present.
        agents: Agents that come first in the result, also those that never spoke. Default: none; agents follow in the
            order of `turns`.
        by: ("agent",), the default, gives a row per agent. With "turn", each turn of an agent is judged as an agent of
            its own, whose own mean is over (task, agent, turn).

    Returns:
        A table with a row per agent, and per `turn` if `by` names it. Its columns are:
        - `own`: "pays", "hardly matters" or "costs", from `policy_gain` and the bounds `PAYS` and `COSTS`. It is
          "cannot be told" for an agent with fewer than `FEW` rows, or whose gain is NaN.
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
        - `why`: the verdict in sentences.

    Raises:
        TableError: A column is missing or holds no number, or no row is left to judge.
        ValueError: `by` lacks "agent", or names another column.
    """
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
        _together(found, weights, [code, *peers[code]]) if peers[code] else gain for code, gain in table["gain"].items()
    ]
    table["own"] = [_verdict(row) for row in table.itertuples()]
    names = table["name"]
    table["why"] = [" ".join(_words(row, [names[peer] for peer in peers[row.Index]])) for row in table.itertuples()]
    told = of.join(table)
    return documented(
        told[[*by, "own", "spoke", *NUMBERS, "shared", "policy_gain", "why"]].reset_index(drop=True), "advise"
    )


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
    rows = turns[trained(turns)]
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
        together = count([*task, rows["node"]], "nunique", "agent") if "node" in rows.columns else 1
        c_k, c = 1 / count(own), together / count(task)
    return pd.DataFrame(inflation(rows, once_per=unit)), pd.DataFrame({"agent": rows["agent"], "c_k": c_k, "c": c})


def _pooled(found: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `NUMBERS`, a row per `agent` of both tables."""
    shares = pd.DataFrame({"lone": found["n_k"] == 1, "flat": found["flat_k"] & (found["n_k"] > 1)})
    shares = shares.mul(found["n_k"], axis=0).groupby(found["agent"], sort=False, observed=True).sum()
    table = pooled_inflation(found).rename(columns={"n": "rows"}).set_index("agent")
    mean = weights.groupby("agent", sort=False, observed=True)[["c_k", "c"]].mean()
    own, everyone = 1 - mean["c_k"], 1 - mean["c"]
    kept = own / everyone.where(everyone > 0)
    noise = 1 / table["signal"].where(table["signal"] > 0)
    table = table.join(shares.div(table["rows"], axis=0)).assign(
        n_k=1 / mean["c_k"], N=1 / mean["c"], offset=kept * noise - 1, threshold=1 / kept - 1,
        gain=(kept**2 * noise).mask(kept == 0, 0.0),
    )  # fmt: skip
    return table.reset_index()[["agent", *NUMBERS]]


def _peers(rows: pd.DataFrame, of: pd.DataFrame) -> dict[int, list[int]]:
    """Return for each row of `of` the other rows that use its weights."""
    spoken = rows.groupby("agent", sort=False, observed=True)["policy"].agg(set).to_dict()
    return {
        one: [other for other in of.index if other != one and spoken.get(one, set()) & spoken.get(other, set())]
        for one in of.index
    }


def _together(found: pd.DataFrame, weights: pd.DataFrame, group: Collection[int]) -> float:
    """Return the gain of the gradient that a group of agents shares."""
    parts = (part[part["agent"].isin(group)].assign(agent=0) for part in (found, weights))
    return float(_pooled(*parts)["gain"].iloc[0])


def _verdict(row) -> str:
    if row.rows < FEW or np.isnan(row.policy_gain) or np.isnan(row.gain):
        return UNKNOWN
    return "pays" if row.policy_gain > PAYS else "costs" if row.policy_gain < COSTS else "hardly matters"


def _words(row, peers: Sequence[str]) -> list[str]:
    """Return the verdict on an agent as sentences."""
    if not row.rows:
        return [f"{row.name} never spoke."]
    compared = f"{round(row.n_k, 9):.1f} rows to compare in a task"
    said = f"{row.name} spoke in {_percent(row.spoke)} of the episodes, with {compared}"
    if row.N == 1:
        return [f"{said}. Its tasks hold a single episode each, so that nothing is compared: sample more of them."]
    if row.n_k == 1:
        told = [f"{said}: never in two episodes of one, and its own mean would leave it nothing to learn from."]
    elif np.isnan(row.gain):
        return [f"{said}. Within a task its credits never differ, so that nothing tells its good turns from its bad."]
    else:
        shares = {"alone there": row.lone, "among equal credits": row.flat}
        aside = ", ".join(f"{_percent(share)} {what}" for what, share in shares.items() if share >= 0.005)
        said += f" ({aside})" if aside else ""
        told = [f"{said}.", f"{_offset(row)}; with its own mean, {RATIO} would be {_times(row.gain)}."]
    if row.rows < FEW:
        return [*told, f"Too few rows for a verdict ({row.rows}): roll out more tasks."]
    freedom = row.rows * (1 - 1 / row.n_k)
    if freedom < FEW and row.n_k > 1:
        told.append(f"This rests on {freedom:.0f} degrees of freedom: roll out more tasks to be sure.")
    if peers:
        others = f"{len(peers)} others" if len(peers) > 2 else " and ".join(map(str, peers))
        told.append(
            f"Its weights also speak for {others}: the ratio of the gradient that they share would be "
            f"{_times(row.policy_gain)}, and offsets that meet in one gradient have done less harm than apart."
        )
    return told


def _offset(row) -> str:
    away = np.sqrt(max(row.offset, 0.0))
    if away < 0.05:
        return "The global mean does not shift its credits"
    return (
        f"The global mean shifts its credits by {away:.1f} of their own standard deviations, and "
        f"{_percent(row.signal)} of its squared advantages is signal"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1g} %"


def _times(gain: float) -> str:
    if np.isnan(gain) or abs(gain - 1) < 0.005:
        return "unknown" if np.isnan(gain) else "the same"
    return f"{gain:.0f} times as high" if gain >= 10 else f"{gain:.2g} times as high"
