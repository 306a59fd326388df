"""Compare recipes over seeds within the budget that all runs of an env reached, and list what the runs cannot show.

Leaves out: reading runs (`entries`), the statistics (`intervals`) and pictures (`widgets.ablation`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.study import intervals
from mas_lab.study.entries import Entry
from mas_lab.table import TableError

FEW = 5
"""Below this number of seeds no interval is computed, see `intervals.bootstrap_interval`."""
NOTHING = (np.nan, np.nan)
"""The interval of too few runs."""
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


def on_common_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose seed every recipe of their env has; all runs of an env without such a seed."""
    chosen = [own[own["seed"].isin(common)] if (common := _common_seeds(own)) else own
              for _, own in runs.groupby("env", sort=False)]  # fmt: skip
    return pd.concat(chosen) if chosen else runs


def _common_seeds(own: pd.DataFrame) -> set[int]:
    return set.intersection(*own.groupby("recipe")["seed"].agg(set))


def compared(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe: `runs`, `seeds`, and the IQM of `start` and `final`.

    The 95 % interval of `final` is in `final_low` and `final_high`. It is NaN below `FEW` seeds. `middle` names the
    statistic: "IQM", or "mean" below four runs, since the IQM then drops nothing.
    """
    rows = []
    for (env, recipe), own in runs.groupby(["env", "recipe"], sort=False):
        counts = {"runs": len(own), "seeds": own["seed"].nunique(), "start": float(intervals.iqm(own["start"]))}
        rows.append({"env": env, "recipe": recipe, **counts, **_middle(own["final"], counts["seeds"] >= FEW, seed)})
    return pd.DataFrame(rows)


def _middle(final: pd.Series, known: bool, seed: int) -> dict[str, Any]:
    ends = intervals.bootstrap_interval([final], seed=seed) if known else NOTHING
    name = "IQM" if len(final) >= 4 else "mean"
    return {"middle": name, "final": float(intervals.iqm(final)), "final_low": ends[0], "final_high": ends[1]}


def improvements(runs: pd.DataFrame, baseline: str, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe beside `baseline`, with its probability of improvement over it, `final`.

    The 95 % interval is NaN if either recipe has fewer than `FEW` seeds.
    """
    rows = []
    for env, own in runs.groupby("env", sort=False):
        recipes = own["recipe"].unique()
        for recipe in recipes[recipes != baseline] if baseline in recipes else ():
            both = on_common_seeds(own[own["recipe"].isin([recipe, baseline])])
            of, base = (both[both["recipe"] == name] for name in (recipe, baseline))
            x, y, seeds = [of["final"]], [base["final"]], min(of["seed"].nunique(), base["seed"].nunique())
            low, high = intervals.improvement_interval(x, y, seed=seed) if seeds >= FEW else NOTHING
            row = {"env": env, "recipe": recipe, "runs": len(of), "seeds": seeds}
            share = intervals.probability_of_improvement(x, y)
            rows.append(row | {"final": share, "final_low": low, "final_high": high})
    return pd.DataFrame(rows)


def paired(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return a row per env, recipe and seed that was also run under `baseline`: the difference of the final scores.

    Runs of one seed share tasks and first weights. They are averaged first, so that a seed is one pair.
    """
    finals = runs.groupby(["env", "recipe", "seed"], sort=False)["final"].mean().round(DECIMALS).reset_index()
    base = finals[finals["recipe"] == baseline].drop(columns="recipe")
    both = finals[finals["recipe"] != baseline].merge(base, on=["env", "seed"], suffixes=("", "_base"))
    return both.assign(final=both["final"] - both["final_base"]).drop(columns="final_base")


def compared_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per env and recipe: the mean of its paired differences, and how certain it is.

    `final` is the mean difference. `final_low` and `final_high` are its 95 % interval, and `p` its p-value, both from
    the same paired t test.

    `higher` and `lower` count the pairs whose final score is above or below the baseline's. `won` is `higher` as a
    share of both, and `won_low`, `won_high` are its exact 95 % interval. `p_holm` is `p` adjusted for the number of
    rows (Holm). Intervals and p-values are NaN below `FEW` pairs.
    """
    rows = []
    for (env, recipe), own in pairs.groupby(["env", "recipe"], sort=False):
        final, known = own["final"], len(own) >= FEW
        higher, lower = int((final > 0).sum()), int((final < 0).sum())
        won, *ends = intervals.share_won(higher, lower)
        p, low, high = intervals.t_test(final) if known else (np.nan, *NOTHING)
        row = {"env": env, "recipe": recipe, "pairs": len(own), "higher": higher, "lower": lower, "won": won}
        row |= dict(zip(("won_low", "won_high"), ends if known else NOTHING, strict=True))
        rows.append(row | {"middle": "mean", "final": final.mean(), "final_low": low, "final_high": high, "p": p})
    return pd.DataFrame(rows).assign(p_holm=intervals.holm([row["p"] for row in rows]))


def cautions(found: Sequence[Entry], runs: pd.DataFrame, pairs: pd.DataFrame, baseline: str) -> list[str]:
    """Return sentences that say what these runs cannot show."""
    notes = []
    failed = pd.DataFrame([vars(entry) for entry in found if entry.error], columns=["env", "recipe", "seed", "error"])
    for (env, recipe), own in failed.groupby(["env", "recipe"], sort=False):
        notes.append(f"{env or 'Here'}: runs of {recipe} failed (seeds {', '.join(map(str, own['seed']))}; "
                     f"{own['error'].iloc[0]}). They have no score, so the others look better than the recipe is."
                     )  # fmt: skip
    smallest = runs.groupby(["env", "recipe"])["seed"].nunique().min()
    if smallest < FEW:
        notes.append(f"Fewest seeds of a recipe: {smallest}. Below {FEW} seeds there is no interval, because it "
                     "would be too narrow. Look at the dots.")  # fmt: skip
    for env, own in runs.groupby("env", sort=False):
        where, common = env or "Here", _common_seeds(own)
        if common != set(own["seed"]):
            notes.append(f"{where}: the recipes do not have the same seeds; {len(common)} are common to all. Scores "
                         f"use those if there are any. Each difference to {baseline} uses the seeds that both have, "
                         "if there are any.")  # fmt: skip
        if len(late := own[own["beyond"] > NEAR]):
            notes.append(f"{where}: {len(late)} of {len(own)} runs have no score at the budget of "
                         f"{late['budget'].iloc[0]:,.0f}. Their curves end on the line to a later score, up to "
                         f"{late['beyond'].max():.0%} beyond it ({'; '.join(late['file'])}).")  # fmt: skip
    return notes + _undecided(pairs, baseline) + [
        f"{entry.file} was forked from {entry.forked['from']} and shares its first {entry.forked['step']} steps. "
        "The two are not independent, whatever an interval says." for entry in found if entry.forked
    ]  # fmt: skip


def _undecided(pairs: pd.DataFrame, baseline: str) -> list[str]:
    """Return a sentence per recipe whose seeds do not separate it from the baseline."""
    notes = []
    for row in compared_pairs(pairs).itertuples():
        both = f"{row.recipe} and {baseline}"
        if row.higher == row.lower == 0:
            notes.append(f"{row.env or 'Here'}: the final scores of {both} are equal in every seed ({row.pairs}).")
        elif row.final_low <= 0 <= row.final_high:
            notes.append(f"{row.env or 'Here'}: these {row.pairs} seeds show no difference between the final scores of "
                         f"{both}.")  # fmt: skip
    return notes
