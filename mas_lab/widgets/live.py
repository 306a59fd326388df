"""A curve that grows while a training loop runs, wherever a notebook is shown: no widget, one drawing per step.

Leaves out: stopping the loop (interrupt the kernel, or break out of it).
"""

import pandas as pd

from mas_lab.train import Report
from mas_lab.widgets.figures import learning_curves


class LiveCurve:
    """`curve.add(report)` after each step; `curve.table` keeps a row per step."""

    def __init__(self, recipe: str = "training", seed: int = 0):
        self.recipe, self.seed, self.rows, self._handle = recipe, seed, [], None

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(self.rows)

    def add(self, report: Report) -> None:
        from IPython.display import display

        tokens = report.tokens + (self.rows[-1]["tokens"] if self.rows else 0)
        row = {"recipe": self.recipe, "seed": self.seed, "step": report.step, "tokens": tokens}
        self.rows.append(row | {"success": report.success})
        figure = learning_curves(self.table)
        if self._handle is None:
            self._handle = display(figure, display_id=True)
        else:
            self._handle.update(figure)
