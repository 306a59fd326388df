"""Would an agent's own baseline pay? Told from its credits alone, before anything is trained.

What decides is signal to noise, not how large advantages are. Agent k's gradient under a center is the sum over its
rows of (R - center) z, z = grad log pi. The global mean adds mu_k - mu to every advantage, which is noise; its own mean
takes that away, and some signal with it, since a row's own credit is in the mean that it is compared with. Let S_k and
S be the sums of its rows' squared differences to its own mean and to the global one, and c_k and c the weight that a
row's own episode has in either, in the mean over rows. A row that is alone has c_k = 1: it is compared with itself.
Then the squared signal-to-noise ratios of the two gradients stand as

    SNR^2(own) / SNR^2(global) = ((1 - c_k) / (1 - c))^2 S / S_k,

where a row's expected gradient is the same in all groups, and |z| has nothing to do with R. A flat group adds
nothing to S_k and its offset to S. For an agent that speaks once in an episode, if at all, c_k = 1 / n_k and c = 1 / N:
the ratio exceeds 1 where b^2 / sigma_k^2 exceeds (1 - n_k / N) / (n_k - 1), which is 1 / (n_k - 1) for large N.

In simulations of a tabular softmax policy that says 16 words, one of which decides its credit, the ratio is met within
15 % (1.4 to 6.4 rows a task, up to half of them lone, once or up to three times an episode, b^2 up to 20 sigma_k^2). Of
a policy of one word, whose gradient is nearly all signal, too much is told, up to 2.3 times; of a language model
where what is wrong is less probable, so that its z is larger, and lies nearer to the global mean, as low on a `ladder`.
Leaves out: the scale (a division by sigma_k weighs tasks otherwise), gradients (`diagnostics`), and what becomes of it
in training.
"""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.keyed import keyed
from mas_lab.table import TableError, require, trained

PAYS, COSTS = 1.25, 0.8
"""An own baseline "pays" where its gain is above the first, "costs" below the second, and "hardly matters" between."""
FEW = 10
"""Fewer rows give no verdict, and fewer degrees of freedom a warning."""
NUMBERS = ["rows", "n_k", "N", "lone", "flat", "signal", "offset", "threshold", "gain"]
UNKNOWN = "cannot be told"
RATIO = "its gradient's squared signal-to-noise ratio"


def advise(turns: pd.DataFrame, agents: Sequence[str] = (), by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """Would its own mean serve an agent better than a global one? A row per agent, `agents` first.

    `turns` has the columns task, episode, agent, credit; `step`, `policy` and `node` are used where they are there. It
    may be of any recipe: compared are the mean over an agent's rows in a task (`dr_mas_mean`) and the one over the
    task's episodes (`grpo`), in trees over all of its rows.

    `spoke`: the share of episodes in which it did. `rows` to `gain`: see `predicted`. `shared`: its policy speaks for
    other agents too (never, in a table without `policy`); their offsets then meet in one gradient, of which
    `policy_gain` is the gain, the agents' expected gradients taken for alike. Else `policy_gain` is `gain`.
    `own`: "pays", "hardly matters" or "costs", by `policy_gain` and the bounds `PAYS` and `COSTS`; "cannot be told" of
    an agent with fewer than `FEW` rows or whose credits do not vary. `why`: the same in words. An advice holds for the
    policies that played `turns`, and a gain in signal shows in training only as far as there was too little of it.

    `by`: ("agent",); with "step" too, a row for each step, by its rows alone; with "turn", each turn of an agent is
    taken for an agent of its own, which asks for a mean over (task, agent, turn). Turns of an agent share its weights:
    `gain` is of one turn's part of the gradient, `policy_gain` and so `own` of all that its weights learn from.

    Raises `TableError` where a column is missing or holds no number, or no row is left to judge by.
    """
    rows = _rows(turns, by)
    of = _speakers(rows, agents, by)
    codes = pd.Index(of.index, name="agent")
    rows = _coded(rows, of, by)
    found, weights = _parts(rows)
    table = _pooled(found, weights).set_index("agent").reindex(codes)
    table["name"] = [_name(row) for row in of.itertuples()]
    peers = _peers(rows, of)
    table["spoke"] = _spoke(rows, of).reindex(codes).fillna(0.0)
    table["rows"] = table["rows"].fillna(0).astype(int)
    table["shared"] = [bool(peers[code]) for code in codes]
    groups = {code: frozenset([code, *peers[code]]) for code in codes if peers[code]}
    gains = _together(found, weights, set(groups.values()))
    table["policy_gain"] = [gains[groups[code]] if code in groups else gain for code, gain in table["gain"].items()]
    table["own"] = [_verdict(row) for row in table.itertuples()]
    names = table["name"]
    table["why"] = [" ".join(_words(row, [names[peer] for peer in peers[row.Index]])) for row in table.itertuples()]
    told = of.join(table)
    return keyed(told[[*by, "own", "spoke", *NUMBERS, "shared", "policy_gain", "why"]].reset_index(drop=True), "advise")


def _speakers(rows: pd.DataFrame, agents: Sequence[str], by: Sequence[str]) -> pd.DataFrame:
    """A row for each that is judged, numbered: `agents` first, whether they spoke or not, but for turns not taken."""
    of = rows[list(by)].drop_duplicates()
    if "turn" not in by:
        steps = of[["step"]].drop_duplicates() if "step" in by else pd.DataFrame(index=[0])
        of = steps.merge(pd.DataFrame({"agent": list(dict.fromkeys([*agents, *of["agent"]]))}), how="cross")[list(by)]
    first = {agent: place for place, agent in enumerate(dict.fromkeys([*agents, *of["agent"]]))}
    order = of.assign(agent=of["agent"].map(first)).sort_values([name for name in ("step", "agent", "turn")
                                                                 if name in by]).index  # fmt: skip
    return of.loc[order].reset_index(drop=True)


def _coded(rows: pd.DataFrame, of: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The rows with the number of who is judged in the place of the agent; where weights are not told, its own."""
    policy = rows["policy"] if "policy" in rows.columns else rows["agent"]
    codes = rows[list(by)].merge(of.reset_index(names="code"), on=list(by), how="left")["code"]
    return rows.assign(policy=policy, agent=codes.to_numpy())


def _spoke(rows: pd.DataFrame, of: pd.DataFrame) -> pd.Series:
    """In which share of the episodes, or of its step's, each did."""
    named = [name for name in ("step", "task", "episode") if name in rows.columns]
    episode = rows.groupby(named, sort=False, observed=True).ngroup()
    of_step = rows["step"] if "step" in of.columns else pd.Series(0, rows.index)
    all_of = episode.groupby(of_step).nunique()
    own = episode.groupby(rows["agent"], sort=False, observed=True).nunique()
    return own / own.index.map(of["step"] if "step" in of.columns else pd.Series(0, of.index)).map(all_of)


def _name(row) -> str:
    return f"{row.agent} at turn {row.turn}" if hasattr(row, "turn") else str(row.agent)


def predicted(turns: pd.DataFrame) -> pd.DataFrame:
    """What its own mean is predicted to make of an agent's signal to noise: a row per agent, numbers alone.

    Groups are the agent's rows in a task (and step). `rows`: all of them. `n_k` = 1 / c_k and `N` = 1 / c, see the top
    of this file: rows a group and episodes a task, in the harmonic mean over rows, which is the plain mean over groups.
    Rows of one episode are compared with each other in vain and count as one, even where their credits differ, which
    is strict. `lone`, `flat`: the share of its rows in groups of one row, of several with one credit. `signal` =
    S_k / S, as in `pooled_inflation`. `offset`: b^2 / sigma_k^2, b = mu_k - mu in the unit of the credit, both pooled
    over groups with their degrees of freedom, so that it may fall below 0 where there is none. `threshold`:
    (1 - n_k / N) / (n_k - 1). `gain`: SNR^2(own) / SNR^2(global), above 1 exactly where `offset` is above `threshold`.

    Never in two episodes of a group: `gain` is 0 and `threshold` infinite. `offset` and `gain` are NaN where credits do
    not vary within the agent's groups, since that leaves sigma_k unknown, and where no task has two episodes (in trees:
    two rows).
    """
    return _pooled(*_parts(_rows(turns)))


def _rows(turns: pd.DataFrame, by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    if "agent" not in by or set(by) - {"step", "agent", "turn"}:
        raise ValueError(f"advise: by={by!r}; it is 'agent', and maybe 'step' and 'turn'")
    require(turns, ["task", "episode", "agent", "credit", *by], "advise", optional=["step", "policy", "node"])
    rows = turns[trained(turns)]
    if not len(rows):
        raise TableError("advise: the table has no row to judge by; pass the turns of a rollout, with their credits")
    return rows


def _parts(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`inflation`'s table, and for each row its agent and the weight of its own episode in both means."""
    unit = baseline_unit(rows)
    task = [rows[name] for name in ("step", "task") if name in rows.columns]
    own = [*task, rows["agent"]]

    def count(by: Sequence[pd.Series], of: str = "size", column: str = "credit") -> pd.Series:
        return rows[column].groupby(list(by), sort=False, observed=True).transform(of)

    if unit:
        c_k, c = count([*own, rows[unit]]) / count(own), 1 / count(task, "nunique", unit)
    else:  # who acts together shares a credit
        together = count([*task, rows["node"]], "nunique", "agent") if "node" in rows.columns else 1
        c_k, c = 1 / count(own), together / count(task)
    return pd.DataFrame(inflation(rows, once_per=unit)), pd.DataFrame({"agent": rows["agent"], "c_k": c_k, "c": c})


def _pooled(found: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    """`predicted`, a row per `agent` of both tables."""
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
    """Of each the others, of the same step, that speak with its weights."""
    spoken = rows.groupby("agent", sort=False, observed=True)["policy"].agg(set).to_dict()
    step = of["step"] if "step" in of.columns else pd.Series(0, of.index)
    return {
        one: [other for other in step.index[step == step[one]]
              if other != one and spoken.get(one, set()) & spoken.get(other, set())]
        for one in of.index
    }  # fmt: skip


def _together(
    found: pd.DataFrame, weights: pd.DataFrame, groups: Collection[frozenset[int]]
) -> dict[frozenset[int], float]:
    """The gain of the one gradient to which the agents of each group add."""
    gains = {}
    apart = sum(map(len, groups)) == len(frozenset().union(*groups))
    for batch in [list(groups)] if apart else [[group] for group in groups]:
        of = {code: place for place, group in enumerate(batch) for code in group}
        parts = (part[part["agent"].isin(of)].assign(agent=part["agent"].map(of)) for part in (found, weights))
        pooled = _pooled(*parts).set_index("agent")["gain"] if of else {}
        gains |= {group: float(pooled[place]) for place, group in enumerate(batch)}
    return gains


def _verdict(row) -> str:
    if row.rows < FEW or np.isnan(row.policy_gain) or np.isnan(row.gain):
        return UNKNOWN
    return "pays" if row.policy_gain > PAYS else "costs" if row.policy_gain < COSTS else "hardly matters"


def _words(row, peers: Sequence[str]) -> list[str]:
    """The verdict on an agent, in sentences."""
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
        told = [f"{said}{_aside(row)}.", f"{_offset(row)}; with its own mean, {RATIO} would be {_times(row.gain)}."]
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


def _aside(row) -> str:
    shares = {"alone there": row.lone, "among equal credits": row.flat}
    told = [f"{_percent(share)} {what}" for what, share in shares.items() if share >= 0.005]
    return f" ({', '.join(told)})" if told else ""


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
