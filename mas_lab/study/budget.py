"""What each run scored within a budget that all runs of its env reached.

Leaves out: reading runs (`entries`) and comparing recipes (`comparison`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mas_lab.study.entries import Entry
from mas_lab.table import TableError

METRICS = ("final", "area")
NEAR = 0.05
"""A score that is at most this share of the budget beyond it passes for a score at the budget."""


def run_scores(found: Sequence[Entry], score: str, over: str, held_out: bool, last: float) -> pd.DataFrame:
    """A row per run: `final`, the mean score over the last share `last` of the budget, and `area`, its mean height.

    The budget of an env is the least `over` ("tokens" or "step") that any of its runs reached. Where a run was not
    scored at the budget, its curve there is the line to the next score, which lies `beyond` it, as a share of the
    budget; 0 where no score beyond the budget counts.
    """
    curves = [_points(entry, score, over, held_out) for entry in found]
    rows = [(entry.env, entry.recipe, entry.seed, entry.file) for entry in found]
    runs = pd.DataFrame(rows, columns=["env", "recipe", "seed", "file"])
    runs["reached"] = [curve.index[-1] for curve in curves]
    runs["budget"] = runs.groupby("env")["reached"].transform("min")
    starts = pd.Series([curve.index[0] for curve in curves]).groupby(runs["env"]).transform("max")
    runs["beyond"] = [_beyond(*one) for one in zip(curves, runs["budget"], strict=True)]
    ends = zip(curves, starts.clip(upper=runs["budget"]), runs["budget"], strict=True)
    return runs.join(pd.DataFrame([_within(*one, last) for one in ends], columns=list(METRICS)))


def _points(entry: Entry, score: str, over: str, held_out: bool) -> pd.Series:
    """The scores of one run, indexed by tokens or steps."""
    curve = entry.held_out if held_out else entry.curve
    for name in (score, over):
        if name not in curve.columns:
            raise TableError(f"AblationBoard: {entry.file} has no column {name!r}; it has {', '.join(curve.columns)}")
    if curve.empty or curve[[score, over]].isna().any(axis=None):
        raise TableError(f"AblationBoard: {entry.file} has no {score} at some step, or no scored step at all")
    return curve.set_index(over)[score].astype(float)


def _beyond(curve: pd.Series, budget: float) -> float:
    """How far beyond the budget the first score lies that was not made before it, as a share of the budget."""
    first = float(curve.index[curve.index >= budget][0])
    return (first - budget) / budget if budget else 0.0


def _within(curve: pd.Series, start: float, budget: float, last: float) -> tuple[float, float]:
    """(mean of the points in the last share of [start, budget], mean height of the curve there), both ends included."""
    x, y = curve.index.to_numpy(float), curve.to_numpy()
    inner, ends = (x > start) & (x < budget), np.interp([start, budget], x, y)
    if budget <= start:
        return float(ends[1]), float(ends[1])
    x, y = np.array([start, *x[inner], budget]), np.array([ends[0], *y[inner], ends[1]])
    final = y[1:][x[1:] >= budget - last * (budget - start)].mean()
    return float(final), float(np.trapezoid(y, x) / (budget - start))
