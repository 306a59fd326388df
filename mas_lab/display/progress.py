"""The front end in use, and a progress bar for it: a terminal or a notebook; silent in logs, tests and pipes.

The bar is also silent in threads: `LiveDashboard` trains in one and shows the progress itself. Leaves out: drawing the
bar in a notebook (`cell_bars`).
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from mas_lab.display.cell_bars import DELAY, CellBar

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
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


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


def progress_bar(total: int | None, description: str, unit: str, even: bool = False) -> tqdm | CellBar:
    """Return a bar that appears after half a second; afterwards a notebook keeps one line of it, a terminal nothing.

    `even`: all units take about the same time, so the remaining time can be estimated. Otherwise only the elapsed time
    is shown: the episodes of a rollout, for example, end nearly all at once. `total` None: the number of units is
    unknown.
    """
    may_draw = not _hidden and threading.current_thread() is threading.main_thread()
    if may_draw and in_notebook():
        return CellBar(total, description, unit, even)
    shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} {unit} [{elapsed}" + ("<{remaining}]" if even else "]")
    return tqdm(total=total, desc=description, unit=unit, disable=not (may_draw and sys.stderr.isatty()), leave=False,
                delay=DELAY, smoothing=0, bar_format=shown)  # fmt: skip
