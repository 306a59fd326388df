"""Who watches, and a progress bar for them: a terminal or a notebook; silent in logs, tests and pipes.

Silent in threads too: `LiveDashboard` trains in one, and shows how far it is by itself. Leaves out: how a notebook
draws one (`cell_bars`).
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm import tqdm

from mas_lab.cell_bars import DELAY, CellBar

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
    """Where output is drawn, a key of `FRONT_ENDS`. Told by what each front end leaves behind; none is asked."""
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
    """Is this a Jupyter kernel (JupyterLab, Colab, Kaggle)?"""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


_hidden = 0


@contextmanager
def no_bars() -> Iterator[None]:
    """No bar appears within: somebody else shows how far it is."""
    global _hidden
    _hidden += 1
    try:
        yield
    finally:
        _hidden -= 1


def progress_bar(total: int | None, description: str, unit: str, even: bool = False) -> tqdm | CellBar:
    """A bar that appears after half a second. A terminal keeps nothing of it, a notebook a line of what was done.

    `even`: all units take about as long, so that the time left can be told. Otherwise it says the time gone by alone:
    the episodes of a rollout, for one, end nearly all at once. `total` None: nobody knows how many there will be.
    """
    may_draw = not _hidden and threading.current_thread() is threading.main_thread()
    if may_draw and in_notebook():
        return CellBar(total, description, unit, even)
    shown = "{l_bar}{bar}| {n_fmt}/{total_fmt} {unit} [{elapsed}" + ("<{remaining}]" if even else "]")
    return tqdm(total=total, desc=description, unit=unit, disable=not (may_draw and sys.stderr.isatty()), leave=False,
                delay=DELAY, smoothing=0, bar_format=shown)  # fmt: skip
