"""Give plotly figures a static picture of themselves, and HTML that is live only where scripts run.

A stored notebook is also read where nothing runs: untrusted, in a viewer, or converted. Some viewers remove scripts,
frames and styles, or do not know plotly's output. They show the static form. This module leaves out drawing the picture
(`drawing`).
"""

import re
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io
from plotly.subplots import make_subplots

from mas_lab.widgets.document import beside, in_a_notebook, live_or_static, table_html
from mas_lab.widgets.drawing import axis_of, picture, plain_text, title_of

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


def _with_picture(figure: go.Figure, bundle: dict[str, Any]) -> dict[str, Any]:
    if not bundle:
        return bundle
    static, live = beside(picture(figure) + numbers(figure)), bundle.get("text/html")
    return bundle | {"text/html": static if live is None else live_or_static(live, static)}


def numbers(figure: go.Figure) -> str:
    """Return a folded table with the lowest, mean and highest value of a figure's traces, or an empty text.

    It is for viewers that also remove images. A trace counts along its axis of numbers, if it has one.
    """
    layout, found = figure.layout.to_plotly_json(), {}
    for trace in figure.data:
        for letter in "xy" if getattr(trace, "orientation", None) == "h" or trace.type == "histogram" else "yx":
            axis = axis_of(layout, getattr(trace, f"{letter}axis", None) or letter)
            if not any(re.match(r"\W*[^\W\d]", plain_text(label)) for label in axis.get("ticktext", ())):
                values = pd.Series(getattr(trace, letter, None), dtype=object)
                own = pd.to_numeric(values, errors="coerce").dropna().astype(float)
                found.setdefault((plain_text(trace.name or ""), plain_text(title_of(axis))), []).append(own)
                break
    held = {key: pd.concat(parts) for key, parts in found.items()}
    rows = [
        {"name": name, "of": of, "points": len(own), "lowest": own.min(), "mean": own.mean(), "highest": own.max()}
        for (name, of), own in held.items() if len(own)
    ]  # fmt: skip
    if not rows:
        return ""
    more = f" ({len(rows) - MOST} more are left out)" if len(rows) > MOST else ""
    table = table_html(pd.DataFrame(rows[:MOST]), f"Its points, over all that has one name{more}")
    return f"<details><summary>The figure in numbers</summary>{table}</details>"
