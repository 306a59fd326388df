"""Pictures of tables: pure functions from tables to figures, and the instruments around them.

In a notebook that imports the kit every plotly figure carries its picture, also one that somebody drew without the kit.
Leaves out: what the numbers are (`explain`, `runs`, `study`).
"""

import sys
from typing import Any


def _figures_carry_pictures() -> None:
    """By plotly's name, which asks for no import of it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if hasattr(shell, "kernel"):
        by_name = shell.display_formatter.ipython_display_formatter.for_type_by_name
        by_name("plotly.graph_objs._figure", "Figure", _show)


def _show(figure: Any) -> None:
    from mas_lab.widgets.picture import show

    show(figure)


_figures_carry_pictures()
