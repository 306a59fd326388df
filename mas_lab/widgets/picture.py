"""Give plotly figures a static picture of themselves, and HTML that is live only where scripts run.

A stored notebook is also read where nothing runs: untrusted, in a viewer, or converted. Some viewers remove scripts,
frames and styles, or do not know plotly's output. They show the static form. This module leaves out drawing the picture
(`drawing`).
"""

import base64
import html
from collections.abc import Iterable
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io
from plotly.subplots import make_subplots

from mas_lab.widgets.document import beside, folded, in_a_notebook, live_or_static, table_html
from mas_lab.widgets.drawing import named, plain, plain_text, svg, title_of

MOST = 24
"""Maximum number of rows in a figure's table."""


class Figure(go.Figure):
    """A plotly figure whose output in a notebook also contains its picture."""

    def _repr_mimebundle_(self, *asked: Any, **options: Any) -> dict[str, Any]:
        return _with_picture(self, super()._repr_mimebundle_(*asked, **options))

    def _ipython_display_(self) -> None:
        show(self)


def subplots(**how: Any) -> Figure:
    """Return `make_subplots` on a `Figure` of this module."""
    return make_subplots(**how, figure=Figure())


def show(figure: go.Figure) -> None:
    """Show any plotly figure in a notebook, with its picture."""
    from IPython.display import display

    wanted = plotly.io.renderers.render_on_display and plotly.io.renderers.default
    bundle = _with_picture(figure, go.Figure._repr_mimebundle_(figure)) if wanted else {}
    if bundle:
        display({"text/html": in_a_notebook()}, raw=True)  # separate, because a front end shows one form of a bundle
        display(bundle, raw=True)
    else:
        go.Figure._ipython_display_(figure)


def picture(figure: go.Figure) -> str:
    """Return the figure as an <img> that contains its SVG, or as a sentence if only plotly can draw it."""
    described = html.escape(told(figure), quote=True)
    try:
        data = base64.b64encode(svg(figure).encode()).decode()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return f"<p>{described}</p>"
    return f'<img alt="{described}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def told(figure: go.Figure) -> str:
    """Return a sentence on what a figure shows: its axes, its panels, and the names in its key."""
    traces, layout = plain(figure)
    titles = [(name[0], title_of(axis)) for name, axis in sorted(layout.items()) if name[1:5] == "axis"]
    across = [_listed(title for of, title in titles if of == letter) for letter in "yx"]
    notes = _listed(note["text"] for note in layout.get("annotations", ()))
    parts = (" over ".join(filter(None, across)), notes, _listed(named(traces, layout)))
    return ". ".join(filter(None, parts)) or "Figure"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, dict.fromkeys(map(plain_text, texts))))


def _with_picture(figure: go.Figure, bundle: dict[str, Any]) -> dict[str, Any]:
    if not bundle:
        return bundle
    static, live = beside(picture(figure) + numbers(figure)), bundle.get("text/html")
    return bundle | {"text/html": static if live is None else live_or_static(live, static)}


def numbers(figure: go.Figure) -> str:
    """Return a folded table with the lowest, mean and highest value of a figure's traces, or an empty text.

    It is for viewers that also remove images. A trace counts along its axis of numbers: y, unless that shows names.
    """
    layout, found = figure.layout.to_plotly_json(), {}
    for trace in figure.data:
        place = (getattr(trace, "yaxis", None) or "y")[1:]
        is_flat = getattr(trace, "orientation", None) == "h" or "ticktext" in layout.get(f"yaxis{place}", {})
        title = plain_text(title_of(layout.get(f"{'x' if is_flat else 'y'}axis{place}", {})))
        values = pd.Series(getattr(trace, "x" if is_flat else "y", None), dtype=object)
        key = (plain_text(trace.name or ""), title)
        found.setdefault(key, []).append(pd.to_numeric(values, errors="coerce").dropna())
    held = {key: pd.concat(parts).astype(float) for key, parts in found.items()}
    rows = [(*key, len(own), own.min(), own.mean(), own.max()) for key, own in held.items() if len(own)][:MOST]
    if not rows:
        return ""
    table = pd.DataFrame(rows, columns=["name", "of", "points", "lowest", "mean", "highest"])
    return folded("The figure in numbers", table_html(table, "Its points, over all that has one name"))
