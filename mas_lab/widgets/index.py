"""The index of the episodes that an instrument reads, as a page has it.

Leaves out: what a row says, and what tells most (`explain.index`); which rows a page holds (`choice`).
"""

from typing import Any

import numpy as np
import pandas as pd

from mas_lab.explain.index import NEEDED, READ, TOLD, indexed, reduced
from mas_lab.table import require
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import visible_data


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


def plain(index: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns of an index as a page's data: texts visible, numbers to four decimals, null where there is none."""
    found = {}
    for name in TOLD:
        values = index[name].astype(object).where(index[name].notna(), None).tolist()
        found[name] = [round(one, 4) if isinstance(one, float) else visible_data(one) for one in values]
    return found
