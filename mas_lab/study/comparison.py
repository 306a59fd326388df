"""Compare recipes over seeds, side by side and by paired differences, and list what the runs cannot show.

Leaves out: the scores of a run (`budget`), the statistics (`intervals`) and pictures (`widgets.board`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.study import intervals
from mas_lab.study.budget import DECIMALS, METRICS, NEAR
from mas_lab.study.entries import Entry

FEW = 5
"""Below this number of seeds no interval is computed, see `intervals.bootstrap_interval`."""
ENOUGH = 10
"""Differences get a bootstrap interval from this number of pairs on. Below it, they get a paired t interval."""
NOTHING = (np.nan, np.nan)
"""The interval of too few runs."""


def on_common_seeds(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs whose seed every recipe of their env has; all runs of an env without such a seed."""
    chosen = [own[own["seed"].isin(common)] if (common := _common_seeds(own)) else own
              for _, own in runs.groupby("env", sort=False)]  # fmt: skip
    return pd.concat(chosen) if chosen else runs


def _common_seeds(own: pd.DataFrame) -> set[int]:
    return set.intersection(*own.groupby("recipe")["seed"].agg(set))


def compared(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe: `runs`, `seeds`, the IQM of `start`, and that of each metric with its interval.

    The 95 % interval is in `<metric>_low` and `<metric>_high`. It is NaN below `FEW` seeds. `middle` names the
    statistic: "IQM", or "mean" below four runs, since the IQM then drops nothing.
    """
    return pd.DataFrame(
        {"env": env, "recipe": recipe, "runs": len(own), "seeds": own["seed"].nunique(),
         "start": float(intervals.iqm(own["start"])), **_measured(own, own["seed"].nunique(), seed)}
        for (env, recipe), own in runs.groupby(["env", "recipe"], sort=False)
    )  # fmt: skip


def _measured(own: pd.DataFrame, seeds: int, seed: int) -> dict[str, Any]:
    """Return `middle`, and the IQM of each metric with its bootstrap interval."""
    row: dict[str, Any] = {"middle": "IQM" if len(own) >= 4 else "mean"}
    for metric in METRICS:
        ends = intervals.bootstrap_interval([own[metric]], seed=seed) if seeds >= FEW else NOTHING
        row |= _with_ends(metric, float(intervals.iqm(own[metric])), ends)
    return row


def _with_ends(metric: str, value: float, ends: tuple[float, float]) -> dict[str, float]:
    return {metric: value, f"{metric}_low": ends[0], f"{metric}_high": ends[1]}


def improvements(runs: pd.DataFrame, baseline: str, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe beside `baseline`, with its probability of improvement over it.

    Each metric has a 95 % interval, which is NaN if either recipe has fewer than `FEW` seeds.
    """
    rows = []
    for env, own in runs.groupby("env", sort=False):
        recipes = own["recipe"].unique()
        for recipe in recipes[recipes != baseline] if baseline in recipes else ():
            both = on_common_seeds(own[own["recipe"].isin([recipe, baseline])])
            of, base = (both[both["recipe"] == name] for name in (recipe, baseline))
            seeds = min(of["seed"].nunique(), base["seed"].nunique())
            row = {"env": env, "recipe": recipe, "runs": len(of), "seeds": seeds}
            for metric in METRICS:
                x, y = [of[metric]], [base[metric]]
                ends = intervals.improvement_interval(x, y, seed=seed) if seeds >= FEW else NOTHING
                row |= _with_ends(metric, intervals.probability_of_improvement(x, y), ends)
            rows.append(row)
    return pd.DataFrame(rows)


def profiles(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per recipe and `height`: the `share` of its runs whose final score is above the height.

    Only recipes that were run on every env are listed. `share` is the mean over envs. `low` and `high` are a pointwise
    95 % band, NaN below `FEW` seeds. The heights are 0 and all final scores, because the share changes nowhere else.
    Scores must have the same meaning on every env, as success does.
    """
    heights, parts = np.unique([0.0, *runs["final"]]), []
    for recipe, own in runs.groupby("recipe", sort=False):
        if own["env"].nunique() == runs["env"].nunique():
            strata = [part for _, part in own.groupby("env")["final"]]
            known = own.groupby("env")["seed"].nunique().min() >= FEW
            low, high = intervals.profile_band(strata, heights, seed=seed) if known else NOTHING
            share = intervals.performance_profile(strata, heights)
            parts.append(pd.DataFrame({"recipe": recipe, "height": heights, "share": share, "low": low, "high": high}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def paired(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return a row per env, recipe and seed that was also run under `baseline`: the differences of the scores.

    Runs of one seed share tasks and first weights. They are averaged first, so that a seed is one pair.
    """
    by_seed = runs.groupby(["env", "recipe", "seed"], sort=False)[list(METRICS)].mean()
    by_seed = by_seed.round(DECIMALS).reset_index()
    base = by_seed[by_seed["recipe"] == baseline].drop(columns="recipe")
    both = by_seed[by_seed["recipe"] != baseline].merge(base, on=["env", "seed"], suffixes=("", "_base"))
    differences = {metric: both[metric] - both[f"{metric}_base"] for metric in METRICS}
    return both[["env", "recipe", "seed"]].assign(**differences)


def compared_pairs(pairs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe: the middle of its paired differences, and how certain it is.

    From `ENOUGH` pairs on, `final` and `area` are interquartile means with 95 % bootstrap intervals over pairs. Below,
    they are means, and from `FEW` pairs on they have the interval of a paired t test.

    `higher` and `lower` count the pairs whose final score is above or below the baseline's. `won` is `higher` as a
    share of both, and `won_low`, `won_high` are its exact 95 % interval. `p` is the p-value of a paired t test on the
    final scores. `p_holm` is `p` adjusted for the number of rows (Holm). Intervals and p-values are NaN below `FEW`
    pairs.
    """
    rows = []
    for (env, recipe), own in pairs.groupby(["env", "recipe"], sort=False):
        higher, lower, known = int((own["final"] > 0).sum()), int((own["final"] < 0).sum()), len(own) >= FEW
        won, *ends = intervals.share_won(higher, lower)
        row = {"env": env, "recipe": recipe, "pairs": len(own), "higher": higher, "lower": lower}
        row |= _with_ends("won", won, ends if known else NOTHING)
        if len(own) >= ENOUGH:
            row |= _measured(own, len(own), seed)
        else:
            row["middle"] = "mean"
            for metric in METRICS:
                row |= _with_ends(metric, own[metric].mean(), intervals.t_test(own[metric])[1:] if known else NOTHING)
        rows.append(row | {"p": intervals.t_test(own["final"])[0] if known else np.nan})
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
        where, common, every = env or "Here", _common_seeds(own), set(own["seed"])
        if common and common != every:
            notes.append(f"{where}: the recipes do not have the same seeds. Their scores use the {len(common)} seeds "
                         f"that all have. Each difference to {baseline} uses the seeds that both have.")  # fmt: skip
        if len(late := own[own["beyond"] > NEAR]):
            notes.append(f"{where}: {len(late)} of {len(own)} runs have no score at the budget of "
                         f"{late['budget'].iloc[0]:,.0f}. Their curves end on the line to a later score, up to "
                         f"{late['beyond'].max():.0%} beyond it ({'; '.join(late['file'])}).")  # fmt: skip
        unpaired = sorted(set(own["recipe"]) - {baseline} - set(pairs.loc[pairs["env"] == env, "recipe"]))
        if unpaired:
            notes.append(f"{where}: no seed was run under both {baseline} and {', '.join(unpaired)}.")
    for (_, recipe, seed), own in runs.groupby(["env", "recipe", "seed"], sort=False):
        if len(own) > 1:
            notes.append(f"Seed {seed} of {recipe} has {len(own)} runs ({', '.join(own['file'])}). Each is a dot, but "
                         "they share their tasks and count as one pair.")  # fmt: skip
    return notes + _undecided(pairs, baseline) + [
        f"{entry.file} was forked from {entry.forked['from']} and shares its first {entry.forked['step']} steps. "
        "The two are not independent, whatever an interval says." for entry in found if entry.forked
    ]  # fmt: skip


def _undecided(pairs: pd.DataFrame, baseline: str) -> list[str]:
    """Return a sentence per recipe whose seeds do not separate it from the baseline."""
    notes = []
    for row in compared_pairs(pairs).itertuples():
        where, both = row.env or "Here", f"{row.recipe} and {baseline}"
        if row.higher == row.lower == 0:
            notes.append(f"{where}: the final scores of {both} are equal in every seed ({row.pairs}).")
        elif row.pairs < FEW:
            notes.append(f"{where}: {both} have {row.pairs} common seeds, too few for an interval: {row.higher} higher "
                         f"and {row.lower} lower. Chance gives equal signs once in {2 ** (row.pairs - 1)} times."
                         )  # fmt: skip
        elif row.final_low <= 0 <= row.final_high:
            notes.append(f"{where}: these {row.pairs} seeds show no difference between the final scores of {both}.")
    return notes
