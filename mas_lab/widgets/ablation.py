"""AblationBoard: compare recipes over seeds, with every run as a dot and with confidence intervals.

The board also says what these runs cannot show. This module leaves out reading and scoring the runs (`study.entries`)
and comparing them (`study.comparison`).
"""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.study import comparison
from mas_lab.study.entries import Entry, entries
from mas_lab.study.equality import equality, not_equal
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, folded, table_html, write
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, recipe_colors, recipe_lines
from mas_lab.widgets.picture import svg
from mas_lab.widgets.text import for_plotly

LINE, BETWEEN = 26, 44
"""Pixels of a recipe's line, and between two tasks."""
SIDE, PANEL = 170, 200
"""Pixels beside the panels, and the minimum width of a panel."""
LEAST = 0.1
"""Minimum span of a panel of success, so that tiny differences do not look large."""
WIDE = 21
"""Characters per line of a recipe's name beside the panels."""
FINAL, DIFFERENCE = "final {}", "minus {}, by seed"


def board_figure(
    runs: pd.DataFrame, table: pd.DataFrame, pairs: pd.DataFrame, differences: pd.DataFrame, score: str, baseline: str
) -> Figure:
    """Draw a row per env: the final score of each recipe, and beside it the paired difference to the baseline.

    Every run is a dot (on the right, every pair). From `FEW` seeds on, a diamond shows the IQM of a recipe's runs, or
    the mean of its pairs, with a bar for its 95 % interval. All envs share one scale if the score is
    success; returns of different envs have different units, so each row then has its own.
    """
    envs, shades = list(dict.fromkeys(runs["env"])), recipe_colors(list(dict.fromkeys(runs["recipe"])))
    recipes = {env: list(dict.fromkeys(runs.loc[runs["env"] == env, "recipe"])) for env in envs}
    panels = [(runs, table, FINAL.format(score))]
    panels += [] if pairs.empty else [(pairs, differences, DIFFERENCE.format(baseline))]
    shared, lines = score == "success", list(map(len, recipes.values()))
    between = BETWEEN if shared else 2 * BETWEEN
    tall = LINE * sum(lines) + between * (len(envs) - 1)
    titles = [title for env in envs for title in [for_plotly(env), *[""] * (len(panels) - 1)]]
    figure = make_subplots(
        rows=len(envs), cols=len(panels), row_heights=lines, subplot_titles=titles, shared_yaxes=True,
        shared_xaxes=shared, vertical_spacing=min(1.0, between / tall), horizontal_spacing=0.06,
    )  # fmt: skip
    for col, (dots, summary, title) in enumerate(panels, start=1):
        for row, env in enumerate(envs, start=1):
            _cells(figure, dots[dots["env"] == env], summary[summary["env"] == env], recipes[env], shades, row, col)
            if row == len(envs) or not shared:
                wrapped = "<br>".join(map(for_plotly, textwrap.wrap(title, 24)))
                figure.update_xaxes(title_text=wrapped, title_standoff=8, row=row, col=col)
            if shared:
                figure.update_xaxes(range=_span(dots["final"]), row=row, col=col)
            if col == 2:
                figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dash"}, row=row, col=col)
    margin = {"l": SIDE - 20, "r": 20, "t": 40, "b": 64}
    return figure.update_layout(**LAYOUT | {"margin": margin}, height=tall + margin["t"] + margin["b"])


def _span(values: pd.Series) -> list[float]:
    """Return the ends of a scale that holds all values, and is at least `LEAST` wide."""
    low, high = values.min(), values.max()
    rest = max(LEAST - (high - low), 0) / 2 + 0.05 * max(high - low, LEAST)
    return [low - rest, high + rest]


def _cells(figure: Figure, dots, summary, recipes: Sequence[str], shades, row: int, col: int) -> None:
    """Draw one panel: a line of dots and an interval per recipe, with the first recipe on top."""
    for place, recipe in enumerate(recipes):
        own, iqm = dots[dots["recipe"] == recipe], summary[summary["recipe"] == recipe]
        spread = np.linspace(0.08, 0.34, len(own)) if len(own) > 1 else [0.2] * len(own)
        known = own[[name for name in ("file", "seed") if name in own]].to_numpy().tolist()
        dot = {"color": shades[recipe], "size": 7, "opacity": 0.7}
        figure.add_scatter(
            x=own["final"].tolist(), y=[place + up for up in spread], mode="markers", marker=dot,
            text=[for_plotly(", ".join(map(str, run))) for run in known], hovertemplate="%{text}: %{x:.3f}",
            name=for_plotly(recipe), showlegend=False, row=row, col=col,
        )  # fmt: skip
        mark = {"color": shades[recipe], "size": 12, "symbol": "diamond", "line": {"color": NEUTRAL, "width": 1}}
        for one in iqm[iqm["final_low"].notna()].to_dict("records"):
            middle, ends = one["final"], (one["final_low"], one["final_high"])
            counted = many(one["pairs"], "pair") if "pairs" in one else many(one["runs"], "run")
            hover = f"{one['middle']} of {counted}: {middle:.3f}, 95 % interval {ends[0]:.3f} to {ends[1]:.3f}"
            bar = {"array": [ends[1] - middle], "arrayminus": [middle - ends[0]], "thickness": 2, "width": 6}
            figure.add_scatter(
                x=[middle], y=[place - 0.15], mode="markers", marker=mark, error_x={"symmetric": False, **bar},
                name=for_plotly(f"{one['middle']} of {recipe}"), text=[for_plotly(hover)],
                hovertemplate="%{text}<extra></extra>", showlegend=False, row=row, col=col,
            )  # fmt: skip
    wrapped = [textwrap.wrap(str(recipe), WIDE, max_lines=2, placeholder=" …") or [""] for recipe in recipes]
    figure.update_yaxes(
        tickvals=list(range(len(recipes))), ticktext=["<br>".join(map(for_plotly, lines)) for lines in wrapped],
        range=[len(recipes) - 0.4, -0.5], showgrid=False, zeroline=False,
        row=row, col=col,
    )  # fmt: skip


def curve_figure(curves: pd.DataFrame, over: str, score: str, unit: str) -> Figure:
    """Draw a panel per env: the score of each run over `over`, whose name is `unit`, and the mean of each recipe.

    `curves`: a row per run and score: `env`, `recipe`, `seed` (a number of the run), `over` and `score`.
    """
    envs, among = list(dict.fromkeys(curves["env"])), list(dict.fromkeys(curves["recipe"]))
    columns = min(2, len(envs))
    rows = -(-len(envs) // columns)
    figure = make_subplots(rows=rows, cols=columns, subplot_titles=list(map(for_plotly, envs)),
                           vertical_spacing=0.3 / rows, horizontal_spacing=0.12)  # fmt: skip
    for place, env in enumerate(envs):
        named = {trace.name for trace in figure.data if trace.showlegend}
        where = {"row": place // columns + 1, "col": place % columns + 1}
        for trace in recipe_lines(curves[curves["env"] == env], over, score, among=among).data:
            figure.add_trace(trace.update(showlegend=trace.showlegend is None and trace.name not in named), **where)
        figure.update_xaxes(title_text=for_plotly(unit), title_standoff=4, rangemode="nonnegative", **where)
    figure.update_yaxes(range=[-0.02, 1.02] if score == "success" else None)
    figure.update_yaxes(title_text=for_plotly(score), col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 70, "b": 50}}, height=120 + 230 * rows)
    return figure.update_layout(legend_y=1 + 28 / (230 * rows))  # above the names of the tasks


def many(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


class AblationBoard:
    """Compare the final scores of recipes over paired seeds.

    Each recipe gets its interquartile mean (IQM), from five seeds on with a 95 % bootstrap interval. Differences to the
    baseline are taken seed by seed. Scores count up to a common budget: the least that any run of the env reached.

    A notebook shows the board as it is. Use `.figure()`, `.to_html(path)`, for a paper `.to_svg(path)`, and the tables
    `.table`, `.runs`, `.pairs`, `.differences`, `.improvements` and `.equality`.
    `.cautions` lists in sentences what these runs cannot show.

    Args:
        x: The runs to compare. Pass a folder of runs or of exported zips, one run, or a list of either. Also accepted
            are `{label: runs}`, a `lab.study`, its folder or that of its record, and a table of curves. A table has the
            columns `recipe`, `seed`, `step` or `tokens`, and scores. A folder of runs must contain nothing else.
        score: Name of the score, "success" or "return". `None` takes the score that a study names, else "success".
        over: Unit of the common budget: "tokens" (sampled tokens) or "step". For a study it may also be the quantity
            that all arms were given equally. `None` takes the unit that a study names, else "tokens".
        held_out: True compares scores of held-out tasks, False scores of training episodes. `None` takes held-out tasks
            if every run kept such scores (`train(..., score_every=10)`, or `keep_scores`).
        baseline: The recipe that the others are compared with. `None` takes the first recipe.

    Raises:
        ValueError: If every run failed, or if `baseline` is not one of the recipes.
        RunError: If a folder contains something other than runs, or a run cannot be read. The message names it.
        TableError: If a run or a table lacks the scores that are compared.
        TypeError: If `x` is none of the above.
    """

    def __init__(
        self,
        x: Any,
        score: str | None = None,
        over: str | None = None,
        held_out: bool | None = None,
        baseline: str | None = None,
    ):
        found = entries(x)
        score, over = score or _common(found, "score", "success"), over or _common(found, "over", "tokens")
        recipes = list(dict.fromkeys(entry.recipe for entry in found))
        everything, found = found, [entry for entry in found if not entry.error]
        if not found:
            raise ValueError(f"AblationBoard: every run failed; the first: {everything[0].file}: {everything[0].error}")
        self.held_out = all(len(entry.held_out) for entry in found) if held_out is None else held_out
        self.score, self.over, self.baseline = score, over, recipes[0] if baseline is None else baseline
        if self.baseline not in recipes:
            raise ValueError(f"AblationBoard: baseline={baseline!r} is none of the recipes: {', '.join(recipes)}")
        self.runs = comparison.run_scores(found, score, over, self.held_out, LAST)
        """One row per run: `start` and `final` within the `budget`, see `comparison.run_scores`."""
        self._curves = pd.concat(
            [(entry.held_out if self.held_out else entry.curve)[[self.over, self.score]].assign(
                env=entry.env, recipe=entry.recipe, seed=number) for number, entry in enumerate(found)]
        )  # fmt: skip
        self.table = comparison.compared(comparison.on_common_seeds(self.runs))
        """One row per env and recipe, see `comparison.compared`. `failed` counts its failed runs, if any run failed."""
        if failed := Counter((entry.env, entry.recipe) for entry in everything if entry.error):
            self.table["failed"] = [failed[row.env, row.recipe] for row in self.table.itertuples()]
        self.pairs = comparison.paired(self.runs, self.baseline)
        """One row per recipe and seed that also ran under the baseline: the differences of the scores."""
        self.differences = comparison.compared_pairs(self.pairs)
        """One row per env and recipe: the mean of those differences, with its interval, see `compared_pairs`."""
        self.improvements = comparison.improvements(self.runs, self.baseline)
        """One row per env and recipe: the probability that a run of it is better than a run of the baseline."""
        self.equality = equality(found)
        """Settings that were equal between these runs, that differed, or that are unknown, see `study.equality`."""
        self.not_equal = not_equal(self.equality)
        """Sentences that describe the differences."""
        self.cautions = [*comparison.cautions(everything, self.runs, self.pairs, self.baseline), *self.not_equal]
        """Sentences on what these runs cannot show, with those of `not_equal`."""
        self._of_runs = any(entry.config for entry in found)
        if not self.held_out and self._of_runs:
            self.cautions.append(TRAINING.format(sum(len(entry.held_out) > 0 for entry in found), len(found)))

    def __repr__(self) -> str:
        return f"AblationBoard({self.counted()})"

    def counted(self) -> str:
        """Count the runs and seeds, and name the budget at which they are compared.

        Returns:
            One line of text.
        """
        parts = []
        for env, own in self.table.groupby("env", sort=False):
            cells = (f"{row.recipe} {many(row.runs, 'run')} of {many(row.seeds, 'seed')}" for row in own.itertuples())
            parts.append((f"{env}: " if len(own) < len(self.table) else "") + "; ".join(cells))
        budgets = ", ".join(f"{budget:,.0f}" for budget in self.runs["budget"].unique())
        return f"{self.score} on {self._whose}, up to {budgets} {self._unit}. {'. '.join(parts)}"

    @property
    def _unit(self) -> str:
        return {"tokens": "sampled tokens", "step": "steps"}.get(self.over, self.over.replace("_", " "))

    @property
    def _whose(self) -> str:
        return "held-out tasks" if self.held_out else "training episodes" if self._of_runs else "the curves given"

    def _counts(self) -> str:
        """Return HTML: what was compared, with a row per task."""
        table = self.table.assign(cell=[
            f"{row.start:.2f}\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}{row.final:.2f}\n{many(row.seeds, 'seed')}"
            + f", {row.runs} runs" * (row.runs != row.seeds) for row in self.table.itertuples()
        ])  # fmt: skip
        wide = table.pivot(index="env", columns="recipe", values="cell").fillna("–")
        wide = wide.loc[list(dict.fromkeys(table["env"])), list(dict.fromkeys(table["recipe"]))]
        budget = self.runs.groupby("env")["budget"].first().map("{:,.0f}".format)
        wide.insert(0, self.over.replace("_", " "), budget)
        caption = f"{self.score} on {self._whose}: budget, and from the start to the end"
        return table_html(wide.rename_axis("task").reset_index(), caption)

    def figure(self) -> Figure:
        """Draw every run as a dot, with the IQM and interval of each recipe.

        Returns:
            Plotly figure with one row per env: the final scores, and beside them their differences by seed.
        """
        return board_figure(self.runs, self.table, self.pairs, self.differences, self.score, self.baseline)

    def _figures(self) -> list[tuple[Figure, str, pd.DataFrame, int]]:
        """Return each figure with a sentence that describes it, its numbers and its minimum width."""
        wide = SIDE + PANEL * (1 if self.pairs.empty else 2)
        drawn = [(self.figure(), BOARD.format(self.score), self.runs, wide)]
        if self._curves["seed"].value_counts().max() > 2 and (self.held_out or not self._of_runs):
            curves = curve_figure(self._curves, self.over, self.score, self._unit)
            least = 560 if self.runs["env"].nunique() > 1 else 0
            drawn.append((curves, CURVES.format(self.score.capitalize()), self._curves, least))
        return drawn

    def _below(self) -> str:
        """Return HTML: what was not equal, what these runs cannot show, all tables, and how the numbers are made."""
        others = [caution for caution in self.cautions if caution not in self.not_equal]
        settings = table_html(self.equality, "Settings that were equal, not equal or unknown")
        parts = [_listed("What was not equal", self.not_equal), _listed("What these runs cannot show", others),
                 folded("Settings that were equal, and that were not", settings)]  # fmt: skip
        tables = {
            "Recipes over their runs": self.table, PAIRED.format(self.baseline): self.differences,
            IMPROVED.format(self.baseline): self.improvements,
        }  # fmt: skip
        for caption, table in tables.items():
            if table is not None and len(table):
                parts.append(folded(escape(caption), table_html(table.loc[:, (table != "").any()], caption)))
        return "".join([*parts, folded("How the numbers are made", NOTE)])

    def to_html(self, path: str | Path) -> Path:
        """Write one standalone HTML file that works offline.

        Args:
            path: The file to write. Missing parent folders are created.

        Returns:
            The path of the file.
        """
        parts = [self._counts(), *(figure_html(*one) for one in self._figures()), self._below()]
        return write(path, document("Recipes side by side", "".join(parts), scripts=FIGURES))

    def to_svg(self, path: str | Path) -> Path:
        """Write the figure as an SVG file for a paper, and return its path."""
        return write(path, svg(self.figure()))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(beside(self._counts())))
        for figure, *_ in self._figures():
            display(figure)
        display(HTML(beside(self._below())))


def _common(found: Sequence[Entry], name: str, usual: str) -> str:
    """Return the value of `name` that all entries share, or `usual` if they differ."""
    values = {getattr(entry, name) for entry in found}
    return values.pop() if len(values) == 1 else usual


def _listed(heading: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<h2>{heading}</h2><ul>{items}</ul>" if items else ""


LAST = 0.1
"""Share of the budget whose mean score is the final score of a run."""
BOARD = (
    "Final {} of every run, per task and recipe, and beside it the differences by seed. A dot is a run. "
    f"From {comparison.FEW} seeds on, a diamond is the interquartile mean (IQM) of the runs, or the mean of the "
    "differences, with its 95 % interval."
)
CURVES = "{} of every run over its training, a thin line with a dot per score, and the mean of each recipe's runs."
NOTE = (
    "<p>The interquartile mean (IQM) is the mean of the middle half of a recipe's runs. Of fewer than four runs it is "
    "their mean. Its interval is a percentile bootstrap interval over runs (Agarwal et al. 2021). A difference is the "
    "mean over the pairs, with the interval and the <b>p</b> of a paired t test.</p><p><b>won</b> is the share of "
    "decided pairs with a higher final score, with its exact interval. <b>p_holm</b> is p adjusted for the number of "
    "comparisons in the table (Holm). "
    "Runs count up to the budget that all of them reached.</p>"
)
PAIRED = "Mean differences to {} by seed, with the 95 % interval and the p of a paired t test"
IMPROVED = (
    "Probability of improvement: how often a run of a recipe is better than a run of {} on the same task, "
    "ties counted half"
)
TRAINING = (
    "These are scores of training episodes. Under tree() the best of K candidates moves each episode on, so the team "
    "looks better than it is. Compare only recipes with the same plan, or keep held-out scores, as train(..., "
    "score_every=10) does ({} of these {} runs have some)."
)
