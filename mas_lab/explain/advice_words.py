"""Say in sentences what `advise` found out about an agent.

Leaves out: the numbers and the verdict (`advice`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

PAYS, COSTS = 1.25, 0.8
"""An own baseline "may pay" if its gain is above the first, "may cost" below the second, else it "hardly matters"."""
LEAST_DIFFERENCE = 0.1
"""With a team: the least difference of cosines that speaks for one of two recipes."""
FEW = 10
"""Fewer rows give no verdict, and fewer degrees of freedom give a warning."""
MOSTLY = 0.5
"""An agent is "mostly without a peer" if more than this share of its rows is."""
UNEVEN = 5.0
"""Largest ratio of an agent's standard deviations in two of its groups without a warning."""
MAY_PAY, MAY_COST = "may pay", "may cost"
UNTOLD = "untold"
"""Verdict of `uphill` on too few rows or too wide an interval."""
UNKNOWN, PEERLESS = "cannot be told", "mostly without a peer"
RATIO = "its gradient's squared signal-to-noise ratio"


def headline(row) -> str:
    """Return the verdict on an agent in one sentence, with the number that decides it."""
    if row.own == PEERLESS:
        return f"Mostly without a peer: {_percent(row.peerless)} of its rows. Compare grpo with grpo_masked."
    if row.own == UNKNOWN:
        return "Cannot be told: " + (f"{row.rows} rows are too few." if row.rows < FEW else "its credits never differ.")
    if np.isnan(difference(row)):
        return f"An own mean {row.own}: × {row.policy_gain:.2g}."
    return f"An own mean {row.own}: cosine {row.cos_own_robust:+.2f} instead of {row.cos_grpo:+.2f}."


def cosine_of(found: pd.DataFrame) -> pd.Series:
    """Return the cosine behind each verdict of `uphill`: `cos_own`, or `cos_team` if own rewards never differ."""
    return found["cos_own"].fillna(found["cos_team"])


def directions(found: pd.DataFrame) -> list[str]:
    """Return a sentence per agent from the table of `uphill`: which recipes point uphill, which do not."""
    told, silent = [], found.groupby("agent", sort=False)["verdict"].agg(lambda verdict: (verdict == UNTOLD).all())
    for agent, rows in found[~found["agent"].map(silent)].groupby("agent", sort=False):
        ordered = rows.assign(cosine=cosine_of(rows)).sort_values("cosine", ascending=False, na_position="last")
        parts = [
            f"{row.recipe} {row.verdict}" + (f" ({row.cosine:+.2f})" if row.verdict != UNTOLD else "")
            for row in ordered.itertuples()
        ]
        told.append(f"{agent}: {', '.join(parts)}.")
    return [*told, f"{', '.join(silent.index[silent])}: untold."] if silent.any() else told


def difference(row) -> float:
    """Return the difference of the cosines of an own mean and of the global mean; NaN if they are untold."""
    return getattr(row, "cos_own_robust", np.nan) - getattr(row, "cos_grpo", np.nan)


def sentences(row, peers: Sequence[str]) -> list[str]:
    """Return the verdict on an agent as sentences."""
    if not row.rows:
        return [f"{row.name} never spoke."]
    compared = f"{round(row.n_k, 9):.1f} rows to compare in a task"
    spoke = f"{row.name} spoke in {_percent(row.spoke)} of the episodes, with {compared}"
    if row.N == 1:
        return [f"{spoke}. Its tasks have a single episode each, so that nothing is compared: sample more of them."]
    if row.n_k == 1:
        found = [f"{spoke}: never in two episodes of one, and its own mean would leave it nothing to learn from."]
    elif np.isnan(row.gain):
        return [f"{spoke}. Its credits never differ within a task, so its good turns cannot be told from its bad ones."]
    else:
        shares = {"alone there": row.lone, "among equal credits": row.flat}
        aside = ", ".join(f"{_percent(share)} {what}" for what, share in shares.items() if share >= 0.005)
        spoke += f" ({aside})" if aside else ""
        gain = f"; with its own mean, {RATIO} would be {_times(row.gain)}" if not peers else ""
        found = [f"{spoke}.", f"{_offset(row)}{gain}."]
    if row.rows < FEW:
        return [*found, f"Too few rows for a verdict ({row.rows}): roll out more tasks."]
    freedom = row.rows * (1 - 1 / row.n_k)
    if freedom < FEW and row.n_k > 1:
        found.append(f"This rests on {freedom:.0f} degrees of freedom: roll out more tasks to be sure.")
    found += _of_groups(row) + _of_gradients(row)
    if row.own in (MAY_PAY, MAY_COST):
        doubt = " In two tests on other settings this did not predict which agents gained."
        found.append(f"So its own mean {row.own}.{doubt if np.isnan(difference(row)) else ''}")
    if peers:
        others = f"{len(peers)} others" if len(peers) > 2 else " and ".join(map(str, peers))
        found.append(
            f"Its weights also speak for {others}. With own means, the squared signal-to-noise ratio of the gradient "
            f"that they share would be {_times(row.policy_gain)}; offsets that meet there have done less harm than "
            "apart."
        )
    return found


def _of_groups(row) -> list[str]:
    """Return what its groups make doubtful: rows without a peer, and unequal deviations."""
    doubts = []
    if row.peerless > MOSTLY:
        doubts.append(
            f"It is {PEERLESS}: {_percent(row.peerless)} of the rows that a global mean trains on are alone or among "
            "equal credits. What matters is whether such rows are trained on: compare grpo with grpo_masked."
        )
    if row.sigma_ratio > UNEVEN:
        doubts.append(
            f"Its standard deviation differs between its tasks by a factor of {row.sigma_ratio:.0f}: divided by the "
            "deviation of each task, its smallest differences weigh as much as its largest. Take one deviation per "
            "agent, as own_pooled does."
        )
    return doubts


def _of_gradients(row) -> list[str]:
    """Return what the team's gradients say, if they were measured."""
    if np.isnan(difference(row)):
        return []
    return [
        "The cosine of its gradient with the direction in which its own reward grows is "
        f"{row.cos_grpo:+.2f} under grpo, and {row.cos_own_robust:+.2f} under own_robust."
    ]


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
    if np.isnan(gain):
        return "unknown"
    times = f"{gain:.0f}" if gain >= 10 else f"{gain:.2g}"
    return "the same" if times == "1" else f"{times} times as high"
