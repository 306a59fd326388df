"""AblationBoard: recipes side by side over seeds, every run a dot, with intervals and what they cannot say.

Leaves out: reading and scoring the runs (`study.entries`, `study.budget`) and comparing them (`study.comparison`).
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.study.budget import METRICS, run_scores
from mas_lab.study.comparison import FEW, cautions, compared, compared_pairs, over_envs, paired
from mas_lab.study.entries import entries
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, table_html, write
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GREY = "#555555"
LINE, BETWEEN = 46, 92
"""Pixels of a recipe's line, and between two panels."""
SIDE, PANEL = 170, 190
"""Pixels beside the panels, and of a panel at least."""
LEAST = 0.1
"""A panel of success spans at least this much: a closer look would make much of nothing."""
TITLES = {"final": "final {}", "area": "area under the curve of {}"}


def board_figure(
    runs: pd.DataFrame, table: pd.DataFrame, pairs: pd.DataFrame, differences: pd.DataFrame, score: str, baseline: str
) -> "Figure":
    """A column per env; rows: the final score, the area under the curve, and the final score's paired differences.

    Every run is a dot (a pair in the last row). A diamond is the IQM of a recipe's runs, with a bar for its 95 %
    interval from `FEW` seeds on; of fewer than four runs it is their mean, and says so. Each panel has a scale of its
    own.
    """
    from plotly.subplots import make_subplots

    envs, recipes = list(dict.fromkeys(runs["env"])), list(dict.fromkeys(runs["recipe"]))
    shades, with_pairs = colors(recipes), not pairs.empty
    lines = [len(recipes), len(recipes), len(recipes) - 1][: 2 + with_pairs]
    tall = LINE * sum(lines) + BETWEEN * (len(lines) - 1)
    titles = list(map(for_plotly, envs))
    figure = make_subplots(rows=len(lines), cols=len(envs), row_heights=lines, subplot_titles=titles, shared_yaxes=True,
                           vertical_spacing=BETWEEN / tall)  # fmt: skip
    for col, env in enumerate(envs, start=1):
        for row, metric in enumerate(METRICS, start=1):
            own = runs[runs["env"] == env]
            _cells(figure, own, table[table["env"] == env], metric, recipes, shades, row, col)
            _scale(figure, own[metric], score, TITLES[metric].format(score), len(envs), row, col)
        if with_pairs:
            others = [recipe for recipe in recipes if recipe != baseline]
            own, told = pairs[pairs["env"] == env], differences[differences["env"] == env]
            _cells(figure, own, told, "final", others, shades, 3, col)
            figure.add_vline(x=0, line={"color": "#555", "width": 1, "dash": "dash"}, row=3, col=col)
            title = f"final {score} minus that of {baseline}, by seed"
            _scale(figure, own["final"], score, title, len(envs), 3, col)
    _key(figure, diamonds(table, differences))
    margin = {"l": SIDE - 20, "r": 20, "t": 76, "b": 64}
    key = {"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0}
    figure.update_layout(**LAYOUT | {"margin": margin, "legend": key}, height=tall + margin["t"] + margin["b"])
    return figure


def diamonds(table: pd.DataFrame, differences: pd.DataFrame) -> str:
    """What the diamonds of a board are, in words."""
    middles = {*table["middle"], *differences["middle"]}
    seeds = [*table["seeds"], *differences["pairs"]]
    named = {"mean": "the mean", "IQM": "the interquartile mean (IQM)"}
    told = named[middles.pop()] if len(middles) == 1 else "the interquartile mean (IQM), below four runs the mean"
    if max(seeds) < FEW:
        return f"{told}; no interval below {FEW} seeds"
    return f"{told}, with its 95 % interval" + (f" from {FEW} seeds on" if min(seeds) < FEW else "")


def _key(figure: "Figure", told: str) -> None:
    """What a dot is, and what a diamond."""
    outline = {"width": 1, "color": "#222"}
    marks = {"one run": {"size": 7, "opacity": 0.7}, told: {"size": 12, "symbol": "diamond", "line": outline}}
    for name, mark in marks.items():
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": GREY, **mark},
                           showlegend=True)  # fmt: skip


def _scale(figure: "Figure", values: pd.Series, score: str, title: str, panels: int, row: int, col: int) -> None:
    """The axis of one panel, of `panels` side by side: its title in lines that fit, its span not below `LEAST`."""
    lines = "<br>".join(map(for_plotly, textwrap.wrap(title, max(12, 66 // panels))))
    figure.update_xaxes(title_text=lines, title_standoff=8, row=row, col=col)
    if score == "success" and values.max() - values.min() < LEAST:
        middle = (values.max() + values.min()) / 2
        figure.update_xaxes(range=[middle - 0.55 * LEAST, middle + 0.55 * LEAST], row=row, col=col)


def _cells(figure: "Figure", dots, told, metric: str, recipes: Sequence[str], shades, row: int, col: int) -> None:
    """One panel: a line of dots and an interval per recipe, the first on top."""
    for place, recipe in enumerate(recipes):
        own, iqm = dots[dots["recipe"] == recipe], told[told["recipe"] == recipe]
        spread = np.linspace(0.08, 0.34, len(own)) if len(own) > 1 else [0.2] * len(own)
        known = own[[name for name in ("file", "seed") if name in own]].to_numpy().tolist()
        names = [for_plotly(", ".join(map(str, run))) for run in known]
        dot = {"color": shades[recipe], "size": 7, "opacity": 0.7}
        figure.add_scatter(
            x=own[metric].tolist(), y=[place + up for up in spread], mode="markers", text=names, marker=dot,
            hovertemplate="%{text}: %{x:.3f}", name=for_plotly(recipe), showlegend=False, row=row, col=col,
        )  # fmt: skip
        mark = {"color": shades[recipe], "size": 12, "symbol": "diamond", "line": {"color": "#222", "width": 1}}
        for one in iqm.to_dict("records"):
            figure.add_scatter(
                x=[one[metric]], y=[place - 0.15], mode="markers", marker=mark, error_x=_bar(one, metric),
                name=for_plotly(f"{one['middle']} of {recipe}"), text=[for_plotly(_hover(one, metric))],
                hovertemplate="%{text}<extra></extra>", showlegend=False, row=row, col=col,
            )  # fmt: skip
    labels = list(map(for_plotly, recipes))
    ticks = {"tickvals": list(range(len(recipes))), "ticktext": labels, "range": [len(recipes) - 0.4, -0.5]}
    figure.update_yaxes(
        **ticks, showgrid=False, zeroline=False, title_text="recipe" if col == 1 else None, row=row, col=col
    )


def _bar(one: dict[str, Any], metric: str) -> dict[str, Any] | None:
    """The interval of a diamond, where there is one."""
    low, high = one[f"{metric}_low"], one[f"{metric}_high"]
    if np.isnan(low):
        return None
    ends = {"array": [high - one[metric]], "arrayminus": [one[metric] - low]}
    return {"type": "data", "symmetric": False, **ends, "thickness": 2, "width": 6}


def _hover(one: dict[str, Any], metric: str) -> str:
    counted = _many(one["pairs"], "pair") if "pairs" in one else _many(one["runs"], "run")
    low, high = one[f"{metric}_low"], one[f"{metric}_high"]
    sure = f"no interval below {FEW} seeds" if np.isnan(low) else f"95 % interval {low:.3f} to {high:.3f}"
    return f"{one['middle']} of {counted}: {one[metric]:.3f}, {sure}"


class AblationBoard:
    """Recipes over paired seeds: final score and area under the curve, IQM with 95 % bootstrap intervals from five
    seeds on.

    `x`: a folder of runs or of exported zips, runs, a list of either, `{label: runs}`, or a table of curves (`recipe`,
    `seed`, `step` or `tokens`, scores). A folder must hold nothing else: an error names what cannot be read.
    `score`: "success" or "return", of held-out tasks if every run kept some (`train(..., score_every=10)`, or
    `keep_scores`), else of the training episodes; `held_out` asks for either. `over`: "tokens" or "step", in which the
    common budget is counted. `last`: the share of the budget whose mean is the final score. Differences are against
    `baseline`, by seed; by default the first recipe. `.figure()`, `.table`, `.runs`, `.pairs`, `.differences`,
    `.cautions`, `.to_html(path)`.
    """

    def __init__(
        self,
        x: Any,
        score: str = "success",
        over: str = "tokens",
        held_out: bool | None = None,
        baseline: str | None = None,
        last: float = 0.1,
        seed: int = 0,
    ):
        found = entries(x)
        recipes = list(dict.fromkeys(entry.recipe for entry in found))
        self.held_out = all(len(entry.held_out) for entry in found) if held_out is None else held_out
        self.score, self.over, self.baseline = score, over, recipes[0] if baseline is None else baseline
        if self.baseline not in recipes:
            raise ValueError(f"AblationBoard: baseline={baseline!r} is none of the recipes: {', '.join(recipes)}")
        self.runs = run_scores(found, score, over, self.held_out, last)
        """A row per run: `final` and `area` within the `budget`, see `budget.run_scores`."""
        self.table = compared(self.runs, seed)
        """A row per env and recipe, see `comparison.compared`."""
        self.pairs = paired(self.runs, self.baseline)
        """A row per seed that was run under a recipe and the baseline: the differences."""
        self.differences = compared_pairs(self.pairs, seed)
        """A row per env and recipe: the IQM of those differences with its interval."""
        self.envs = over_envs(self.runs, seed) if self.runs["env"].nunique() > 1 else None
        """A row per recipe over all envs, each a stratum; None for a single env."""
        self.cautions = cautions(found, self.runs, self.pairs, self.baseline)
        """What these runs cannot say."""
        self._of_runs = any(entry.asked for entry in found)
        if not self.held_out and self._of_runs:
            self.cautions.append(TRAINING.format(sum(len(entry.held_out) > 0 for entry in found), len(found)))

    def __repr__(self) -> str:
        return f"AblationBoard({self.counted()})"

    def counted(self) -> str:
        """How many runs and seeds there are, and the budget at which they are compared."""
        cells = [
            f"{row.recipe} {_many(row.runs, 'run')} of {_many(row.seeds, 'seed')}" for row in self.table.itertuples()
        ]
        budgets = ", ".join(f"{budget:,.0f}" for budget in self.runs["budget"].unique())
        unit = "sampled tokens" if self.over == "tokens" else "steps"
        whose = "held-out tasks" if self.held_out else "training episodes" if self._of_runs else "the curves given"
        return f"{'; '.join(cells)}; {self.score} on {whose}, up to {budgets} {unit}"

    def figure(self) -> "Figure":
        """Every run a dot; IQM and interval of each recipe; the differences by seed."""
        return board_figure(self.runs, self.table, self.pairs, self.differences, self.score, self.baseline)

    def _tables(self) -> list[tuple[str, pd.DataFrame]]:
        tables = [("Recipes over their runs", self.table)]
        if len(self.differences):
            tables.append((f"Differences to {self.baseline} by seed", self.differences))
        if self.envs is not None and len(self.envs):
            tables.append(("Over all tasks, each a stratum of the bootstrap", self.envs))
        return [(caption, table.loc[:, (table != "").any()]) for caption, table in tables]

    def _told(self) -> str:
        shown = f"A dot is a run, a diamond {diamonds(self.table, self.differences)}."
        items = "".join(f"<li>{escape(caution)}</li>" for caution in self.cautions)
        cannot = f"<h2>What cannot be said</h2><ul>{items}</ul>" if items else ""
        return f"<p>{escape(self.counted())}. {escape(shown)}</p>{cannot}"

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        described = f"Final {self.score} and area under its curve of every run, per recipe; and differences by seed"
        least = SIDE + PANEL * self.runs["env"].nunique()
        drawn = figure_html(self.figure(), described, self.runs, least=least)
        tables = (table_html(table, caption) for caption, table in self._tables())
        parts = [f'<p class="quiet">{escape(NOTE)}</p>', drawn, self._told(), *tables]
        return write(path, document("Recipes side by side", "".join(parts), scripts=FIGURES))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(self.figure())
        tables = (table_html(table, caption) for caption, table in self._tables())
        display(HTML(beside(self._told() + "".join(tables))))


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


NOTE = (
    "The interquartile mean (IQM) is the mean of the middle half of a recipe's runs: of fewer than four it is their "
    "mean. Intervals are percentile bootstrap intervals over runs (Agarwal et al. 2021). Runs count up to the budget "
    "all reached."
)
TRAINING = (
    "These are scores of training episodes. Under tree() the best of K candidates moves each episode on, which makes a "
    "team look better than it is: compare recipes of one plan only, or keep held-out scores, as train(..., "
    "score_every=10) does ({} of these {} runs have some)."
)
