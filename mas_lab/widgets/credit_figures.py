"""Draw what agents earned: credits and advantages at a step, and credits and calls over training.

This module leaves out the tables behind the figures, and the page around them (`rewards`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.explain.moments import baseline_unit, both_baselines
from mas_lab.table import trained
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.text import for_plotly

HOLLOW = {"color": "rgba(0,0,0,0)", "line": {"color": NEUTRAL, "width": 1.5}}
BINS = 40


def two_baselines(turns: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw the same credits under two baselines, in one column per agent.

    The upper row shows the credits with the agent's own mean and the global mean. The lower row shows the advantages
    under either baseline, in standard deviations (SD).
    """
    rows = turns[trained(turns)].reset_index(drop=True)
    values = {"credit": rows["credit"], **both_baselines(rows)}
    edges = [np.histogram_bin_edges(values["credit"], BINS),
             np.histogram_bin_edges(pd.concat([values["agent"], values["global"]]), BINS)]  # fmt: skip
    shades, unit = colors(agents), baseline_unit(rows)
    # The global baseline is a mean over episodes, or over rows in a tree.
    everybody = (rows.groupby(unit)["credit"].mean() if unit else rows["credit"]).mean()
    titles = list(map(for_plotly, agents))
    figure = make_subplots(rows=2, cols=len(agents), subplot_titles=titles, vertical_spacing=0.2)
    for place, agent in enumerate(agents, start=1):
        own, fill = rows["agent"] == agent, {"color": shades[agent], "opacity": 0.6}
        for name, row, marker, label in (("credit", 1, fill, agent), ("agent", 2, fill, "own baseline"),
                                         ("global", 2, HOLLOW, "global baseline")):  # fmt: skip
            counts, bins = np.histogram(values[name][own], edges[row - 1])
            figure.add_bar(
                x=((bins[1:] + bins[:-1]) / 2).tolist(), y=counts.tolist(), width=bins[1] - bins[0], marker=marker,
                name=for_plotly(label), legendgroup=for_plotly(label), showlegend=place == 1 and row == 2,
                hovertemplate="%{y} rows around %{x:.3g}", row=row, col=place,
            )  # fmt: skip
        means = [("global mean", everybody, {"color": NEUTRAL, "width": 2, "dash": "dash"})]
        if own.any():
            means.append(("own mean", rows.loc[own, "credit"].mean(), {"color": shades[agent], "width": 3}))
        for name, mean, line in means:
            figure.add_vline(x=mean, line=line, name=name, showlegend=place == 1, row=1, col=place)
    for row, title in enumerate(("credit", "advantage (SD)"), start=1):
        span = [edges[row - 1][0], edges[row - 1][-1]]
        figure.update_xaxes(title_text=title, title_standoff=4, range=span, row=row)
    figure.update_yaxes(title_text="rows", col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, barmode="overlay", height=520)
    return figure.update_layout(legend_y=1.1)


def rewards_over_steps(curve: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw each agent's mean credit and quartiles over steps; `curve` has `step`, `agent`, `mean`, `25 %`, `75 %`."""
    figure, shades = Figure(), colors(agents)
    for agent in agents:
        own = curve[curve["agent"] == agent].astype({"step": float})
        ends = [*own["75 %"], *own["25 %"][::-1]]
        figure.add_scatter(
            x=[*own["step"], *own["step"][::-1]], y=ends, fill="toself", mode="lines", fillcolor=shades[agent],
            opacity=0.15, line={"width": 0}, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
        line = {"color": shades[agent]}
        figure.add_scatter(x=own["step"], y=own["mean"], name=for_plotly(agent), mode="lines", line=line)
    figure.update_layout(**LAYOUT, yaxis_title="credit (line: mean; band: quartiles)")
    return figure.update_xaxes(title_text="training step")


def wrong_over_steps(wrong: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw each agent's own reward and its reinforced wrong answers over steps, a panel per agent.

    `wrong` has `step`, `agent`, `own_reward` and `reinforced`.
    """
    columns = min(4, len(agents))
    titles, shades = list(map(for_plotly, agents)), colors(agents)
    figure = make_subplots(rows=-(-len(agents) // columns), cols=columns, subplot_titles=titles, shared_yaxes=True,
                           shared_xaxes=True, vertical_spacing=0.16)  # fmt: skip
    lines = (("own_reward", "own reward", {}), ("reinforced", "wrong answers that were reinforced", {"dash": "dot"}))
    for place, agent in enumerate(agents):
        own = wrong[wrong["agent"] == agent]
        x, mode = own["step"].astype(float), "lines+markers" if len(own) == 1 else "lines"
        for name, label, line in lines:
            figure.add_scatter(
                x=x, y=own[name], name=label, legendgroup=name, showlegend=place == 0, mode=mode,
                line=line | {"color": shades[agent] if name == "own_reward" else NEUTRAL},
                row=place // columns + 1, col=place % columns + 1,
            )  # fmt: skip
    layout = LAYOUT | {"margin": {"l": 50, "r": 20, "t": 80, "b": 50}}
    figure.update_layout(**layout, height=160 + 170 * -(-len(agents) // columns), legend_y=1.15)
    return figure.update_xaxes(title_text="training step", row=-(-len(agents) // columns))


def calls_over_steps(calls: pd.DataFrame) -> Figure:
    """Draw how often each agent is called in an episode, over training steps; `calls` comes from `call_table`."""
    figure, shades = Figure(), colors(calls["agent"])
    for agent, own in calls.groupby("agent", sort=False):
        figure.add_scatter(x=own["step"].astype(float), y=own["calls"], name=for_plotly(agent), mode="lines",
                           line={"color": shades[agent]}, showlegend=True)  # fmt: skip
    figure.update_layout(**LAYOUT, xaxis_title="training step", yaxis_title="calls in an episode")
    return figure.update_yaxes(rangemode="tozero")
