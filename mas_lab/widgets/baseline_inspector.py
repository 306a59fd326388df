"""BaselineInspector: choose two baselines, and see at once what each makes of the same rows.

It needs no model, so it works on a table that another trainer wrote. Leaves out: the numbers (`explain.rejudge`), and
gradients (`spikes`).
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import pandas as pd

from mas_lab.cells.credits import own_return
from mas_lab.explain.moments import baseline_unit
from mas_lab.explain.rejudge import rejudge
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.widgets.document import table_html
from mas_lab.widgets.live import interact
from mas_lab.widgets.source import Source

CHOICES: dict[str, dict[str, Any]] = {
    "compared with": {"the task": ("task",), "the agent's rows in the task": ("task", "agent"),
                      "the agent's rows": ("agent",)},
    "center": {"mean": None, "mean of the others": "loo", "none": "none"},
    "scale": {"standard deviation": None, "the agent's over the batch": ("agent",), "none": "none"},
}  # fmt: skip
"""What can be chosen: label -> the argument `by`, `center` or `scale` of cells 2 and 3."""
FIRST = ("the task", "the agent's rows in the task")
"""What either side is compared with at first."""


class BaselineInspector:
    """Judge the rows of one step under two baselines of your choice, side by side.

    >>> lab.BaselineInspector(lab.read("completions/"))

    In a notebook, six menus choose group, center and scale of either side, and the table follows at once. Elsewhere,
    `.table` and `.choose(side, **labels)` do the same. The credit is the episode's return, or the agent's own return if
    the team earned nothing. Compared with the task, an episode enters mean and standard deviation once, as in `grpo`.

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
        self.chosen = [dict(zip(CHOICES, [by, "mean", "standard deviation"], strict=True)) for by in FIRST]
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
        unit = baseline_unit(self.turns) if by == ("task",) else None
        once = {"center": None if center == "none" else unit, "scale": None if scale else unit}
        recipe = RECIPES["grpo"].replace(name="AB"[side], by=by, center=center, scale=scale, once_per=once)
        return recipe if self.turns["team_reward"].any() else recipe.replace(credit=own_return())

    def _ipython_display_(self) -> None:
        from ipywidgets import Dropdown

        look = {"style": {"description_width": "initial"}, "layout": {"width": "32%"}}
        menus = {}
        for side, part in product((0, 1), CHOICES):
            menu = Dropdown(options=list(CHOICES[part]), value=self.chosen[side][part], **look)
            menus[f"{'AB'[side]}: {part}"] = menu
        interact(self._show, **menus)

    def _show(self, **labels: str) -> None:
        from IPython.display import display

        for (side, part), label in zip(product((0, 1), CHOICES), labels.values(), strict=True):
            self.chosen[side][part] = label
        caption = f"{self.source.title}, step {self.step}: what either baseline makes of the same rows"
        display({"text/html": table_html(self.table, caption)}, raw=True)
