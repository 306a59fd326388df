"""Choose the learning rate of each arm by one rule that is fixed before arms are compared.

Leaves out: the runs of the sweep, and the comparison at the chosen rates (`comparison`).
"""

import math
from numbers import Real

import pandas as pd

from mas_lab.table import TableError

CELL = ["task", "arm"]


def best_rate(sweep: pd.DataFrame, score: str = "final") -> pd.DataFrame:
    """Return each rate that was tried, and mark the one with the highest mean `score` per task and arm.

    `sweep` has a row per run: `task`, `arm`, `lr`, `seed` and its final held-out score (higher is better). The result
    has a row per task, arm and `lr`, also for rates that were not chosen. Its columns are the number of `seeds`, the
    `mean`, the `least` and `most` score, `chosen`, and `edge`. `edge` marks a chosen rate that is the smallest or
    largest one tried, so that a better one may lie beyond.

    Means tie if their sums are the same number; the smaller rate is then chosen. A failed run has the score -inf. So a
    rate with a failed run is chosen only if all other rates have one too.

    Each arm gets the same chance. TableError is raised if arms tried unequal numbers of rates, if the rates of a task
    have different seeds, if a seed appears twice, or if a score or rate is not a number.
    """
    _check(sweep, score)
    rows = []
    for (task, arm), cell in sweep.groupby(CELL, sort=False):
        tried = [
            {"lr": lr, "seeds": len(own), "mean": math.fsum(own) / len(own), "least": own.min(), "most": own.max()}
            for lr, own in cell.groupby("lr")[score]
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


def _check(sweep: pd.DataFrame, score: str) -> None:
    missing = [name for name in (*CELL, "lr", "seed", score) if name not in sweep.columns]
    if missing:
        raise TableError(f"best_rate: column {missing[0]!r} is missing; a sweep has task, arm, lr, seed and {score}, a "
                         "row per run")  # fmt: skip
    if sweep.empty:
        raise TableError("best_rate: the sweep has no runs")
    for name in (*CELL, "seed", "lr", score):
        numbers = sweep[name] if name in ("lr", score) else None
        wrong = sweep[sweep[name].isna() if numbers is None else ~numbers.map(_finite)]
        if len(wrong):
            raise TableError(f"best_rate: {name} is {wrong[name].iloc[0]!r} at {_place(wrong.iloc[0])}; repeat or "
                             "leave out that run, of every arm")  # fmt: skip
    if (sweep["lr"] <= 0).any():
        raise TableError(f"best_rate: lr must be above 0, and is not at {_place(sweep[sweep['lr'] <= 0].iloc[0])}")
    twice = sweep[sweep.duplicated([*CELL, "lr", "seed"])]
    if len(twice):
        raise TableError(f"best_rate: two runs at {_place(twice.iloc[0])}; keep one")
    _check_same_chance(sweep)


def _finite(value: object) -> bool:
    return isinstance(value, Real) and (math.isfinite(value) or value == -math.inf)


def _check_same_chance(sweep: pd.DataFrame) -> None:
    """Raise TableError unless all arms tried equally many rates, with the same seeds at each rate of a task."""
    tried = sweep.groupby(CELL, sort=False)["lr"].nunique()
    few = tried[tried < tried.max()]
    if len(few):
        told = "; ".join(f"{arm} on {task}: {count}" for (task, arm), count in few.items())
        raise TableError(f"best_rate: others tried {tried.max()} rates, these fewer: {told}; run the missing ones")
    for task, own in sweep.groupby("task", sort=False):
        seeds = own.groupby(["arm", "lr"], sort=False)["seed"].agg(lambda one: tuple(sorted(one)))
        every = set().union(*seeds)
        lacking = [f"{arm} at {lr:g} lacks {_listed(every - set(own))}" for (arm, lr), own in seeds.items()
                   if every - set(own)]  # fmt: skip
        if lacking:
            raise TableError(f"best_rate: unlike seeds on {task}: {'; '.join(lacking)}; run these too")


def _listed(seeds: set) -> str:
    return f"seed{'' if len(seeds) == 1 else 's'} " + ", ".join(map(str, sorted(seeds)))


def _place(run: pd.Series) -> str:
    return ", ".join(f"{name} {run[name]}" for name in (*CELL, "lr", "seed"))
