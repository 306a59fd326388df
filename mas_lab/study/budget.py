"""Score each run within the budget that all runs of its env reached.

Leaves out: reading runs (`entries`) and comparing recipes (`comparison`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mas_lab.study.entries import Entry
from mas_lab.table import TableError

DECIMALS = 12
"""Scores are rounded to so many decimals. So scores that are equal but for rounding errors are a tie."""
NEAR = 0.05
"""A score counts as a score at the budget if it lies at most this share of the budget beyond it."""


def run_scores(found: Sequence[Entry], score: str, over: str, held_out: bool, last: float) -> pd.DataFrame:
    """Return a row per run with its score at the `start` and its `final` one, within the budget.

    The budget of an env is the smallest value of `over` ("tokens" or "step") that any of its runs reached. Scores are
    compared from the latest first score of the env's runs, `start`, up to the budget. `final` is the mean score in the
    last share `last` of this range.

    A run may have no score exactly at the budget. Its curve is then interpolated linearly to the next score. `beyond`
    is how far that score lies beyond the budget, as a share of the budget. It is 0 if a score lies at the budget.
    """
    curves = [_points(entry, score, over, held_out) for entry in found]
    runs = pd.DataFrame([vars(entry) for entry in found], columns=["env", "recipe", "seed", "file"])
    runs["reached"] = [curve.index[-1] for curve in curves]
    runs["budget"] = runs.groupby("env")["reached"].transform("min")
    starts = pd.Series([curve.index[0] for curve in curves]).groupby(runs["env"]).transform("max")
    first = [curve.index[curve.index >= budget][0] for curve, budget in zip(curves, runs["budget"], strict=True)]
    runs["beyond"] = ((first - runs["budget"]) / runs["budget"]).fillna(0.0)
    ends = zip(curves, starts.clip(upper=runs["budget"]), runs["budget"], strict=True)
    runs[["start", "final"]] = np.round([_within(*one, last) for one in ends], DECIMALS)
    return runs


def _points(entry: Entry, score: str, over: str, held_out: bool) -> pd.Series:
    """Return the scores of one run, indexed by tokens or steps."""
    curve = entry.held_out if held_out else entry.curve
    for name in (score, over):
        if name not in curve.columns:
            raise TableError(f"AblationBoard: {entry.file} has no column {name!r}; it has {', '.join(curve.columns)}")
    if curve.empty or not np.isfinite(curve[[score, over]].astype(float)).all(axis=None):
        raise TableError(f"AblationBoard: {entry.file} has no finite {score} at some step, or no scored step at all")
    return curve.set_index(over)[score].astype(float)


def _within(curve: pd.Series, start: float, budget: float, last: float) -> tuple[float, float]:
    """Return `start` and `final` of a curve on [start, budget], see `run_scores`."""
    x, y = curve.index.to_numpy(float), curve.to_numpy()
    first, end = np.interp([start, budget], x, y)
    ends = y[(x > start) & (x < budget) & (x >= budget - last * (budget - start))]
    return first, np.mean([*ends, end])
