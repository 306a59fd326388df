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
import plotly.io
from plotly.graph_objects import Figure

from mas_lab.widgets.document import beside, folded, in_a_notebook, live_or_static, table_html
from mas_lab.widgets.drawing import named, plain, plain_text, svg, title_of

MOST = 24
"""Maximum number of rows in a figure's table."""


def show(figure: Figure) -> None:
    """Show any plotly figure in a notebook, with its picture."""
    from IPython.display import display

    renders = plotly.io.renderers.render_on_display and plotly.io.renderers.default
    if bundle := with_picture(figure) if renders else {}:
        display({"text/html": in_a_notebook()}, raw=True)  # separate, because a front end shows one form of a bundle
        display(bundle, raw=True)
    else:
        figure._ipython_display_()


def with_picture(figure: Figure) -> dict[str, Any]:
    """Return the figure's output in a notebook as a MIME bundle with its picture; empty if plotly shows nothing."""
    if not (bundle := figure._repr_mimebundle_()):
        return {}
    static, live = beside(picture(figure) + numbers(figure)), bundle.get("text/html")
    return bundle | {"text/html": static if live is None else live_or_static(live, static)}


def picture(figure: Figure) -> str:
    """Return the figure as an <img> that contains its SVG, or as a sentence if only plotly can draw it."""
    described = html.escape(description(figure), quote=True)
    try:
        data = base64.b64encode(svg(figure).encode()).decode()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return f"<p>{described}</p>"
    return f'<img alt="{described}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def description(figure: Figure) -> str:
    """Return a sentence on what a figure shows: its axes, its panels, and the names in its key."""
    traces, layout = plain(figure)
    titles = [(name[0], title_of(axis)) for name, axis in sorted(layout.items()) if name[1:5] == "axis"]
    across = [_listed(title for of, title in titles if of == letter) for letter in "yx"]
    notes = _listed(note["text"] for note in layout.get("annotations", ()))
    parts = (" over ".join(filter(None, across)), notes, _listed(named(traces, layout)))
    return ". ".join(filter(None, parts)) or "Figure"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, dict.fromkeys(map(plain_text, texts))))


def numbers(figure: Figure) -> str:
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
    by_key = {key: pd.concat(parts).astype(float) for key, parts in found.items()}
    rows = [(*key, len(own), own.min(), own.mean(), own.max()) for key, own in by_key.items() if len(own)][:MOST]
    if not rows:
        return ""
    table = pd.DataFrame(rows, columns=["name", "of", "points", "lowest", "mean", "highest"])
    return folded("The figure in numbers", table_html(table, "Its points, over all that has one name"))
