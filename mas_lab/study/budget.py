"""Score each run within the budget that all runs of its env reached.

Leaves out: reading runs (`entries`) and comparing recipes (`comparison`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mas_lab.study.entries import Entry
from mas_lab.table import TableError

METRICS = ("final", "area")
DECIMALS = 12
"""Scores are rounded to so many decimals. So scores that are equal but for rounding errors are a tie."""
NEAR = 0.05
"""A score counts as a score at the budget if it lies at most this share of the budget beyond it."""


def run_scores(found: Sequence[Entry], score: str, over: str, held_out: bool, last: float) -> pd.DataFrame:
    """Return a row per run with three scores within the budget: `start`, `final` and `area`.

    The budget of an env is the smallest value of `over` ("tokens" or "step") that any of its runs reached. Scores are
    compared from the latest first score of the env's runs, `start`, up to the budget. `final` is the mean score in the
    last share `last` of this range. `area` is the mean height of the curve in it.

    A run may have no score exactly at the budget. Its curve is then interpolated linearly to the next score. `beyond`
    is how far that score lies beyond the budget, as a share of the budget. It is 0 if a score lies at the budget.
    """
    curves = [_points(entry, score, over, held_out) for entry in found]
    rows = [(entry.env, entry.recipe, entry.seed, entry.file) for entry in found]
    runs = pd.DataFrame(rows, columns=["env", "recipe", "seed", "file"])
    runs["reached"] = [curve.index[-1] for curve in curves]
    runs["budget"] = runs.groupby("env")["reached"].transform("min")
    starts = pd.Series([curve.index[0] for curve in curves]).groupby(runs["env"]).transform("max")
    first = [curve.index[curve.index >= budget][0] for curve, budget in zip(curves, runs["budget"], strict=True)]
    runs["beyond"] = ((first - runs["budget"]) / runs["budget"]).fillna(0.0)
    ends = zip(curves, starts.clip(upper=runs["budget"]), runs["budget"], strict=True)
    scores = pd.DataFrame([_within(*one, last) for one in ends], columns=["start", *METRICS])
    return runs.join(scores.round(DECIMALS))


def _points(entry: Entry, score: str, over: str, held_out: bool) -> pd.Series:
    """Return the scores of one run, indexed by tokens or steps."""
    curve = entry.held_out if held_out else entry.curve
    for name in (score, over):
        if name not in curve.columns:
            raise TableError(f"AblationBoard: {entry.file} has no column {name!r}; it has {', '.join(curve.columns)}")
    if curve.empty or not np.isfinite(curve[[score, over]].astype(float)).all(axis=None):
        raise TableError(f"AblationBoard: {entry.file} has no finite {score} at some step, or no scored step at all")
    return curve.set_index(over)[score].astype(float)


def _within(curve: pd.Series, start: float, budget: float, last: float) -> tuple[float, float, float]:
    """Return `start`, `final` and `area` of a curve on [start, budget], see `run_scores`."""
    x, y = curve.index.to_numpy(float), curve.to_numpy()
    inner, ends = (x > start) & (x < budget), np.interp([start, budget], x, y)
    if budget <= start:
        return (float(ends[1]),) * 3
    x, y = np.array([start, *x[inner], budget]), np.array([ends[0], *y[inner], ends[1]])
    final = y[1:][x[1:] >= budget - last * (budget - start)].mean()
    return float(ends[0]), float(final), float(np.trapezoid(y, x) / (budget - start))
