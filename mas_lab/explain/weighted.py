"""Measure on an agent's own gradients whether its own mean would help: weighted gain, signal, expected progress.

z is the score of a row, the gradient of its summed log-probability, see `cells.scores`. A row with a large |z|^2 moves
the weights more, so its distance from the baseline makes more noise. Leaves out: the same from credits alone
(`advice`), the scale, Adam, and the dependence between rows of one episode.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.scores import each_score, rows_to_measure
from mas_lab.cells.update import learners
from mas_lab.locks import locked
from mas_lab.team import Team

MOST, SEED = 64, 0
"""Rows per agent whose score is measured, and the seed of their draw."""


def weighted_advice(
    team: Team, rows: pd.DataFrame, found: pd.DataFrame, weights: pd.DataFrame, together: Mapping[Any, Collection]
) -> pd.DataFrame:
    """Return `weighted_gain`, `snr` and `progress` of each key of `together`; NaN if nothing was measured.

    Args:
        team: The team that played `rows`.
        rows: Turns of distinct index, with the columns of a rollout and the name of the agent in `speaker`. `agent` may
            be a part of an agent, such as one of its turns.
        found: `inflation` of `rows`.
        weights: For each row `agent`, and c_k and c, the weight of its episode in both means.
        together: All agents (of the column `agent`) that learn with the same weights as an agent, itself included.
    """
    by = [*(["step"] if "step" in rows.columns else []), "task", "agent"]
    means = rows[by].merge(found[[*by, "mu", "mu_k"]], on=by, how="left").set_index(rows.index)
    away = means[["mu", "mu_k"]].rsub(rows["credit"], axis=0)
    seen, snr_of = _measured(team, rows, away["mu"])
    noise = (away.loc[seen.index] ** 2).mul(seen["weight"], axis=0).assign(agent=rows["agent"])
    speaker = rows.groupby("agent", observed=True)["speaker"].first()
    told = {}
    for agent, group in together.items():
        noises = noise.loc[noise["agent"].isin(group), ["mu", "mu_k"]].sum()
        weight = weights.loc[weights["agent"].isin(group), ["c_k", "c"]].mean()
        gain = _gain((1 - weight["c_k"]) / (1 - weight["c"]) if weight["c"] < 1 else np.nan, *noises)
        snr = snr_of.get(team.name_of(speaker[agent]), np.nan) if agent in speaker.index else np.nan
        told[agent] = {"weighted_gain": gain, "snr": snr, "progress": gain * (1 + snr) / (1 + gain * snr)}
    return pd.DataFrame.from_dict(told, orient="index")


def _gain(kept: float, everyone: float, own: float) -> float:
    """Return kept^2 everyone / own, and 0 if nothing is kept."""
    if not everyone > 0:
        return np.nan
    return 0.0 if kept == 0 else kept**2 * everyone / own if own > 0 else np.nan


def _measured(team: Team, rows: pd.DataFrame, away: pd.Series) -> tuple[pd.DataFrame, dict[str, float]]:
    """Return |z|^2 of the drawn rows times the rows that each stands for, and SNR^2 of each policy's gradient.

    The gradient is G = sum of g, with g = away z, over the rows of one step. The products of different rows estimate
    |E G|^2 without bias, |sum of g|^2 - sum of |g|^2, and sum of |g|^2 is the noise. A negative estimate counts as 0.
    """
    seen, total, squares = {}, {}, {}
    with locked(learners(team)):
        for name, agent, drawn in rows_to_measure(team, rows.assign(agent=rows["speaker"]), MOST, SEED):
            stands_for = (rows["speaker"] == agent).sum() / max(len(drawn), 1)
            for row, square in each_score(team.policies[name], drawn):
                seen[row] = stands_for * square
                factor = float(stands_for * away[row])
                own = [gradient * factor for _, gradient in team.policies[name].gradients()]
                total[name] = [a.add_(b) for a, b in zip(total[name], own, strict=True)] if name in total else own
                squares.setdefault(name, []).append((factor**2 * square, factor**2 * square / stands_for))
    snr, steps = {}, rows["step"].nunique() if "step" in rows.columns else 1
    for name, parts in total.items():
        itself, noise = np.sum(squares[name], axis=0)
        signal = sum(part.double().square().sum().item() for part in parts) - itself
        snr[name] = max(signal, 0.0) / noise / steps if noise > 0 else np.nan
    return pd.DataFrame({"weight": pd.Series(seen, dtype=float)}), snr
