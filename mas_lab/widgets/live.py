"""Redraw figures in place while a training loop runs, in any notebook front end and without a widget.

This module leaves out running and stopping the loop (`dashboard`).
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm import tqdm

from mas_lab.display.progress import front_end
from mas_lab.runs.scores import mean_scores
from mas_lab.widgets.document import beside, escape, in_a_notebook
from mas_lab.widgets.figures import learning_curves

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from mas_lab.train import Report

DRAWING, PAUSES = 0.1, (1.0, 5.0)
"""Largest share of the time that goes into drawing; minimum and maximum seconds between two drawings."""

LIVE = ("jupyter", "vscode")
"""Front ends (`progress.front_end`) whose widgets stay live after their cell has returned."""


class Redrawn:
    """One output of a cell that the next one replaces: `show(figure)`, or `show(text)`."""

    def __init__(self):
        self._handle, self._bundle, self._of_figures = None, None, False

    def show(self, what: "Figure | str") -> None:
        from IPython.display import display

        # A figure's own display takes no display id, so its MIME bundle is shown instead.
        self._of_figures = self._of_figures or not isinstance(what, str)
        self._bundle = {"text/plain": what} if isinstance(what, str) else what._repr_mimebundle_()
        if self._handle is None:
            if self._of_figures:
                display({"text/html": in_a_notebook()}, raw=True)
            self._handle = display(self._bundle, raw=True, display_id=True)
            return
        if not isinstance(what, str):
            # JupyterLab's plotly renderer draws only once per output: an empty box must replace the figure first.
            height = what.layout.height or 450
            self._handle.update({"text/html": f'<div style="height: {height}px"></div>'}, raw=True)
        self._handle.update(self._bundle, raw=True)

    def make_room(self) -> None:
        """Reserve the place of a figure in the cell, before there is a figure."""
        self._of_figures = True
        self.show("")

    def repeat(self) -> None:
        """Show the same output again in the cell that runs now; both copies are updated later."""
        if self._handle is not None:
            self._handle.display(self._bundle, raw=True)


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

    def take(self, report: "Report") -> None:
        before, self._tokens = self._tokens, self._tokens + report.tokens
        if report.held_out is not None:
            for score in mean_scores(report.held_out).itertuples():
                self.add(self._tokens if score.step > report.step else before, score.success)

    def add(self, tokens: int, success: float) -> None:
        self.points.append((tokens, success))
        self._drawing.show(learning_curves(self.table, y_title=self._y_title))


def with_fallback(widget: Any, static: str) -> dict[str, Any]:
    """Return a widget's output with static HTML for viewers and notebooks in which the widget is not live."""
    shown = widget._repr_mimebundle_() if hasattr(widget, "_repr_mimebundle_") else _of_ipywidgets_7(widget)
    shown = shown[0] if isinstance(shown, tuple) else shown  # anywidget adds metadata
    return {**shown, "text/html": static}


def _of_ipywidgets_7(widget: Any) -> dict[str, Any]:
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    return {"text/plain": repr(widget), "application/vnd.jupyter.widget-view+json": view}


class Controls:
    """A progress bar, buttons to stop and to look, and a line of text, as core widgets (ipywidgets 7.7.1 and later).

    `look` returns the HTML of an episode. It has its own output, which stays when the controls disappear.
    """

    def __init__(self, steps: int, stop: Callable[[], None], look: Callable[[], str]):
        import ipywidgets

        def button(label: str, icon: str, tooltip: str, press: Callable[[], None]) -> Any:
            made = ipywidgets.Button(description=label, icon=icon, tooltip=tooltip)
            made.on_click(lambda _: press())
            return made

        self._bar = ipywidgets.IntProgress(min=0, max=max(1, steps), layout={"width": "30%"})
        told = "End training after this step, with a checkpoint where the run is kept"
        self._button = button("Stop", "stop", told, stop)
        told = "Open the most telling episode of the newest step below; training goes on"
        self._look = button("Look", "search", told, lambda: self._open(look))
        self._line = ipywidgets.HTML()  # not Label, which renders $…$ as LaTeX
        self._box = ipywidgets.VBox([ipywidgets.HBox([self._button, self._look, self._bar]), self._line])
        self._handle, self._told, self._has_ended = None, "", False
        self._opened, self._looked_at = None, {"text/plain": "", "text/html": ""}

    def show(self) -> None:
        bundle = self._left() if self._has_ended else with_fallback(self._box, self._left()["text/html"])
        self._handle = _shown_again(self._handle, bundle)

    repeat = show

    def make_room(self) -> None:
        """Reserve the output of the look button, below everything shown so far."""
        self._opened = _shown_again(self._opened, self._looked_at)

    def _open(self, look: Callable[[], str]) -> None:
        self._look.disabled = True
        try:
            self._looked_at = {"text/plain": "an episode", "text/html": look()}
        except Exception as error:  # nobody could catch the error of a click
            told = f"{type(error).__name__}: {error}"
            self._looked_at = {"text/plain": told, "text/html": beside(escape(told))}
        self._look.disabled = False
        if self._opened is not None:
            self._opened.update(self._looked_at, raw=True)

    def tell(self, done: int, line: str, state: str) -> None:
        """Update the bar and the line; in the `state` "ended" or "failed", only the line is left, as text."""
        self._bar.value, self._line.value, self._told = done, escape(line), line
        self._button.disabled = state != "running"
        self._button.description = "Stop" if state == "running" else "Stopping"
        self._has_ended = state in ("ended", "failed")
        if self._has_ended and self._handle is not None:
            self._handle.update(self._left(), raw=True)

    def _left(self) -> dict[str, str]:
        """Return the line, for viewers in which no widget is live."""
        return {"text/plain": self._told, "text/html": beside(escape(self._told))}


def _shown_again(handle: Any, bundle: dict[str, Any]) -> Any:
    """Show an output, again if it has a handle, and return its handle."""
    from IPython.display import display

    if handle is None:
        return display(bundle, raw=True, display_id=True)
    handle.display(bundle, raw=True)
    return handle


class Line(Redrawn):
    """The line of `Controls` as text, for front ends without live widgets."""

    def tell(self, done: int, line: str, state: str) -> None:
        self.show(line)


class Bar:
    """A progress bar in a terminal, with the line of `Controls` at the end; silent if nobody watches."""

    def __init__(self, steps: int):
        shown = "|{bar:20}| {elapsed}<{remaining} {desc}"
        self._bar = tqdm(total=steps, disable=not sys.stderr.isatty(), leave=False, bar_format=shown)

    def tell(self, done: int, line: str, state: str) -> None:
        if self._bar.disable:
            return
        self._bar.n = done
        self._bar.set_description_str(line)
        if state in ("ended", "failed"):
            self._bar.close()
            print(line, file=sys.stderr)
            self._bar.disable = True


class Shown:
    """The display of a training in a thread: controls, and a figure that is redrawn in place.

    The buttons call `stop` and `look`. With `foreground`, the cell returns only after training has ended. A terminal
    gets a bar.
    """

    def __init__(self, steps: int, stop: Callable[[], None], look: Callable[[], str], foreground: bool):
        self._telling, self._cell = threading.Lock(), _cell()
        self._drawn = self._next_drawing = 0.0
        if front_end() == "terminal":
            self._controls, self._drawing = Bar(steps), None
            return
        self._controls, self._drawing = (Line() if foreground else Controls(steps, stop, look)), Redrawn()
        if not foreground:
            self._controls.show()
            self._drawing.make_room()
            self._controls.make_room()

    def tell(self, news: Callable[[], tuple[int, str, str]]) -> None:
        """Show the newest (steps done, line, state); `news` is called under a lock, because two threads report."""
        with self._telling:
            self._controls.tell(*news())

    def draw(self, figure: "Callable[[], Figure]") -> None:
        if self._drawing is not None:
            self._drawing.show(figure())

    def draw_if_due(self, figure: "Callable[[], Figure]", patient: bool = True) -> None:
        """Draw the figure if it is due: drawing takes at most a share `DRAWING` of the time.

        A rare update has `patient=False` and waits only for the shortest pause. The next chance to draw it may come an
        hour later.
        """
        if time.monotonic() < (self._next_drawing if patient else self._drawn + PAUSES[0]):
            return
        start, first = time.monotonic(), self._next_drawing == 0.0  # the first drawing also imports plotly
        self.draw(figure)
        pause = 0.0 if first else (time.monotonic() - start) * (1 / DRAWING - 1)
        self._drawn = time.monotonic()
        self._next_drawing = self._drawn + min(max(pause, PAUSES[0]), PAUSES[1])

    def repeat(self) -> None:
        """Show the same again in the cell that runs now, except in the cell in which it was made."""
        if self._drawing is None or self._cell == _cell():
            return
        self._controls.repeat()
        self._drawing.repeat()
        if isinstance(self._controls, Controls):
            self._controls.make_room()


def _cell() -> int | None:
    """Return the number of the notebook cell that runs, or `None` without IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.execution_count if shell else None
