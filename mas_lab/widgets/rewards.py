"""RewardInspector: who earned what, and by which baseline each agent would be judged.

Pure figures from tables, and the instrument around them. Leaves out: gradients (`spikes`) and texts (`rollouts`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.cells.normalization import is_flat
from mas_lab.explain.advice import advise
from mas_lab.explain.moments import baseline_unit, both_baselines, inflation, pooled_inflation
from mas_lab.keyed import key_html, keyed
from mas_lab.table import require, trained
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, table_html, write
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HOLLOW = {"color": "rgba(0,0,0,0)", "line": {"color": NEUTRAL, "width": 1.5}}
CURVE_STEPS = 100
"""Steps that the curves of a long run show, evenly spread."""


def reward_table(turns: pd.DataFrame, by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """A row per agent (or agent and turn): how often it spoke, its credits, and what each baseline makes of it.

    `rows`; `spoke`, the share of episodes in which it did; `mean`, `std` (population), quartiles of its credits;
    `valid`; `lone`, `flat`: share of its rows whose comparison group holds one row, or only equal credits; `b`, `v`,
    `F`, `signal` over all of its rows, see `pooled_inflation`. Groups and episodes of two steps are never one.
    """
    require(turns, ["task", "episode", "credit", "group", "valid", *by], "RewardInspector")
    rows = turns[trained(turns)]
    step = ["step"] if "step" in rows.columns else []
    groups = rows.groupby([*step, "group"], sort=False, observed=True)["credit"]
    size, flat = groups.transform("size"), is_flat(groups.transform("min"), groups.transform("max"))
    rows = rows.assign(
        lone=(size == 1).astype(float), flat=((size > 1) & flat).astype(float), valid=rows["valid"].astype(float),
        episode=rows.groupby([*step, "episode"], sort=False, observed=True).ngroup(),
    )  # fmt: skip
    split = rows.groupby(list(by), sort=False, observed=True)
    quartiles = split["credit"].quantile([0.25, 0.5, 0.75]).unstack().set_axis(["25 %", "50 %", "75 %"], axis=1)
    told = split.agg(
        rows=("credit", "size"), spoke=("episode", "nunique"), mean=("credit", "mean"),
        std=("credit", lambda credit: credit.std(ddof=0)), valid=("valid", "mean"), lone=("lone", "mean"),
        flat=("flat", "mean"),
    )  # fmt: skip
    told["spoke"] /= rows["episode"].nunique()
    told = told.join(quartiles).reset_index()
    if tuple(by) != ("agent",):
        return keyed(told, "rewards")
    pooled = pooled_inflation(inflation(rows, once_per=baseline_unit(rows)))
    return keyed(told.merge(pooled.drop(columns="n"), on="agent", how="left"), "rewards")


def two_baselines(turns: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """The same credits under two baselines, a column per agent: above, its credits with its own mean and the global
    one; below, the advantages that either baseline makes of them."""
    import plotly.graph_objects as go

    from mas_lab.widgets.picture import subplots

    rows = turns[trained(turns)]
    advantages = both_baselines(rows)
    titles = list(map(for_plotly, agents))
    figure = subplots(rows=2, cols=len(agents), subplot_titles=titles, vertical_spacing=0.2)
    shades, everyone = colors(agents), _baseline(rows)
    span = (rows["credit"].min(), rows["credit"].max())
    wide = (min(a.min() for a in advantages.values()), max(a.max() for a in advantages.values()))
    for place, agent in enumerate(agents, start=1):
        own, fill = rows["agent"] == agent, {"color": shades[agent], "opacity": 0.6}
        credits = rows.loc[own, "credit"]
        figure.add_trace(_histogram(go, credits, span, fill, agent), row=1, col=place)
        _line(figure, credits.mean(), shades[agent], "solid", "own mean", place)
        _line(figure, everyone, NEUTRAL, "dash", "global mean", place)
        for name, marker, label in (("agent", fill, "own baseline"), ("global", HOLLOW, "global baseline")):
            drawn = _histogram(go, advantages[name][own], wide, marker, label, shown=place == 1)
            figure.add_trace(drawn, row=2, col=place)
    ends = {"credit": span, "advantage<br>(standard deviations)": wide}
    for row, (title, (low, high)) in enumerate(ends.items(), start=1):
        edge = max((high - low) / 20, 0.05)
        figure.update_xaxes(title_text=title, title_standoff=4, range=[low - edge, high + edge], row=row)
    figure.update_yaxes(title_text="rows", col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, barmode="overlay", height=520)
    figure.update_layout(legend_y=1.1)
    return figure


def _baseline(rows: pd.DataFrame) -> float:
    """The mean that a global baseline judges by: over episodes, or over rows in a tree."""
    unit = baseline_unit(rows)
    return float((rows.groupby(unit)["credit"].mean() if unit else rows["credit"]).mean())


def _histogram(go, values: pd.Series, span: tuple[float, float], marker: dict, name: str, shown: bool = False):
    name = for_plotly(name)
    size = max((span[1] - span[0]) / 40, 1e-6)
    bins = {"start": span[0], "end": span[1] + size, "size": size}
    return go.Histogram(x=values, xbins=bins, marker=marker, name=name, legendgroup=name, showlegend=shown)


def _line(figure: "Figure", x: float, color: str, dash: str, name: str, place: int) -> None:
    line = {"color": color, "width": 3 if dash == "solid" else 2, "dash": dash}
    figure.add_vline(x=x, line=line, name=name, showlegend=place == 1, row=1, col=place)


def rewards_over_steps(curve: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """Mean credit of each agent over training steps; `curve` has `step`, `agent`, `mean`, `25 %`, `75 %`."""
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


def call_table(turns: pd.DataFrame, agents: Sequence[str] = ()) -> pd.DataFrame:
    """How often each agent is called in an episode: the turns in which it speaks there, on average over the episodes of
    a step; 0 in a step where it never does. Columns `step`, `agent`, `calls`; a table without steps is one. `agents`
    come first, and then whoever speaks besides."""
    require(turns, ["episode", "agent", "turn"], "RewardInspector")
    rows = turns[trained(turns)]
    rows = rows if "step" in rows.columns else rows.assign(step=0)
    everybody = pd.Index(dict.fromkeys([*agents, *rows["agent"].unique()]), name="agent")
    played = rows.groupby("step")["episode"].nunique()
    spoken = rows.drop_duplicates(["step", "episode", "agent", "turn"]).groupby(["step", "agent"], observed=True).size()
    calls = spoken.unstack(fill_value=0).reindex(columns=everybody, fill_value=0)
    return calls.div(played, axis=0).stack().rename("calls").reset_index()


def calls_over_steps(calls: pd.DataFrame) -> "Figure":
    """How often each agent is called in an episode, over training steps; `calls` as `call_table` gives it."""
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


def advice_html(advice: pd.DataFrame) -> str:
    """The verdict and the sentences of each agent as `advise` gives them and, folded, its numbers."""
    told = "".join(
        f"<li><b>{escape(agent)}: {escape(own)}.</b> {escape(why)}</li>"
        for agent, own, why in zip(advice["agent"], advice["own"], advice["why"], strict=True)
    )
    told_apart = advice.drop(columns=["own", "why"])
    numbers = table_html(told_apart, "The numbers behind this advice") + key_html("advise", told_apart.columns)
    return (
        f"<h2>Would its own baseline pay?</h2><ul>{told}</ul>"
        f"<details><summary>The numbers behind this advice</summary>{numbers}</details>"
    )


class RewardInspector:
    """Per agent: what it earned, how often it spoke, and how the global baseline and its own would judge it.

    `x`: a table after `group` (columns `credit`, `group`), a report or several, a run or its path. `step`: whose
    distribution is drawn (default: the last). `.figure()`, `.table`, `.advice`, `.to_html(path)`; a notebook shows it.
    """

    def __init__(self, x: Any, step: int | None = None, agents: Sequence[str] | None = None):
        self.source = Source(x, agents)
        self.step = self.source.steps[-1] if step is None else step
        self.turns = self.source.turns(self.step)
        self.table = reward_table(self.turns)
        """A row per agent, see `reward_table`."""
        self.advice = advise(self.turns, self.source.agents)
        """Would an agent's own baseline pay? See `advise`."""

    def __repr__(self) -> str:
        return f"RewardInspector({self.source.title}, step {self.step}: {', '.join(self.source.agents)})"

    def figure(self) -> "Figure":
        """The credits of the step, and the advantages under both baselines."""
        return two_baselines(self.turns, self.source.agents)

    def curve(self) -> pd.DataFrame:
        """Mean and quartiles of each agent's credits at up to `CURVE_STEPS` steps."""
        turns = self.source.some_turns(self.source.some_steps(CURVE_STEPS), ["step", "agent", "credit", "probe"])
        by = turns[trained(turns)].groupby(["step", "agent"], sort=False)["credit"]
        quartiles = by.quantile([0.25, 0.75]).unstack().set_axis(["25 %", "75 %"], axis=1)
        return quartiles.join(by.mean().rename("mean")).reset_index()

    def calls(self) -> pd.DataFrame:
        """How often each agent was called in an episode at up to `CURVE_STEPS` steps, see `call_table`."""
        read = ["step", "episode", "agent", "turn", "probe"]
        return call_table(self.source.some_turns(self.source.some_steps(CURVE_STEPS), read), self.source.agents)

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        described = f"Credits and advantages of {', '.join(self.source.agents)} under two baselines, step {self.step}"
        parts = [
            f'<p class="quiet">{escape(self.source.title)}, step {self.step}</p>',
            table_html(self.table, "Who earned what, per agent"),
            key_html("rewards", self.table.columns),
            advice_html(self.advice),
            figure_html(self.figure(), described, credit_counts(self.turns), least=60 + 180 * len(self.source.agents)),
        ]
        if "turn" in self.turns.columns:
            parts.append(table_html(reward_table(self.turns, ("agent", "turn")), "The same per agent and turn"))
        if len(self.source.steps) > 1:
            curve = self.curve()
            parts += ["<h2>Over training</h2>", figure_html(rewards_over_steps(curve, self.source.agents),
                      "Mean credit of each agent over training steps", curve)]  # fmt: skip
        if len(self.source.steps) > 1 and "turn" in self.turns.columns:
            calls = self.calls()
            described = "In how many turns of an episode each agent is called, over training steps"
            parts.append(figure_html(calls_over_steps(calls), described, calls))
        return write(path, document("Who earned what", "".join(parts), scripts=FIGURES))

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(self.figure())
        table = table_html(self.table, f"Who earned what, {self.source.title}, step {self.step}")
        display(HTML(beside(table + key_html("rewards", self.table.columns) + advice_html(self.advice))))


def credit_counts(turns: pd.DataFrame) -> pd.DataFrame:
    """How many rows of each agent earned what: columns `agent`, `credit`, `rows`."""
    rows = turns[trained(turns)]
    counted = rows.assign(credit=rows["credit"].round(2)).groupby(["agent", "credit"], sort=False).size()
    return counted.rename("rows").reset_index().sort_values(["agent", "credit"], ignore_index=True)
