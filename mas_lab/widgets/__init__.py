"""Draw tables as figures, and build the interactive instruments around them.

All figures come from pure functions of tables. In a notebook, importing the kit also changes how plotly figures are
shown. Each figure then carries a static picture of itself, even if it was drawn without the kit. This module leaves out
how the numbers are computed (`explain`, `runs`, `study`).
"""

import sys
from typing import Any

from mas_lab.display.progress import in_notebook


def _show(figure: Any) -> None:
    from mas_lab.widgets.picture import show

    show(figure)


if in_notebook():
    # By the name of plotly's figure class, so that plotly need not be imported here.
    formatter = sys.modules["IPython"].get_ipython().display_formatter.ipython_display_formatter
    formatter.for_type_by_name("plotly.graph_objs._figure", "Figure", _show)
