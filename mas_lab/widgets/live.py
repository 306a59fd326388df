"""Redraw figures in place while a training loop runs, and show widgets with a static form for other viewers.

This module leaves out running and stopping the loop (`dashboard`).
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from mas_lab.display.progress import front_end
from mas_lab.runs.scores import mean_scores
from mas_lab.train import Report
from mas_lab.widgets.document import beside, escape, in_a_notebook
from mas_lab.widgets.figures import learning_curves
from mas_lab.widgets.picture import with_picture

DRAWING, PAUSES = 0.1, (1.0, 5.0)
"""Largest share of the time that goes into drawing; minimum and maximum seconds between two drawings."""
LIVE = ("jupyter", "vscode")
"""Front ends (`progress.front_end`) whose widgets stay live after their cell has returned."""


class Redrawn:
    """One output of a cell that the next one replaces: a MIME bundle, a text or a figure."""

    def __init__(self):
        self._handle, self._bundle, self._next = None, None, 0.0

    def make_room(self) -> None:
        """Reserve the place of a figure in the cell that runs now, before there is a figure."""
        from IPython.display import display

        display({"text/html": in_a_notebook()}, raw=True)
        self._place({"text/plain": ""})

    def _place(self, bundle: "dict[str, Any]") -> None:
        from IPython.display import DisplayHandle, display

        self._bundle = bundle
        self._handle = display(bundle, raw=True, display_id=True) or DisplayHandle()  # none outside of IPython

    def show(self, bundle: dict[str, Any]) -> None:
        if self._handle is None:
            self._place(bundle)
        else:
            self._bundle = bundle
            self._handle.update(bundle, raw=True)

    def draw(self, figure: Figure) -> None:
        """Show a figure by its MIME bundle, because its own display takes no display id."""
        if self._handle is None:
            self.make_room()
        # JupyterLab's plotly renderer draws only once per output: an empty box must replace the figure first.
        self._handle.update({"text/html": f'<div style="height: {figure.layout.height or 450}px"></div>'}, raw=True)
        self.show(with_picture(figure))

    def repeat(self) -> None:
        """Show the same output again in the cell that runs now; both copies are updated later."""
        if self._handle is not None:
            self._handle.display(self._bundle, raw=True)

    def draw_if_due(self, figure: Callable[[], Figure]) -> None:
        """Show the figure if it is due: drawing takes at most a share `DRAWING` of the time."""
        start = time.monotonic()
        if start >= self._next:
            self.draw(figure())
            now = time.monotonic()
            self._next = now + min(max((now - start) * (1 / DRAWING - 1), PAUSES[0]), PAUSES[1])


class LiveCurve:
    """Draw success on held-out tasks over sampled tokens, anew with each point; `curve.table` holds the points.

    Call `curve.take(report)` after each step of `train(..., score_every=5)`. Call `curve.add(tokens, success)` for
    another score from 0 to 1, and name it by `y_title`. Do not pass `report.success`: it is the success of training
    episodes. Under `tree()` these are the best of K candidates.
    """

    def __init__(self, recipe: str = "training", seed: int = 0, y_title: str = "success on held-out tasks"):
        self.recipe, self.seed, self.points, self._drawing = recipe, seed, [], Redrawn()
        self._y_title, self._tokens = y_title, 0

    @property
    def table(self) -> pd.DataFrame:
        points = pd.DataFrame(self.points, columns=["tokens", "success"])
        return points.assign(recipe=self.recipe, seed=self.seed)

    def take(self, report: Report) -> None:
        before, self._tokens = self._tokens, self._tokens + report.tokens
        if report.held_out is not None:
            for score in mean_scores(report.held_out).itertuples():
                self.add(self._tokens if score.step > report.step else before, score.success)

    def add(self, tokens: int, success: float) -> None:
        self.points.append((tokens, success))
        self._drawing.draw(learning_curves(self.table, y_title=self._y_title))


def with_fallback(widget: Any, static: str) -> dict[str, Any]:
    """Return a widget's output with static HTML for viewers and notebooks in which the widget is not live."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": repr(widget), "application/vnd.jupyter.widget-view+json": view, "text/html": static}


def interact(function: Callable[..., None], **controls: Any) -> None:
    """Show `function` below a widget for each of its arguments; a moved widget runs it again.

    A stored notebook keeps the function's output for the first values, and names these values. The widgets do not move
    in a viewer, in an untrusted notebook, or on a page made from one.
    """
    import ipywidgets
    from IPython.display import display

    widget = ipywidgets.interactive(function, **controls)
    widget.layout.flex_flow, widget.out.layout.width = "row wrap", "100%"
    values = {name: one.get_interact_value() for name, one in zip(controls, widget.kwargs_widgets, strict=True)}
    display(with_fallback(widget, _static(function, values)), raw=True)


def _static(function: Callable[..., None], values: dict[str, Any]) -> str:
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        function(**values)
    printed = f"<pre>{escape(captured.stdout)}</pre>" if captured.stdout else ""
    chosen = ", ".join(f"{name} = {value}" for name, value in values.items())
    drawn = [one.data["text/html"] for one in captured.outputs if "text/html" in one.data]
    note = f"<p><small>Here at {escape(chosen)}; the widgets live where the notebook runs.</small></p>"
    return beside(f"{printed}{''.join(drawn)}{note}")


class Controls(Redrawn):
    """A progress bar, a button to stop and a line of text, as core widgets (ipywidgets 7.7.1 and later)."""

    def __init__(self, steps: int, stop: Callable[[], None]):
        import ipywidgets

        super().__init__()
        self._bar = ipywidgets.IntProgress(min=0, max=max(1, steps), layout={"width": "30%"})
        tooltip = "End training after this step, with a checkpoint where the run is kept"
        self._button = ipywidgets.Button(description="Stop", tooltip=tooltip)
        self._button.on_click(lambda _: stop())
        self._line = ipywidgets.HTML()  # not Label, which renders $…$ as LaTeX
        self._box = ipywidgets.VBox([ipywidgets.HBox([self._button, self._bar]), self._line])

    def tell(self, done: int, line: str, state: str) -> None:
        """Update the bar and the line; in the `state` "ended" or "failed", only the line is left, as text."""
        self._bar.value, self._line.value = done, escape(line)
        self._button.disabled = state != "running"
        left = {"text/plain": line, "text/html": beside(escape(line))}
        if state in ("ended", "failed"):
            self.show(left)
        elif self._handle is None:
            self.show(with_fallback(self._box, left["text/html"]))


class Line(Redrawn):
    """The line of `Controls` as text, for front ends without live widgets."""

    def tell(self, done: int, line: str, state: str) -> None:
        if front_end() == "terminal":
            print(f"\r\x1b[K{line}", end="\n" if state in ("ended", "failed") else "", file=sys.stderr, flush=True)
        else:
            self.show({"text/plain": line})
