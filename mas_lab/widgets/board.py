"""Draw the figures of AblationBoard: every run as a dot under its recipe, and performance profiles.

This module leaves out the statistics that they show (`study.comparison`) and the page around them (`ablation`).
"""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.widgets.figures import LAYOUT, NEUTRAL, recipe_lines
from mas_lab.widgets.recipe_colors import recipe_colors, recipe_dashes
from mas_lab.widgets.text import for_plotly

LINE, BETWEEN = 26, 44
"""Pixels of a recipe's line, and between two tasks."""
SIDE, PANEL = 170, 200
"""Pixels beside the panels, and the minimum width of a panel."""
LEAST = 0.1
"""Minimum span of a panel of success, so that tiny differences do not look large."""
WIDE = 21
"""Characters per line of a recipe's name beside the panels."""
HEIGHTS = ["low", "high", "share"]
FINAL, DIFFERENCE = "final {}", "minus {}, by seed"


def board_figure(
    runs: pd.DataFrame, table: pd.DataFrame, pairs: pd.DataFrame, differences: pd.DataFrame, score: str, baseline: str
) -> Figure:
    """Draw a row per env: the final score of each recipe, and beside it the paired difference to the baseline.

    Every run is a dot (on the right, every pair). From `FEW` seeds on, a diamond shows the IQM of a recipe's runs, with
    a bar for its 95 % interval. With fewer than ten pairs it shows their mean. All envs share one scale if the score is
    success; returns of different envs have different units, so each row then has its own.
    """
    envs, shades = list(dict.fromkeys(runs["env"])), recipe_colors(list(dict.fromkeys(runs["recipe"])))
    recipes = {env: list(dict.fromkeys(runs.loc[runs["env"] == env, "recipe"])) for env in envs}
    panels = [(runs, table, FINAL.format(score))]
    if not pairs.empty:
        panels.append((pairs, differences, DIFFERENCE.format(baseline)))
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
                figure.update_xaxes(title_text=_wrapped(title), title_standoff=8, row=row, col=col)
            if shared:
                figure.update_xaxes(range=_span(dots["final"]), row=row, col=col)
            if col == 2:
                figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dash"}, row=row, col=col)
    margin = {"l": SIDE - 20, "r": 20, "t": 40, "b": 64}
    return figure.update_layout(**LAYOUT | {"margin": margin}, height=tall + margin["t"] + margin["b"])


def _wrapped(title: str) -> str:
    return "<br>".join(map(for_plotly, textwrap.wrap(title, 24)))


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


def profile_figure(profiles: pd.DataFrame, score: str, among: Sequence[str] = ()) -> Figure:
    """Draw the performance profile of each recipe: the share of its runs above each final score, averaged over tasks.

    From `FEW` seeds on, it has a pointwise 95 % band. Each step of a line is one run.
    `profiles`: a row per `recipe` and `height`, see `comparison.profiles`. `among`: all recipes of the board.
    """
    figure, recipes = Figure(), list(dict.fromkeys(profiles["recipe"]))
    shades, dashes = recipe_colors([*recipes, *among]), recipe_dashes([*recipes, *among])
    for recipe in recipes:
        own, name = profiles[profiles["recipe"] == recipe], for_plotly(recipe)
        x, (low, high, share) = np.repeat(own["height"], 2)[1:], (np.repeat(own[of], 2)[:-1] for of in HEIGHTS)
        if own["low"].notna().all():
            figure.add_scatter(
                x=[*x, *x[::-1]], y=[*high, *low[::-1]], fill="toself", mode="lines", fillcolor=shades[recipe],
                line={"width": 0}, opacity=0.13, legendgroup=name, showlegend=False, hoverinfo="skip",
            )  # fmt: skip
        line = {"color": shades[recipe], "dash": dashes[recipe]}
        figure.add_scatter(x=x, y=share, mode="lines", line=line, name=name, legendgroup=name, showlegend=True,
                           hovertemplate="%{y:.2f} above %{x:.3f}")  # fmt: skip
    figure.update_layout(**LAYOUT, height=360, yaxis_title="share of runs above it", yaxis_range=[-0.02, 1.02])
    return figure.update_xaxes(title_text=for_plotly(FINAL.format(score)))


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
