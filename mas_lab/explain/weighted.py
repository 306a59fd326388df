"""Measure on an agent's own gradients whether its own mean would help: weighted gain, signal, expected progress.

z is the score of a row, the gradient of its summed log-probability, see `row_scores`. A row with a large |z|^2 moves
the weights more, so its distance from the baseline makes more noise. Leaves out: the same from credits alone
(`advice`), the scale, Adam, and the dependence between rows of one episode.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.update import learners, row_scores
from mas_lab.locks import locked
from mas_lab.team import Team

MOST, SEED = 64, 0
"""Rows per agent whose score is measured, and the seed of their draw."""


def weighted_advice(
    team: Team, rows: pd.DataFrame, found: pd.DataFrame, weights: pd.DataFrame, learners_of: Mapping[Any, Collection]
) -> pd.DataFrame:
    """Return `weighted_gain`, `snr` and `progress` of each key of `learners_of`; NaN if nothing was measured.

    Args:
        team: The team that played `rows`.
        rows: Turns of distinct index, with the columns of a rollout and the name of the agent in `speaker`. `agent` may
            be a part of an agent, such as one of its turns.
        found: `inflation` of `rows`.
        weights: For each row `agent`, and c_k and c, the weight of its episode in both means.
        learners_of: All agents (of the column `agent`) that learn with the same weights as an agent, itself included.
    """
    by = [*(["step"] if "step" in rows.columns else []), "task", "agent"]
    means = rows[by].merge(found[[*by, "mu", "mu_k"]], on=by, how="left").set_index(rows.index)
    away = means[["mu", "mu_k"]].rsub(rows["credit"], axis=0)
    square, snr_of = _measured(team, rows, away["mu"])
    noise = (away.loc[square.index] ** 2).mul(square, axis=0).assign(agent=rows["agent"])
    speaker = rows.groupby("agent", observed=True)["speaker"].first()
    measured = {}
    for agent, learning in learners_of.items():
        everyone, own = noise.loc[noise["agent"].isin(learning), ["mu", "mu_k"]].sum()
        weight = weights.loc[weights["agent"].isin(learning), ["c_k", "c"]].mean()
        signal = (1 - weight["c_k"]) / (1 - weight["c"]) if weight["c"] < 1 else np.nan
        gain = np.nan
        if everyone > 0 and (signal == 0 or own > 0):
            gain = signal**2 * everyone / own if signal != 0 else 0.0
        snr = snr_of.get(team.name_of(speaker[agent]), np.nan) if agent in speaker.index else np.nan
        measured[agent] = {"weighted_gain": gain, "snr": snr, "progress": gain * (1 + snr) / (1 + gain * snr)}
    return pd.DataFrame.from_dict(measured, orient="index")


def _measured(team: Team, rows: pd.DataFrame, away: pd.Series) -> tuple[pd.Series, dict[str, float]]:
    """Return |z|^2 of the drawn rows times the rows that each stands for, and SNR^2 of each policy's gradient.

    The gradient is G = sum of g, with g = away z, over the rows of one step. The products of different rows estimate
    |E G|^2 without bias, |sum of g|^2 - sum of |g|^2, and sum of |g|^2 is the noise. A negative estimate counts as 0.
    """
    weighted, total, squares = {}, {}, {}
    with locked(learners(team)):
        for name, policy in team.policies.items():
            for agent in team.learners(name) if policy.capabilities.gradients else ():
                own = rows[rows["speaker"] == agent]
                drawn = own if len(own) <= MOST else own.sample(MOST, random_state=SEED).sort_index()
                for row, square in row_scores(policy, drawn):
                    stands_for = len(own) / len(drawn)
                    weighted[row] = stands_for * square
                    factor = float(stands_for * away[row])
                    parts = [gradient * factor for _, gradient in policy.gradients()]
                    before = total.get(name)
                    total[name] = [a.add_(b) for a, b in zip(before, parts, strict=True)] if before else parts
                    squares.setdefault(name, []).append((factor**2 * square, factor**2 * square / stands_for))
    snr, steps = {}, rows["step"].nunique() if "step" in rows.columns else 1
    for name, parts in total.items():
        itself, noise = np.sum(squares[name], axis=0)
        signal = sum(part.double().square().sum().item() for part in parts) - itself
        snr[name] = max(signal, 0.0) / noise / steps if noise > 0 else np.nan
    return pd.Series(weighted, dtype=float), snr
