"""Draw the figures of AblationBoard: every run as a dot under its recipe, and performance profiles.

This module leaves out the statistics that they show (`study.comparison`) and the page around them (`ablation`).
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.study.budget import METRICS
from mas_lab.study.comparison import FEW
from mas_lab.widgets.figures import LAYOUT, NEUTRAL
from mas_lab.widgets.recipe_colors import recipe_colors, recipe_dashes
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LINE, BETWEEN = 46, 92
"""Pixels of a recipe's line, and between two panels."""
SIDE, PANEL = 170, 180
"""Pixels beside the panels, and the minimum width of a panel."""
LEAST = 0.1
"""Minimum span of a panel of success, so that tiny differences do not look large."""
WIDE = 21
"""Characters per line of a recipe's name beside the panels."""
FEWER = "the interquartile mean (IQM), of fewer than ten pairs the mean"
TITLES = {"final": "final {}", "area": "area under the curve of {}"}


def board_figure(
    runs: pd.DataFrame, table: pd.DataFrame, pairs: pd.DataFrame, differences: pd.DataFrame, score: str, baseline: str,
    among: Sequence[str] = (), letters: int = 66, key: bool = True,
) -> "Figure":  # fmt: skip
    """Draw a column per env with rows for the final score, the area under the curve, and paired differences.

    Every run is a dot (in the last row, every pair). From `FEW` seeds on, a diamond shows the IQM of a recipe's runs,
    with a bar for its 95 % interval. With fewer than ten pairs it shows their mean. Below `FEW` seeds there are only
    dots. Each panel has its own scale.
    `among`: all recipes of the board, so that each keeps its colour. `letters`: characters in a title's line across all
    panels. `key`: whether the figure explains the dot and the diamond.
    """
    from mas_lab.widgets.picture import subplots

    envs, recipes = list(dict.fromkeys(runs["env"])), list(dict.fromkeys(runs["recipe"]))
    shades, with_pairs = recipe_colors([*recipes, *among]), not pairs.empty
    lines = [len(recipes), len(recipes), len(recipes) - 1][: 2 + with_pairs]
    tall = LINE * sum(lines) + BETWEEN * (len(lines) - 1)
    titles = list(map(for_plotly, envs))
    figure = subplots(rows=len(lines), cols=len(envs), row_heights=lines, subplot_titles=titles, shared_yaxes=True,
                           vertical_spacing=BETWEEN / tall)  # fmt: skip
    for col, env in enumerate(envs, start=1):
        for row, metric in enumerate(METRICS, start=1):
            own = runs[runs["env"] == env]
            _cells(figure, own, table[table["env"] == env], metric, recipes, shades, row, col)
            _scale(figure, own[metric], score, TITLES[metric].format(score), letters // len(envs), row, col)
        if with_pairs:
            others = [recipe for recipe in recipes if recipe != baseline]
            own, told = pairs[pairs["env"] == env], differences[differences["env"] == env]
            _cells(figure, own, told, "final", others, shades, 3, col)
            figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1, "dash": "dash"}, row=3, col=col)
            title = f"final {score} minus that of {baseline}, by seed"
            _scale(figure, own["final"], score, title, letters // len(envs), 3, col)
    if key:
        _key(figure, diamonds(table, differences))
    margin = {"l": SIDE - 20, "r": 20, "t": 76 if key else 32, "b": 64}
    above = {"orientation": "h", "y": 1, "yref": "container", "yanchor": "top", "x": 0}
    figure.update_layout(**LAYOUT | {"margin": margin, "legend": above}, height=tall + margin["t"] + margin["b"])
    return figure


def diamonds(table: pd.DataFrame, differences: pd.DataFrame) -> str:
    """Return the meaning of a board's diamonds in words, or an empty string if all recipes have too few seeds."""
    known = [*table.loc[table["seeds"] >= FEW, "middle"], *differences.loc[differences["pairs"] >= FEW, "middle"]]
    if not known:
        return ""
    named = {"mean": "the mean", "IQM": "the interquartile mean (IQM)"}
    told = named[known[0]] if len(set(known)) == 1 else FEWER
    fewer = min([*table["seeds"], *differences["pairs"]]) < FEW
    return f"{told}, with its 95 % interval" + (f" from {FEW} seeds on" if fewer else "")


def _key(figure: "Figure", told: str) -> None:
    """Add a legend for the dot and, if there is one, for the diamond."""
    outline = {"width": 1, "color": NEUTRAL}
    marks = {"one run": {"size": 7, "opacity": 0.7}}
    marks |= {told: {"size": 12, "symbol": "diamond", "line": outline}} if told else {}
    for name, mark in marks.items():
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": NEUTRAL, **mark},
                           showlegend=True)  # fmt: skip


def _scale(figure: "Figure", values: pd.Series, score: str, title: str, letters: int, row: int, col: int) -> None:
    """Set the title of one panel's axis, in lines of `letters` characters, and a span of at least `LEAST`."""
    lines = "<br>".join(map(for_plotly, textwrap.wrap(title, max(12, letters))))
    figure.update_xaxes(title_text=lines, title_standoff=8, row=row, col=col)
    if score == "success" and values.max() - values.min() < LEAST:
        middle = (values.max() + values.min()) / 2
        figure.update_xaxes(range=[middle - 0.55 * LEAST, middle + 0.55 * LEAST], row=row, col=col)


def _cells(figure: "Figure", dots, told, metric: str, recipes: Sequence[str], shades, row: int, col: int) -> None:
    """Draw one panel: a line of dots and an interval per recipe, with the first recipe on top."""
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
        mark = {"color": shades[recipe], "size": 12, "symbol": "diamond", "line": {"color": NEUTRAL, "width": 1}}
        for one in iqm[iqm[f"{metric}_low"].notna()].to_dict("records"):
            figure.add_scatter(
                x=[one[metric]], y=[place - 0.15], mode="markers", marker=mark, error_x=_bar(one, metric),
                name=for_plotly(f"{one['middle']} of {recipe}"), text=[for_plotly(_hover(one, metric))],
                hovertemplate="%{text}<extra></extra>", showlegend=False, row=row, col=col,
            )  # fmt: skip
    labels = list(map(_label, recipes))
    ticks = {"tickvals": list(range(len(recipes))), "ticktext": labels, "range": [len(recipes) - 0.4, -0.5]}
    figure.update_yaxes(
        **ticks, showgrid=False, zeroline=False, title_text="recipe" if col == 1 else None, row=row, col=col
    )


def _label(recipe: str) -> str:
    """Return a recipe's name in up to three lines; the hover text has the full name."""
    lines = textwrap.wrap(str(recipe), WIDE, max_lines=3, placeholder=" …") or [""]
    return "<br>".join(map(for_plotly, lines))


def _bar(one: dict[str, Any], metric: str) -> dict[str, Any]:
    """Return the interval of a diamond as plotly's error bar."""
    low, high = one[f"{metric}_low"], one[f"{metric}_high"]
    ends = {"array": [high - one[metric]], "arrayminus": [one[metric] - low]}
    return {"type": "data", "symmetric": False, **ends, "thickness": 2, "width": 6}


def _hover(one: dict[str, Any], metric: str) -> str:
    counted = many(one["pairs"], "pair") if "pairs" in one else many(one["runs"], "run")
    low, high = one[f"{metric}_low"], one[f"{metric}_high"]
    return f"{one['middle']} of {counted}: {one[metric]:.3f}, 95 % interval {low:.3f} to {high:.3f}"


def profile_figure(profiles: pd.DataFrame, score: str, among: Sequence[str] = ()) -> "Figure":
    """Draw the performance profile of each recipe: the share of its runs above each final score, averaged over tasks.

    From `FEW` seeds on, it has a pointwise 95 % band. Each step of a line is one run. A click on a recipe in the legend
    hides it with its band.
    `profiles`: a row per `recipe` and `height`, see `comparison.profiles`. `among`: all recipes of the board.
    """
    from mas_lab.widgets.picture import Figure

    figure, recipes = Figure(), list(dict.fromkeys(profiles["recipe"]))
    shades, dashes = recipe_colors([*recipes, *among]), recipe_dashes([*recipes, *among])
    for recipe in recipes:
        own, name = profiles[profiles["recipe"] == recipe], for_plotly(recipe)
        steps = {"x": own["height"].tolist(), "mode": "lines", "legendgroup": name}
        line = {"shape": "hv", "color": shades[recipe], "dash": dashes[recipe]}
        if own["low"].notna().all():
            for edge, fill in (("low", None), ("high", "tonexty")):
                figure.add_scatter(**steps, y=own[edge].tolist(), fill=fill, fillcolor=_faint(shades[recipe]),
                                   line={"shape": "hv", "width": 0}, showlegend=False, hoverinfo="skip")  # fmt: skip
        figure.add_scatter(**steps, y=own["share"].tolist(), line=line, name=name, showlegend=True,
                           hovertemplate="%{y:.2f} above %{x:.3f}")  # fmt: skip
    figure.update_layout(**LAYOUT, height=360, yaxis_title="share of runs above it")
    figure.update_xaxes(title_text=for_plotly(TITLES["final"].format(score)))
    figure.update_yaxes(range=[-0.02, 1.02])
    return figure


def _faint(shade: str) -> str:
    """Return a colour "#rrggbb" that is nearly transparent."""
    red, green, blue = bytes.fromhex(shade.removeprefix("#"))
    return f"rgba({red},{green},{blue},0.13)"


def many(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless the count is 1."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
