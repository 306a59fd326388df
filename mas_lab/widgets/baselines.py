"""Draw figures that compare the global baseline with the agent's own baseline.

They show what theory says of the gradient, and what was measured. This module leaves out the numbers themselves
(`moments`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.table import require
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, PALETTE, colors
from mas_lab.widgets.text import for_plotly

TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
RATIO = "|G|² under the global over the own baseline"


def controlled_curves(points: pd.DataFrame) -> Figure:
    """Draw the ratio of squared gradient norms over the shift of an agent's rewards, in one colour per number of calls.

    `points` has `called`, `shift`, and the ratio as theory says it (`F`, lines) and as it was `measured` (dots).
    """
    require(points, ["called", "shift", "F", "measured"], "controlled_curves")
    figure = Figure()
    for shade, (called, own) in zip(PALETTE, points.groupby("called"), strict=False):
        for column, (name, mode, symbol) in LOOKS.items():
            figure.add_scatter(
                x=own["shift"], y=own[column], name=for_plotly(f"called {called}×: {name}"), mode=mode,
                line={"color": shade, "width": 2}, marker={"color": shade, "size": 11, "symbol": symbol},
            )  # fmt: skip
    figure.add_hline(y=1, line=SAME)
    figure.update_layout(**LAYOUT | {"legend": {"orientation": "h", "y": -0.2}}, height=480)
    figure.update_layout(xaxis_title="shift of the agent's mean reward (standard deviations of the noise)")
    return figure.update_yaxes(type="log", title_text=RATIO, tickvals=[0.2, 0.5, 1, 2, 3, 5])


LOOKS = {
    "F": ("F by theory", "lines", "circle"),
    "measured": ("measured", "markers", "circle"),
}
SAME = {"color": NEUTRAL, "width": 1, "dash": "dot"}
"""Line where both baselines give the same value."""


def ratio_dots(pairs: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw the ratio of an agent's two gradient norms, global over own baseline: one dot per step (and run).

    A line marks each median. Steps in which the own baseline gives norm 0 have no ratio. The labels give their number.
    """
    require(pairs, ["agent", "norm_global", "norm_agent"], "ratio_dots")
    figure, rng, labels = Figure(), np.random.default_rng(0), []
    for place, (agent, shade) in enumerate(colors(agents).items()):
        own, name = pairs[pairs["agent"] == agent], for_plotly(agent)
        finite = own[own["norm_agent"] > 0]
        ratio = finite["norm_global"] / finite["norm_agent"]
        labels.append(f"{name}<br>{len(own) - len(finite)} steps<br>without<br>a ratio")
        spread = place + rng.uniform(-0.28, 0.28, len(ratio))
        figure.add_scatter(x=spread, y=ratio, mode="markers", marker={"color": shade, "size": 5, "opacity": 0.6},
                           name=name, showlegend=False)  # fmt: skip
        figure.add_scatter(x=[place - 0.35, place + 0.35], y=[ratio.median()] * 2, mode="lines", showlegend=False,
                           line={"color": NEUTRAL, "width": 3}, name=f"median of {name}")  # fmt: skip
    figure.add_hline(y=1, line=SAME)
    figure.update_layout(**LAYOUT, xaxis={"tickvals": list(range(len(labels))), "ticktext": labels})
    return figure.update_yaxes(type="log", title_text="norm: global over own baseline", tickvals=TICKS)


def theory_against_measurement(ratios: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw the measured ratio of squared norms over the predicted one: one dot per batch and agent, on log scales.

    `ratios`: rows of data/results/ladder_spikes/ratios.csv. The left panel predicts by the rewards alone, F / V. The
    right one adds the covariances.
    """
    require(ratios, ["agent", "F", "V"], "theory_against_measurement")
    known = ratios[(ratios["V"] > 0) & (ratios["predicted"] > 0) & (ratios["measured"] > 0)]
    columns = {"by rewards alone: F / V": known["F"] / known["V"], "with the covariances": known["predicted"]}
    figure = make_subplots(rows=1, cols=2, subplot_titles=list(columns), shared_yaxes=True, horizontal_spacing=0.06)
    ends = [min(0.5, known["measured"].min()), 1.2 * max(2.0, known["measured"].max())] if len(known) else [0.5, 2.0]
    for column, predicted in enumerate(columns.values(), start=1):
        figure.add_scatter(x=ends, y=ends, mode="lines", line=SAME, showlegend=False, row=1, col=column)
        for agent, shade in colors(agents).items():
            own, name = known["agent"] == agent, for_plotly(agent)
            figure.add_scatter(x=predicted[own], y=known.loc[own, "measured"], mode="markers", name=name,
                               marker={"color": shade, "size": 8, "opacity": 0.8}, legendgroup=name,
                               showlegend=column == 1, row=1, col=column)  # fmt: skip
    figure.update_xaxes(type="log", title_text="predicted ratio of |G|²", tickvals=TICKS)
    figure.update_yaxes(type="log", tickvals=TICKS).update_yaxes(title_text="measured ratio of |G|²", col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, height=420)
    return figure.update_layout(legend_y=1.12)
