"""A curve that grows while a training loop runs, wherever a notebook is shown: no widget, one drawing per step.

Leaves out: stopping the loop (interrupt the kernel, or break out of it).
"""

import pandas as pd

from mas_lab.widgets.figures import learning_curves


class LiveCurve:
    """`curve.add(tokens, success)` after a step draws all points so far; `curve.table` holds them."""

    def __init__(self, recipe: str = "training", seed: int = 0):
        self.recipe, self.seed, self.points, self._handle = recipe, seed, [], None

    @property
    def table(self) -> pd.DataFrame:
        points = pd.DataFrame(self.points, columns=["tokens", "success"])
        return points.assign(recipe=self.recipe, seed=self.seed)

    def add(self, tokens: int, success: float) -> None:
        from IPython.display import display

        self.points.append((tokens, success))
        figure = learning_curves(self.table)
        if self._handle is None:
            self._handle = display(figure, display_id=True)
        else:
            self._handle.update(figure)
