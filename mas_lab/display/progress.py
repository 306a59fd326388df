"""The front end in use, and progress bars for it: a terminal or a notebook; silent in logs, tests and pipes.

Bars are tqdm's. In a notebook they are plain text in one output of the cell: tqdm's own notebook bar is a widget, which
a stored notebook shows as a dead one. Bars are also silent in threads: `LiveDashboard` trains in one and shows the
progress itself.
"""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from tqdm import tqdm

DELAY, PAUSE = 0.5, 0.25
"""Seconds before a bar appears, and between two drawings of it."""
FRONT_ENDS = {
    "colab": "Colab: core widgets and static figures; the stop is the kernel's interrupt",
    "kaggle": "Kaggle, interactive",
    "kaggle-batch": "Kaggle, saved version: headless, widgets show nothing",
    "vscode": "VS Code notebook: live widgets",
    "jupyter": "Jupyter: live widgets",
    "static": "a kernel without a known front end (nbconvert, papermill): tables and pictures; for figures that zoom, "
    "start it with PLOTLY_RENDERER=plotly_mimetype+notebook, which puts 5 MB of plotly.js into the notebook",
    "terminal": "terminal: text and standalone HTML files",
}


def front_end() -> str:
    """Return where output is drawn, a key of `FRONT_ENDS`, by the traces that each front end leaves behind."""
    if "google.colab" in sys.modules:
        return "colab"
    if kind := os.environ.get("KAGGLE_KERNEL_RUN_TYPE"):
        return "kaggle" if kind == "Interactive" else "kaggle-batch"
    if "ipykernel.kernelapp" not in sys.modules:
        return "terminal"
    if "VSCODE_PID" in os.environ:
        return "vscode"
    return "jupyter" if "JPY_SESSION_NAME" in os.environ else "static"


def in_notebook() -> bool:
    """Return True in a Jupyter kernel (JupyterLab, Colab, Kaggle)."""
    return hasattr(_shell(), "kernel")


def running_cell() -> int | None:
    """Return the number of the notebook cell that runs, or `None` without IPython."""
    return getattr(_shell(), "execution_count", None)


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


_hidden = 0


@contextmanager
def no_bars() -> Iterator[None]:
    """Hide all bars inside the `with` block, because something else shows the progress."""
    global _hidden
    _hidden += 1
    try:
        yield
    finally:
        _hidden -= 1


def may_print() -> bool:
    """Return whether this thread may say something about its work: not where something else shows it."""
    return not _hidden and threading.current_thread() is threading.main_thread()


def is_watched() -> bool:
    """Return whether somebody reads what is printed now: in a notebook or terminal, and not in a pipe."""
    return may_print() and (in_notebook() or sys.stdout.isatty())


def progress_bar(total: int | None, description: str, unit: str, even: bool = False) -> tqdm:
    """Return a bar that appears after half a second; afterwards a notebook keeps one line of it, a terminal nothing.

    `even`: all units take about the same time, so the remaining time can be estimated. Otherwise only the elapsed time
    is shown: the episodes of a rollout, for example, end nearly all at once. `total` None: the number of units is
    unknown.
    """
    notebook = in_notebook()
    shows = may_print() and (notebook or sys.stderr.isatty())
    line = "{l_bar}{bar}| {n_fmt}/{total_fmt} {unit} [{elapsed}" + ("<{remaining}" if even else "") + "{postfix}]"
    return (CellBar if notebook else tqdm)(
        total=total, desc=description, unit=unit, disable=not shows, leave=False, delay=DELAY, mininterval=PAUSE,
        miniters=0, smoothing=0, bar_format=line,
    )  # fmt: skip


class CellBar(tqdm):
    """A bar as text in the output of the running cell, also if an earlier cell opened it.

    The bars of one run of a cell share its output, which keeps the last line of each outer bar. A bar that is opened
    while another is open leaves no line; the line of the outer bar covers its work.
    """

    monitor_interval = 0  # tqdm would draw from a thread, which belongs to no cell
    _open: ClassVar[dict["CellBar", int]] = {}
    """Open bars, and the cell that drew each last; tqdm compares bars by their position, so this is no list."""
    _cell: ClassVar[int | None] = -1
    _lines: ClassVar[dict[str, str]] = {}
    _handle: ClassVar[Any] = None

    def __init__(self, **options: Any):
        super().__init__(file=io.StringIO(), ascii=False, **options)
        if not self.disable:
            self._open[self] = self._cell_now()

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if not self.disable:
            self._open[self] = self._cell_now()
            if self.format_dict["elapsed"] >= DELAY:
                self._draw()

    def close(self) -> None:
        if not self.disable and self._open.pop(self, None) == self._cell_now():
            if self.format_dict["elapsed"] >= DELAY and not self._bars():
                self._lines[self.desc] = str(self)
            if self._lines or self._handle:
                self._draw()
        super().close()

    @classmethod
    def _cell_now(cls) -> int | None:
        """Return the number of the running cell; a new one starts without lines."""
        if cls._cell != (cell := running_cell()):
            cls._cell, cls._lines, cls._handle = cell, {}, None
        return cell

    def _bars(self) -> list["CellBar"]:
        return [bar for bar, cell in self._open.items() if cell == self._cell]

    def _draw(self) -> None:
        from IPython.display import display

        bundle = {"text/plain": "\n".join([*self._lines.values(), *map(str, self._bars())])}
        if self._handle is None:
            CellBar._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)
