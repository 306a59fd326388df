"""BaselineInspector: choose two baselines, and see at once what each makes of the same rows.

It needs no model, so it works on a table that another trainer wrote. Leaves out: the numbers (`explain.rejudge`), and
gradients (`spikes`).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from mas_lab.explain.moments import baseline_unit
from mas_lab.explain.rejudge import rejudge
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.widgets.document import beside, table_html
from mas_lab.widgets.live import with_fallback
from mas_lab.widgets.source import Source

CHOICES: dict[str, dict[str, Any]] = {
    "compared with": {"the task": ("task",), "the agent's rows in the task": ("task", "agent"),
                      "the agent's rows": ("agent",)},
    "center": {"mean": None, "mean of the others": "loo", "none": "none"},
    "scale": {"standard deviation": None, "the agent's over the batch": ("agent",), "none": "none"},
}  # fmt: skip
"""What can be chosen: label -> the argument `by`, `center` or `scale` of cells 2 and 3."""
FIRST = ({"compared with": "the task"}, {"compared with": "the agent's rows in the task"})


class BaselineInspector:
    """Judge the rows of one step under two baselines of your choice, side by side.

    >>> lab.BaselineInspector(lab.read("completions/"))

    In a notebook, six menus choose group, center and scale of either side, and the table follows at once. Elsewhere,
    `.table` and `.choose(side, **labels)` do the same.

    Args:
        x: A table of turns, one report or several, a run, its path, or a live dashboard.
        step: Training step, from 0. `None` takes the last one.
        agents: Names of the agents, in acting order. `None` takes them from `x`.

    Raises:
        TableError: If `x` is empty or lacks a column.
    """

    def __init__(self, x: Any, step: int | None = None, agents: Sequence[str] | None = None):
        self.source = Source(x, agents)
        self.step = self.source.steps[-1] if step is None else step
        self.turns = self.source.turns(self.step)
        plain = {part: next(iter(labels)) for part, labels in CHOICES.items()}
        self.chosen = [plain | own for own in FIRST]
        """The labels of both sides, see `CHOICES`."""

    def __repr__(self) -> str:
        return f"BaselineInspector({self.source.title}, step {self.step})"

    def choose(self, side: int, **labels: str) -> "BaselineInspector":
        """Choose the baseline of a side, 0 or 1; in `labels`, an underscore stands for a space."""
        for part, label in ((name.replace("_", " "), label) for name, label in labels.items()):
            if part not in CHOICES or label not in CHOICES[part]:
                known = "; ".join(f"{name}: {', '.join(own)}" for name, own in CHOICES.items())
                raise ValueError(f"BaselineInspector: {part}={label!r} cannot be chosen; known are {known}")
            self.chosen[side][part] = label
        return self

    @property
    def table(self) -> pd.DataFrame:
        """Return a row per agent and side, see `lab.rejudge`; `other_sign` compares side B with side A."""
        return rejudge(self.turns, [self._recipe(side) for side in (0, 1)])

    def _recipe(self, side: int) -> Recipe:
        by, center, scale = (CHOICES[part][label] for part, label in self.chosen[side].items())
        once = baseline_unit(self.turns) if (by, center, scale) == (("task",), None, None) else None
        return RECIPES["grpo"].replace(name="AB"[side], by=by, center=center, scale=scale, once_per=once)

    def _ipython_display_(self) -> None:
        import ipywidgets
        from IPython.display import display

        shown = ipywidgets.HTML(self._html())
        menus = []
        for side, part in product((0, 1), CHOICES):
            menu = ipywidgets.Dropdown(
                options=list(CHOICES[part]), value=self.chosen[side][part], description=f"{'AB'[side]}: {part}",
                style={"description_width": "initial"},
            )  # fmt: skip
            menu.observe(lambda change, side=side, part=part: self._follow(shown, side, part, change["new"]), "value")
            menus.append(menu)
        rows = [ipywidgets.HBox(menus[:3]), ipywidgets.HBox(menus[3:]), shown]
        display(with_fallback(ipywidgets.VBox(rows), self._html()), raw=True)

    def _follow(self, shown: Any, side: int, part: str, label: str) -> None:
        self.chosen[side][part] = label
        shown.value = self._html()

    def _html(self) -> str:
        caption = f"{self.source.title}, step {self.step}: what either baseline makes of the same rows"
        return beside(table_html(self.table, caption))
