"""Draw what agents earned: credits and advantages at a step, and credits and calls over training.

This module leaves out the tables behind the figures, and the page around them (`rewards`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mas_lab.explain.moments import baseline_unit, both_baselines
from mas_lab.table import trained
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HOLLOW = {"color": "rgba(0,0,0,0)", "line": {"color": NEUTRAL, "width": 1.5}}
BINS = 40


@dataclass(frozen=True)
class Spread:
    """Histograms of each agent's credits, and of its advantages under two baselines, per step, in the same bins."""

    bins: Mapping[str, tuple[np.ndarray, float]]
    """Middle of each bin and width of the bins, for "credit" and for "advantage"."""
    counts: Mapping[tuple[int, str, str], np.ndarray]
    """Rows in each bin, by step, agent, and "credit", "agent" or "global"."""
    means: Mapping[tuple[int, str], float]
    """Mean credit by step and agent. The key (step, "") holds the mean that the global baseline uses."""

    @classmethod
    def of(cls, turns: pd.DataFrame, agents: Sequence[str]) -> "Spread":
        rows = turns[trained(turns)].reset_index(drop=True)
        values = {"credit": rows["credit"], **both_baselines(rows)}
        ends = {"credit": ["credit"], "advantage": ["agent", "global"]}
        bins = {kind: _bins([values[name] for name in names]) for kind, names in ends.items()}
        step = rows["step"] if "step" in rows.columns else pd.Series(0, rows.index)
        counts, means = {}, {}
        for number, at in rows.groupby(step, sort=False).groups.items():
            means[int(number), ""] = _baseline(rows.loc[at])
            for agent in agents:
                own = at[rows.loc[at, "agent"] == agent]
                means[int(number), agent] = float(rows.loc[own, "credit"].mean())
                for name, value in values.items():
                    held = bins["credit" if name == "credit" else "advantage"]
                    counts[int(number), agent, name] = _counted(value[own], *held)
        return cls(bins, counts, means)

    @property
    def steps(self) -> list[int]:
        return list(dict.fromkeys(step for step, *_ in self.counts))

    def of_step(self, step: int, agents: Sequence[str]) -> dict[str, list]:
        """Return counts and means of a step as plain data, in the order of the figure's traces and lines."""
        counts = [self.counts[step, agent, name].tolist() for agent in agents for name in ("credit", "agent", "global")]
        means = [self.means[step, name] for agent in agents for name in (agent, "")]
        return {"counts": counts, "means": [None if mean != mean else mean for mean in means]}


def _bins(values: Sequence[pd.Series]) -> tuple[np.ndarray, float]:
    low, high = min(one.min() for one in values), max(one.max() for one in values)
    size = float(high - low) / BINS or 0.05
    return low + size * (np.arange(BINS + 1) + 0.5), size


def _counted(values: pd.Series, middles: np.ndarray, size: float) -> np.ndarray:
    place = np.floor((values.to_numpy(float) - middles[0]) / size + 0.5 + 1e-9).astype(int)
    return np.bincount(place, minlength=len(middles))


def two_baselines(turns: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """Draw the same credits under two baselines, in one column per agent.

    The upper row shows the credits with the agent's own mean and the global mean. The lower row shows the advantages
    under either baseline.
    """
    spread = Spread.of(turns.drop(columns="step", errors="ignore"), agents)
    return spread_figure(spread, agents, 0)


def spread_figure(spread: Spread, agents: Sequence[str], step: int) -> "Figure":
    """Draw the figure of `two_baselines` for one step; a panel is as high as its tallest bar at any step."""
    from mas_lab.widgets.picture import subplots

    titles = list(map(for_plotly, agents))
    figure = subplots(rows=2, cols=len(agents), subplot_titles=titles, vertical_spacing=0.2)
    shades = colors(agents)
    for place, agent in enumerate(agents, start=1):
        fill = {"color": shades[agent], "opacity": 0.6}
        drawn = (("credit", "credit", fill, agent, 1), ("agent", "advantage", fill, "own baseline", 2),
                 ("global", "advantage", HOLLOW, "global baseline", 2))  # fmt: skip
        for name, kind, marker, label, row in drawn:
            (middles, size), called = spread.bins[kind], for_plotly(label)
            figure.add_bar(
                x=middles.tolist(), y=spread.counts[step, agent, name].tolist(), width=size, marker=marker, name=called,
                legendgroup=called, showlegend=place == 1 and row == 2, row=row, col=place,
                hovertemplate="%{y} rows around %{x:.3g}",
            )  # fmt: skip
        _line(figure, spread.means[step, agent], shades[agent], "solid", "own mean", place)
        _line(figure, spread.means[step, ""], NEUTRAL, "dash", "global mean", place)
        for row, names in ((1, ("credit",)), (2, ("agent", "global"))):
            most = max(spread.counts[one, agent, name].max() for one in spread.steps for name in names)
            figure.update_yaxes(range=[0, 1.05 * max(most, 1)], row=row, col=place)
    named = {"credit": "credit", "advantage": "advantage<br>(standard deviations)"}
    for row, (kind, title) in enumerate(named.items(), start=1):
        middles, size = spread.bins[kind]
        edges = [middles[0] - 2.5 * size, middles[-1] + 1.5 * size]
        figure.update_xaxes(title_text=title, title_standoff=4, range=edges, row=row)
    figure.update_yaxes(title_text="rows", col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, barmode="overlay", height=520)
    figure.update_layout(legend_y=1.1)
    return figure


def _baseline(rows: pd.DataFrame) -> float:
    """Return the mean credit that a global baseline uses: over episodes, or over rows in a tree."""
    unit = baseline_unit(rows)
    return float((rows.groupby(unit)["credit"].mean() if unit else rows["credit"]).mean())


def _line(figure: "Figure", x: float, color: str, dash: str, name: str, place: int) -> None:
    line = {"color": color, "width": 3 if dash == "solid" else 2, "dash": dash}
    known = x == x
    figure.add_vline(x=x if known else 0, visible=known, line=line, name=name, showlegend=place == 1, row=1, col=place)


def rewards_over_steps(curve: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """Draw each agent's mean credit and quartiles over steps; `curve` has `step`, `agent`, `mean`, `25 %`, `75 %`."""
    from mas_lab.widgets.picture import Figure

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
    figure.update_layout(**LAYOUT, xaxis_title="training step", yaxis_title="credit (line: mean; band: quartiles)")
    return figure


def calls_over_steps(calls: pd.DataFrame) -> "Figure":
    """Draw how often each agent is called in an episode, over training steps; `calls` comes from `call_table`."""
    from mas_lab.widgets.picture import Figure

    figure, shades = Figure(), colors(calls["agent"])
    for agent, own in calls.groupby("agent", sort=False):
        figure.add_scatter(
            x=own["step"].astype(float), y=own["calls"], name=for_plotly(agent), mode="lines",
            line={"color": shades[agent]}, showlegend=True,
        )  # fmt: skip
    figure.update_layout(**LAYOUT, xaxis_title="training step", yaxis_title="calls in an episode")
    figure.update_yaxes(rangemode="tozero")
    return figure
