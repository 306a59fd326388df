"""A plotly figure that carries a picture of itself, and HTML that is live where scripts run and static elsewhere.

A stored notebook is also read where nothing runs: untrusted, by a viewer, converted. A viewer shows the static form
if it takes away scripts, frames and styles, or does not know plotly's own. Leaves out: drawing the picture (`svg`).
"""

from typing import Any

import plotly.graph_objects as go
import plotly.io
from plotly.subplots import make_subplots

from mas_lab.widgets.document import beside, in_a_notebook, live_or_static
from mas_lab.widgets.svg import picture


class Figure(go.Figure):
    """Shown as plotly shows it; what is shown holds its picture too."""

    def _repr_mimebundle_(self, *asked: Any, **options: Any) -> dict[str, Any]:
        return _with_picture(self, super()._repr_mimebundle_(*asked, **options))

    def _ipython_display_(self) -> None:
        show(self)


def subplots(**how: Any) -> Figure:
    """`make_subplots` of such a figure."""
    return make_subplots(**how, figure=Figure())


def show(figure: go.Figure) -> None:
    """Any figure of plotly's as a notebook shows it, with its picture."""
    from IPython.display import display

    wanted = plotly.io.renderers.render_on_display and plotly.io.renderers.default
    bundle = _with_picture(figure, go.Figure._repr_mimebundle_(figure)) if wanted else {}
    if bundle:
        display({"text/html": in_a_notebook()}, raw=True)  # apart: a front end shows one form of a bundle
        display(bundle, raw=True)
    else:
        go.Figure._ipython_display_(figure)


def _with_picture(figure: go.Figure, bundle: dict[str, Any]) -> dict[str, Any]:
    if not bundle:
        return bundle
    static, live = beside(picture(figure)), bundle.get("text/html")
    return bundle | {"text/html": static if live is None else live_or_static(live, static)}
