"""Explain why the rule does not mark some peaks of a gradient norm although it marks a lower one.

This module leaves out the rule itself (`spike_rule`) and the chart (`spikes`).
"""

import numpy as np
import pandas as pd

from mas_lab.explain.spike_rule import SpikeRule

MOST = 12
"""Maximum number of peaks of a line that are explained; the tallest are taken."""


def unmarked_peaks(scores: pd.DataFrame, rule: SpikeRule) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Return {(policy, agent): [(place in its line, why it is no spike), ...]}, the tallest peaks first.

    There are at most `MOST` peaks per line. `scores`: from `spike_scores`. A peak is higher than the norm before it and
    no lower than the next one. It counts if it is taller than the lowest spike of its own line. If its line has no
    spike, the lowest spike of all lines counts.
    """
    marked = scores.loc[scores["spike"], "norm"]
    if marked.empty:
        return {}
    found = {}
    for key, own in scores.groupby(["policy", "agent"], sort=False):
        lowest = own.loc[own["spike"], "norm"].min() if own["spike"].any() else marked.min()
        norms = own["norm"].where(own["norm"] > 0).to_numpy(float)
        beside = np.concatenate([[np.nan], norms, [np.nan]])
        is_peak = ~(beside[:-2] >= norms) & ~(beside[2:] > norms) & (norms > lowest) & ~own["spike"].to_numpy(bool)
        tallest = sorted(np.flatnonzero(is_peak).tolist(), key=lambda place: -norms[place])[:MOST]
        before = (np.cumsum(np.isfinite(norms)) - np.isfinite(norms)).astype(int)
        if tallest:
            rows = own.iloc[tallest]
            told = [why_not(rule, int(before[place]), row.usual, row.score)
                    for place, row in zip(tallest, rows.itertuples(), strict=True)]  # fmt: skip
            found[key] = list(zip(tallest, told, strict=True))
    return found


def why_not(rule: SpikeRule, before: int, usual: float, score: float) -> str:
    """Return why a norm with this `score` is no spike; `before` norms came before it, with the median `usual`."""
    if np.isnan(score):
        return f"only {before} norms came before it, and the rule waits for {rule.warmup}"
    side = "above" if score >= 0 else "below"
    return (
        f"{abs(score):.1f} robust standard deviations {side} {usual:.3g}, the median of the {min(before, rule.window)} "
        f"norms before it; the rule asks for more than {rule.threshold:g}"
    )
