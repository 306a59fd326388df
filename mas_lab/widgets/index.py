"""Make the index of the episodes that an instrument reads, in the form of a page.

This module leaves out the content and ranking of rows (`explain.index`), and the choice of rows for a page (`choice`).
"""

import re
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.explain.index import NEEDED, READ, TOLD, indexed, reduced
from mas_lab.table import require
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import visible_data


def index_of(source: Source, run: int = 0) -> pd.DataFrame:
    """Return a row per episode and step of a source, the most telling first; columns as in `explain.index.TOLD`."""
    return indexed(_rows(source), source.order, run)


def _rows(source: Source) -> pd.DataFrame:
    """Return every row of a source with the columns that the index needs, and with lists reduced to a number."""
    if source.run is not None:
        tables = source.arrow(list(READ))
        return pd.concat([reduced(table) for table in tables], ignore_index=True)
    turns = source.all_turns()
    require(turns, NEEDED, "RolloutViewer")
    return reduced(turns[[name for name in READ if name in turns.columns]].reset_index(drop=True))


def ranks(index: pd.DataFrame, by: str) -> np.ndarray:
    """Return a column as numbers to sort by: |advantage|, a text's rank by words and numbers, NaN if missing."""
    if not pd.api.types.is_numeric_dtype(index[by]):
        order = sorted(index[by].unique(), key=_words_and_numbers)
        return index[by].map({text: place for place, text in enumerate(order)}).to_numpy(float)
    values = index[by].astype("Float64").to_numpy(float, na_value=np.nan)
    return np.abs(values) if by == "advantage" else values


def _words_and_numbers(text: str) -> list[str | int]:
    return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", text.lower()))]


def plain(index: pd.DataFrame) -> dict[str, list[Any]]:
    """Return an index as a page's data, with visible texts, four decimals, and null for missing values."""
    found = {}
    for name in TOLD:
        values = index[name].astype(object).where(index[name].notna(), None).tolist()
        found[name] = [round(one, 4) if isinstance(one, float) else visible_data(one) for one in values]
    return found
