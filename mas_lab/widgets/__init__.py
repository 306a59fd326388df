"""Draw tables as figures, and build the interactive instruments around them.

All figures come from pure functions of tables. In a notebook, importing the kit also changes how plotly figures are
shown. Each figure then carries a static picture of itself, even if it was drawn without the kit. This module leaves out
how the numbers are computed (`explain`, `runs`, `study`).
"""

import sys
from typing import Any


def _figures_carry_pictures() -> None:
    """Register `_show` by the name of plotly's figure class, so that plotly need not be imported here."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if hasattr(shell, "kernel"):
        by_name = shell.display_formatter.ipython_display_formatter.for_type_by_name
        by_name("plotly.graph_objs._figure", "Figure", _show)


def _show(figure: Any) -> None:
    from mas_lab.widgets.picture import show

    show(figure)


_figures_carry_pictures()
