"""A standalone HTML page of headings, text, tables and figures, that works offline.

Text that came from a model is escaped. Leaves out: what is on the page.
"""

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.widgets.figures import OFFLINE

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.35rem 0.7rem; text-align: left; vertical-align: top; }
.table { overflow-x: auto; } footer { margin-top: 3rem; color: #666; font-size: 0.85rem; }
"""


def write_page(path: str | Path, title: str, parts: Sequence[Any]) -> Path:
    """Write `parts` in order: "# ..." and "## ..." strings are headings, other strings paragraphs, DataFrames tables,
    plotly figures figures, and (figure, alternative text) a figure that is described to those who cannot see it."""
    body, first = [], True
    for part in parts:
        figure, described = part if isinstance(part, tuple) else (part, "")
        if hasattr(figure, "to_html") and not isinstance(figure, pd.DataFrame):
            drawn = figure.to_html(full_html=False, include_plotlyjs=first, default_width="100%", config=OFFLINE)
            body.append(f'<figure role="img" aria-label="{html.escape(described, quote=True)}">{drawn}</figure>')
            first = False
        else:
            body.append(_part(part))
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>{''.join(body)}</body></html>"
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(path.name + ".tmp")
    staged.write_text(page, encoding="utf-8", errors="replace")
    return staged.replace(path)


def _part(part: Any) -> str:
    if isinstance(part, pd.DataFrame):
        return (
            f'<div class="table">{part.to_html(index=False, escape=True, border=0, float_format="{:.3f}".format)}</div>'
        )
    text = str(part)
    level = len(text) - len(text.lstrip("#"))
    if level:
        return f"<h{level}>{html.escape(text[level:].strip())}</h{level}>"
    return f"<p>{html.escape(text)}</p>"
