"""Compare recipes over seeds, side by side and by paired differences, and list what the runs cannot show.

Leaves out: the scores of a run (`budget`), the statistics (`intervals`) and pictures (`widgets.ablation`).
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
ALL = "all tasks"
"""The `env` of a row over all envs. Each env is then a stratum."""
PAIRED = [
    *("env", "recipe", "pairs", "higher", "lower", "won", "won_low", "won_high", "middle"),
    *(f"{metric}{end}" for metric in METRICS for end in ("", "_low", "_high")),
    *("p", "p_holm"),
]
PROFILE = ["recipe", "height", "share", "low", "high"]


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
        {"env": env, "recipe": recipe, "runs": len(own), **_measured(own, own["seed"].nunique(), seed)}
        for (env, recipe), own in runs.groupby(["env", "recipe"], sort=False)
    )


def over_envs(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per recipe run on every env: the IQM over its runs, with envs as strata; `seeds` is the fewest."""
    return pd.DataFrame(
        {"recipe": recipe, "runs": len(own), "envs": own["env"].nunique()}
        | _measured(own, int(own.groupby("env")["seed"].nunique().min()), seed)
        for recipe, own in runs.groupby("recipe", sort=False)
        if own["env"].nunique() == runs["env"].nunique()
    )


def improvements(runs: pd.DataFrame, baseline: str, seed: int = 0) -> pd.DataFrame:
    """Return a row per env and recipe beside `baseline`, with its probability of improvement over it.

    Each metric has a 95 % interval, which is NaN if either recipe has fewer than `FEW` seeds. With several envs, a
    recipe that ran beside the baseline on each of them also has a row over `ALL`.
    """
    columns = ["env", "recipe", "runs", "seeds", *(f"{m}{end}" for m in METRICS for end in ("", "_low", "_high"))]
    envs, rows = list(runs.groupby("env", sort=False)), []
    for env, own in [*envs, (ALL, runs)] if len(envs) > 1 else envs:
        tasks = [task for _, task in own.groupby("env", sort=False)]
        for recipe in dict.fromkeys(own["recipe"]):
            if recipe != baseline and all({recipe, baseline} <= set(task["recipe"]) for task in tasks):
                rows.append({"env": env, "recipe": recipe} | _improved(tasks, recipe, baseline, seed))
    return pd.DataFrame(rows, columns=columns)


def _improved(tasks: Sequence[pd.DataFrame], recipe: str, baseline: str, seed: int) -> dict[str, Any]:
    tasks = [on_common_seeds(own[own["recipe"].isin([recipe, baseline])]) for own in tasks]
    of, base = ([own[own["recipe"] == name] for own in tasks] for name in (recipe, baseline))
    row: dict[str, Any] = {"runs": sum(map(len, of)), "seeds": min(own["seed"].nunique() for own in [*of, *base])}
    for metric in METRICS:
        x, y = ([own[metric] for own in arm] for arm in (of, base))
        low, high = intervals.improvement_interval(x, y, seed=seed) if row["seeds"] >= FEW else (np.nan, np.nan)
        row |= {metric: intervals.probability_of_improvement(x, y), f"{metric}_low": low, f"{metric}_high": high}
    return row


def profiles(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Return a row per recipe and `height`: the `share` of its runs whose final score is above the height.

    Only recipes that were run on every env are listed. `share` is the mean over envs. `low` and `high` are a pointwise
    95 % band, NaN below `FEW` seeds. The heights are 0 and all final scores, because the share changes nowhere else.
    Scores must have the same meaning on every env, as success does.
    """
    heights = np.unique([0.0, *runs["final"]])
    parts = []
    for recipe, own in runs.groupby("recipe", sort=False):
        tasks = [part for _, part in own.groupby("env")]
        if len(tasks) == runs["env"].nunique():
            strata = [part["final"] for part in tasks]
            known = min(part["seed"].nunique() for part in tasks) >= FEW
            low, high = intervals.profile_band(strata, heights, seed=seed) if known else (np.nan, np.nan)
            share = intervals.performance_profile(strata, heights)
            parts.append(pd.DataFrame({"recipe": recipe, "height": heights, "share": share, "low": low, "high": high}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=PROFILE)


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
        won, low, high = intervals.share_won(higher, lower)
        low, high = (low, high) if known else (np.nan, np.nan)
        row = {"env": env, "recipe": recipe, "pairs": len(own), "higher": higher, "lower": lower,
               "won": won, "won_low": low, "won_high": high}  # fmt: skip
        if len(own) >= ENOUGH:
            row |= _measured(own, len(own), seed)
        else:
            row["middle"] = "mean"
            for metric in METRICS:
                _, low, high = intervals.t_test(own[metric]) if known else (np.nan, np.nan, np.nan)
                row |= {metric: own[metric].mean(), f"{metric}_low": low, f"{metric}_high": high}
        rows.append(row | {"p": intervals.t_test(own["final"])[0] if known else np.nan})
    table = pd.DataFrame(rows, columns=PAIRED)
    return table.assign(p_holm=intervals.holm(table["p"]))


def _measured(own: pd.DataFrame, seeds: int, seed: int) -> dict[str, Any]:
    """Return `seeds`, `start`, each metric's statistic with its interval, and `middle`; envs of `own` are strata."""
    row: dict[str, Any] = {"seeds": seeds, "middle": "IQM" if len(own) >= 4 else "mean"}
    if "start" in own:  # pairs have none
        row["start"] = float(intervals.iqm(own["start"]))
    for metric in METRICS:
        strata = [scores for _, scores in own.groupby("env")[metric]]
        low, high = intervals.bootstrap_interval(strata, seed=seed) if seeds >= FEW else (np.nan, np.nan)
        row |= {metric: float(intervals.iqm(own[metric])), f"{metric}_low": low, f"{metric}_high": high}
    return row


def cautions(found: Sequence[Entry], runs: pd.DataFrame, pairs: pd.DataFrame, baseline: str) -> list[str]:
    """Return sentences that say what these runs cannot show."""
    notes = _failures(found, runs) + _unequal_seeds(runs, baseline)
    smallest = runs.groupby(["env", "recipe"])["seed"].nunique().min()
    if smallest < FEW:
        notes.append(f"Fewest seeds of a recipe: {smallest}. Below {FEW} seeds there is no interval, because it "
                     "would be too narrow. Look at the dots.")  # fmt: skip
    notes += _beyond_budget(runs) + _undecided(pairs, baseline)
    for env, own in runs.groupby("env", sort=False):
        unpaired = sorted(set(own["recipe"]) - {baseline} - set(pairs.loc[pairs["env"] == env, "recipe"]))
        if unpaired and own["recipe"].nunique() > 1:
            notes.append(f"{env or 'Here'}: no seed was run under both {baseline} and {', '.join(unpaired)}.")
    for (_, recipe, seed), own in runs.groupby(["env", "recipe", "seed"], sort=False):
        if len(own) > 1:
            files = ", ".join(own["file"])
            same = " They hold the same numbers." if len(own[list(METRICS)].drop_duplicates()) == 1 else ""
            notes.append(f"Seed {seed} of {recipe} has {len(own)} runs ({files}). Each is a dot, but they share their "
                         f"tasks and count as one pair.{same}")  # fmt: skip
    return notes + shared_steps(found)


def _failures(found: Sequence[Entry], runs: pd.DataFrame) -> list[str]:
    """Return a sentence per recipe with failed runs: their number, and the first error."""
    failed: dict[tuple[str, str], list[Entry]] = {}
    for entry in (entry for entry in found if entry.error):
        failed.setdefault((entry.env, entry.recipe), []).append(entry)
    notes = []
    for (env, recipe), own in failed.items():
        scored = ((runs["env"] == env) & (runs["recipe"] == recipe)).sum()
        seeds = ", ".join(str(entry.seed) for entry in own)
        notes.append(f"{env or 'Here'}: {len(own)} of {len(own) + scored} runs of {recipe} failed (seeds {seeds}; "
                     f"{own[0].error}). They have no score, so the others look better than the recipe is.")  # fmt: skip
    return notes


def _unequal_seeds(runs: pd.DataFrame, baseline: str) -> list[str]:
    """Return a sentence per env whose recipes do not have the same seeds."""
    notes = []
    for env, own in runs.groupby("env", sort=False):
        common, every = _common_seeds(own), set(own["seed"])
        if common and common != every:
            lacking = "; ".join(f"{recipe} lacks {', '.join(map(str, sorted(every - seeds)))}"
                                for recipe, seeds in own.groupby("recipe", sort=False)["seed"].agg(set).items()
                                if every - seeds)  # fmt: skip
            notes.append(f"{env or 'Here'}: the recipes do not have the same seeds ({lacking}). Their scores use "
                         f"the {len(common)} seeds that all have. Each difference to {baseline} uses the seeds that "
                         "both have. All runs are dots.")  # fmt: skip
    return notes


def shared_steps(found: Sequence[Entry]) -> list[str]:
    """Return a sentence per fork: it shares its first steps with another run, so the two are not independent."""
    return [f"{entry.file} was forked from {entry.forked['from']} and shares its first {entry.forked['step']} steps. "
            "The two are not independent, whatever an interval says."
            for entry in found if entry.forked]  # fmt: skip


def _beyond_budget(runs: pd.DataFrame) -> list[str]:
    """Return a sentence per env in which runs were first scored more than `NEAR` beyond the budget."""
    return [f"{env or 'Here'}: {len(late)} of {(runs['env'] == env).sum()} runs have no score at the budget of "
            f"{late['budget'].iloc[0]:,.0f}. Their curves end on the line to a later score, up to "
            f"{late['beyond'].max():.0%} beyond it ({'; '.join(late['file'])})."
            for env, late in runs[runs["beyond"] > NEAR].groupby("env", sort=False)]  # fmt: skip


def _undecided(pairs: pd.DataFrame, baseline: str) -> list[str]:
    """Return a sentence per recipe whose seeds do not separate it from the baseline."""
    notes = []
    for row in compared_pairs(pairs).itertuples():
        where, both = row.env or "Here", f"{row.recipe} and {baseline}"
        equal = row.pairs - row.higher - row.lower
        if equal == row.pairs:
            notes.append(f"{where}: the final scores of {both} are equal in every seed ({equal}).")
        elif row.pairs == 1:
            notes.append(
                f"{where}: {both} have one common seed, so there is no interval, and the difference may be chance."
            )
        elif row.pairs < FEW:
            chance = f"one sign, which happens by chance once in {2 ** (row.pairs - 1)} times"
            one = f"one sign or are 0 ({equal} of {row.pairs})" if equal else chance
            signs = "both signs" if row.higher and row.lower else one
            notes.append(f"{where}: {both} have {row.pairs} common seeds, too few for an interval. The differences "
                         f"have {signs}.")  # fmt: skip
        elif row.final_low <= 0 <= row.final_high:
            notes.append(f"{where}: these {row.pairs} seeds show no difference between the final scores of {both}.")
    return notes
