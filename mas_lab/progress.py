"""A progress bar where somebody watches: a terminal or a notebook; silent in logs, tests and pipes.

Silent in threads too: `LiveDashboard` trains in one, and shows how far it is by itself.
"""

import sys
import threading

from tqdm.auto import tqdm


def in_notebook() -> bool:
    """Is this a Jupyter kernel (JupyterLab, Colab, Kaggle)?"""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def progress_bar(total: int, description: str, unit: str) -> tqdm:
    """A bar that appears after half a second and leaves nothing behind."""
    watched = (in_notebook() or sys.stderr.isatty()) and threading.current_thread() is threading.main_thread()
    return tqdm(total=total, desc=description, unit=unit, disable=not watched, leave=False, delay=0.5)
