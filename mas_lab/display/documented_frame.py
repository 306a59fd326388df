"""A table that shows its texts in full, with the meanings of its columns below it.

It does so in a notebook only; a terminal shows it as any pandas table. The meanings stand in `columns.csv`. Leaves out:
tables in pages (`widgets.document`).
"""

import csv
import html
from numbers import Number
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.display.escape import escape_control_chars

COLUMN_DOCS: dict[str, dict[str, str]] = {}
"""The meaning of each column of every table that the kit shows, besides the table of turns (`table`)."""
with (Path(__file__).parent / "columns.csv").open(encoding="utf-8", newline="") as _file:
    for _row in csv.DictReader(_file):
        COLUMN_DOCS.setdefault(_row["table"], {})[_row["column"]] = _row["meaning"]

LONG = 32
"""A text of this many characters, or of several words, is left-aligned and keeps its line breaks."""


class DocumentedFrame(pd.DataFrame):
    """A DataFrame with meanings of its columns, which its slices and copies keep; `documented` makes one."""

    _metadata = ["kind"]
    kind = ""
    """The name in `COLUMN_DOCS` under which its columns are described."""

    @property
    def _constructor(self) -> type["DocumentedFrame"]:
        return DocumentedFrame

    def _repr_html_(self) -> str:
        most, few = pd.get_option("display.max_rows"), pd.get_option("display.min_rows")
        cells = pd.DataFrame(self).map(_cell).rename(index=_cell, columns=_cell)
        cells = cells.rename_axis(index=_cell, columns=_cell)
        with pd.option_context("display.max_colwidth", None):
            table = cells.to_html(
                escape=False, notebook=True, max_cols=pd.get_option("display.max_columns"),
                max_rows=most if not most or len(self) <= most or not few else min(most, few),
                show_dimensions=pd.get_option("display.show_dimensions"),
            )  # fmt: skip
        return f'<div class="tex2jax_ignore mathjax_ignore">{table}{key_html(self.kind, self.columns)}</div>'


def documented(table: pd.DataFrame, kind: str = "") -> DocumentedFrame:
    """Return the table as one that shows the meanings of its columns, `COLUMN_DOCS[kind]`."""
    table = DocumentedFrame(table)
    table.kind = kind
    return table


def key_html(kind: str, columns: Any) -> str:
    """Return the meanings of the columns as an HTML paragraph, or an empty string if none has a meaning."""
    meanings = COLUMN_DOCS.get(kind, {})
    parts = [f"<b>{html.escape(str(name))}</b>: {html.escape(meanings[name])}" for name in columns if name in meanings]
    return f"<p><small>{'; '.join(parts)}</small></p>" if parts else ""


def _cell(value: Any) -> Any:
    """Return text and objects as HTML; numbers and times, which pandas shows in its own way, as they are."""
    if isinstance(value, bool | Number | pd.Timestamp) or value is None:
        return value
    text = html.escape(escape_control_chars(str(value)))
    long = len(text) >= LONG or len(text.split()) > 1
    text = text.replace("\n", "&#10;")  # else pandas writes a line break as \n
    return f'<div style="text-align: left; white-space: pre-wrap">{text}</div>' if long else text
