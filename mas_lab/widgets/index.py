"""The index of the episodes that an instrument reads, and which of them a page holds.

Leaves out: what a row says, and what tells most (`explain.index`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from mas_lab.explain.index import NEEDED, READ, indexed, reduced
from mas_lab.table import require
from mas_lab.widgets.source import Source


def index_of(source: Source, run: int = 0) -> pd.DataFrame:
    """A row per episode and step of a source, columns as in `explain.index.TOLD`, the most telling first."""
    return indexed(_rows(source), source.order, run)


def _rows(source: Source) -> pd.DataFrame:
    """Every row of a source: what the index needs of it, lists reduced to a number."""
    if source.run is not None:
        tables = source.arrow(list(READ))
        return pd.concat([reduced(table) for table in tables], ignore_index=True)
    turns = source.all_turns()
    require(turns, NEEDED, "RolloutViewer")
    return reduced(turns[[name for name in READ if name in turns.columns]].reset_index(drop=True))


BEST = 10
"""Episodes that a page holds before any other: the most telling of all steps."""


def choice(index: pd.DataFrame) -> Iterator[int]:
    """Rows of an index in the order in which a page takes them: the most telling of all, then each step's most telling,
    each step's second, ...; steps in an order of which every beginning is spread evenly over training."""
    steps = index.groupby(["run", "step"]).ngroup()
    rank = index.groupby(["run", "step"]).cumcount()
    spread = steps.map(dict(enumerate(_spread(int(steps.max()) + 1))))
    best = np.arange(len(index)) >= BEST
    yield from np.lexsort([spread, rank, best]).tolist()


def _spread(n: int) -> Sequence[int]:
    """When each of n places is visited, if halves come before quarters, and these before eighths."""
    bits = max(1, (n - 1).bit_length())
    return [int(f"{place:0{bits}b}"[::-1], 2) for place in range(n)]


def otherwise(index: pd.DataFrame, place: int) -> int | None:
    """The nearest step at which a failed episode's task was solved, and there the most telling; None if nowhere."""
    own = index.iloc[place]
    others = index[(index["task"] == own["task"]) & (index["run"] == own["run"]) & (index["step"] != own["step"])]
    others = others[others["success"].fillna(False)]
    return None if others.empty else int((others["step"] - own["step"]).abs().idxmin())
