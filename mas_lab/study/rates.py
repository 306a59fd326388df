"""Choose the learning rate of each arm by one rule that is fixed before arms are compared.

Leaves out: the runs of the sweep, and the comparison at the chosen rates (`comparison`).
"""

import math

import pandas as pd


def best_rate(sweep: pd.DataFrame) -> pd.DataFrame:
    """Return each rate that was tried, and mark the one with the highest mean score per task and arm.

    `sweep` has a row per run: `task`, `arm`, `lr`, `seed` and its `final` held-out score (higher is better). All arms
    of a task tried the same rates with the same seeds, so each gets the same chance. The result has a row per task, arm
    and `lr`, also for rates that were not chosen. Its columns are the number of `seeds`, the `mean`, the `least` and
    `most` score, `chosen`, and `edge`. `edge` marks a chosen rate that is the smallest or largest one tried, so that a
    better one may lie beyond.

    Means tie if their sums are the same number; the smaller rate is then chosen. A failed run has the score -inf. So a
    rate with a failed run is chosen only if all other rates have one too.
    """
    rows = []
    for (task, arm), cell in sweep.groupby(["task", "arm"], sort=False):
        tried = [
            {"lr": lr, "seeds": len(own), "mean": math.fsum(own) / len(own), "least": own.min(), "most": own.max()}
            for lr, own in cell.groupby("lr")["final"]
        ]
        best = max(tried, key=lambda one: (one["mean"], -one["lr"]))
        ends = (tried[0], tried[-1])
        rows += [
            {"task": task, "arm": arm, **one, "chosen": one is best, "edge": one is best and one in ends}
            for one in tried
        ]
    return pd.DataFrame(rows)


def chosen(rates: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the rate that `best_rate` chose for each (task, arm)."""
    best = rates[rates["chosen"]] if len(rates) else rates
    return {(row.task, row.arm): row.lr for row in best.itertuples()}
