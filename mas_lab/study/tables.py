"""Turn the records of trainings into tables: a row per run, per scored step, or per agent.

Leaves out: the list of trainings (`design`), and their files (`record`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from mas_lab.study.design import Cell
from mas_lab.train.budget import KINDS

CELL = ["task", "arm", "phase", "lr", "seed"]
Named = tuple[Mapping[str, Any], Mapping[str, Any]]
"""The columns `CELL` of a cell, and its record."""


def named(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell, name) for name in CELL}


def run_row(called: Mapping[str, Any], record: Mapping[str, Any] | None, score: str) -> dict[str, Any]:
    """Return the row of a run: the amounts it spent, and its first (`start`) and last (`final`) held-out score."""
    if record is None:
        return dict(called)
    curve = record["curve"] or [{score: float("nan")}]
    ends = {"start": curve[0][score], "final": curve[-1][score]}
    return {**called, **{name: record[name] for name in ("steps", *KINDS, "seconds")}, **ends}


def rows_of(records: Iterable[Named], kept: str) -> pd.DataFrame:
    """Return the rows of "curve" or of "agents" of all records."""
    return pd.DataFrame([{**called, **row} for called, record in records for row in record[kept]])


def failures_of(records: Iterable[Named]) -> list[tuple[str, str, int, str]]:
    """Return (task, arm, seed, error) of each training that failed."""
    return [(called["task"], called["arm"], called["seed"], record["error"]) for called, record in records
            if record.get("error")]  # fmt: skip


def held_equal(budgets: Iterable[Mapping[str, int]]) -> str:
    """Return the unit of these budgets, or "tokens" if they have several."""
    kinds = {kind for budget in budgets for kind in budget}
    return kinds.pop() if len(kinds) == 1 else "tokens"
