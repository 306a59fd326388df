"""RewardInspector: who earned what, and by which baseline each agent would be judged.

Pure figures from tables, and the instrument around them. Leaves out: gradients (`spikes`) and texts (`rollouts`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.cells.normalization import is_flat
from mas_lab.explain.advice import advise
from mas_lab.explain.moments import baseline_unit, both_baselines, inflation, pooled_inflation
from mas_lab.keyed import key_html, keyed
from mas_lab.table import require, trained
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, write
from mas_lab.widgets.earned import agents_html, counts_html, links_to, numbers_html, turns_html
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HOLLOW = {"color": "rgba(0,0,0,0)", "line": {"color": NEUTRAL, "width": 1.5}}
BINS = 40
CHOICES = 12
"""Steps of a page, of which one is shown."""
OF_TURN = ("agent", "turn")
READ = ["step", "task", "episode", "node", "turn", "agent", "policy", "probe", "valid", "credit", "group"]
"""What of the turns of the page's steps is read."""
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
    played = rows.groupby("step")["episode"].nunique() if "step" in by else rows["episode"].nunique()
    told["spoke"] /= told.index.get_level_values("step").map(played) if "step" in by else played
    told = told.join(quartiles).reset_index()
    if "turn" in by:
        return keyed(told, "rewards")
    pooled = pooled_inflation(inflation(rows, once_per=baseline_unit(rows)), by)
    return keyed(told.merge(pooled.drop(columns="n"), on=list(by), how="left"), "rewards")


@dataclass(frozen=True)
class Spread:
    """How the credits of each agent, and its advantages under two baselines, are spread at each of some steps: counted
    in the same bins, so that steps can be compared."""

    bins: Mapping[str, tuple[np.ndarray, float]]
    """Of "credit" and "advantage": the middle of each bin, and how wide it is."""
    counts: Mapping[tuple[int, str, str], np.ndarray]
    """By step, agent and "credit", "agent" or "global": rows in each bin."""
    means: Mapping[tuple[int, str], float]
    """By step and agent its mean credit, and by step and "" the one that the global baseline judges by."""

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
        """Counts and means of a step in the order of the figure's traces and lines; plain data."""
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
    """The same credits under two baselines, a column per agent: above, its credits with its own mean and the global
    one; below, the advantages that either baseline makes of them."""
    spread = Spread.of(turns.drop(columns="step", errors="ignore"), agents)
    return spread_figure(spread, agents, 0)


def spread_figure(spread: Spread, agents: Sequence[str], step: int) -> "Figure":
    """That figure of one of the steps; of several, each panel is as high as the tallest bar of any."""
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
    """The mean that a global baseline judges by: over episodes, or over rows in a tree."""
    unit = baseline_unit(rows)
    return float((rows.groupby(unit)["credit"].mean() if unit else rows["credit"]).mean())


def _line(figure: "Figure", x: float, color: str, dash: str, name: str, place: int) -> None:
    line = {"color": color, "width": 3 if dash == "solid" else 2, "dash": dash}
    known = x == x
    figure.add_vline(x=x if known else 0, visible=known, line=line, name=name, showlegend=place == 1, row=1, col=place)


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


class RewardInspector:
    """Per agent: what it earned, how often it spoke, and how the global baseline and its own would judge it.

    `x`: a table after `group` (columns `credit`, `group`), a report or several, a run or its path. `step`: whose
    distribution is drawn (default: the last). `.figure()`, `.table`, `.advice`, and of agents' turns `.turn_table`,
    `.turn_advice`; `.to_html(path)`; a notebook shows it.
    """

    def __init__(self, x: Any, step: int | None = None, agents: Sequence[str] | None = None):
        self.source = Source(x, agents)
        self.step = self.source.steps[-1] if step is None else step
        self.turns = self.source.turns(self.step)
        self.table = reward_table(self.turns)
        """A row per agent, see `reward_table`."""
        self.advice = advise(self.turns, self.source.agents)
        """Would an agent's own baseline pay? See `advise`."""

    @cached_property
    def turn_table(self) -> pd.DataFrame | None:
        """A row per agent and turn, see `reward_table`; None in a table without turns."""
        return reward_table(self.turns, OF_TURN) if "turn" in self.turns.columns else None

    @cached_property
    def turn_advice(self) -> pd.DataFrame | None:
        """Would a mean for each turn pay? See `advise`."""
        return advise(self.turns, self.source.agents, OF_TURN) if "turn" in self.turns.columns else None

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

    def to_html(self, path: str | Path, rollouts: str | None = None) -> Path:
        """One standalone file that works offline, in which up to `CHOICES` steps can be chosen. `rollouts`: the address
        of the page of a RolloutViewer of the same run, to which links beside each agent lead."""
        steps = self._choices()
        turns = self._read(steps)
        spread, agents = Spread.of(turns, self.source.agents), self.source.agents
        parts = [f'<p class="quiet">{escape(self.source.title)}</p>', self._chooser(steps)]
        parts += self._sections(turns, rollouts)
        figure = spread_figure(spread, agents, self.step)
        described = f"Credits and advantages of {', '.join(agents)} under two baselines, at the step that is chosen"
        counts = pd.concat([credit_counts(own).assign(step=step) for step, own in turns.groupby("step")])
        counts = counts[["step", "agent", "credit", "rows"]]
        parts += [
            f'<div id="spread">{figure_html(figure, described, counts, 60 + 180 * len(agents))}</div>',
            *self._over_training(),
            f"<details><summary>What the columns mean</summary>{key_html('rewards', self.table.columns)}"
            f"{key_html('advise', self.advice.columns)}</details>",
        ]
        data = {"steps": {str(step): spread.of_step(step, agents) for step in steps}}
        return write(path, document("Who earned what", "".join(parts), data, scripts=(*FIGURES, "rewards.js")))

    def _choices(self) -> list[int]:
        """The steps of the page: evenly spread, the first, the last and the asked one among them."""
        steps = self.source.some_steps(CHOICES - 1)
        return sorted({*steps, self.step})

    def _read(self, steps: Sequence[int]) -> pd.DataFrame:
        if len(steps) == 1:
            return self.turns.assign(step=steps[0])
        return self.source.some_turns(steps, READ).reset_index(drop=True)

    def _chooser(self, steps: Sequence[int]) -> str:
        if len(steps) == 1:
            return ""
        buttons = "".join(
            f'<button type="button" data-step="{step}" aria-pressed="{str(step == self.step).lower()}">{step}</button>'
            for step in steps
        )
        return f'<div class="bar" id="steps" role="group" aria-label="Training step">Training step {buttons}</div>'

    def _sections(self, turns: pd.DataFrame, rollouts: str | None) -> Iterator[str]:
        """The tables of each step; all but the chosen one are hidden."""
        found = [reward_table(turns, ("step", "agent")), advise(turns, self.source.agents, ("step", "agent"))]
        if "turn" in turns.columns:
            found += [reward_table(turns, ("step", *OF_TURN)), advise(turns, self.source.agents, ("step", *OF_TURN))]
            found.append(call_table(turns, self.source.agents))
        for step, own in turns.groupby("step", sort=True):
            told = [table[table["step"] == step].drop(columns="step") for table in found]
            links = links_to(own, rollouts, int(step))
            yield f"{self._section(step)}<h2>Step {step}</h2>{self._told(told, links)}"
            yield f"{numbers_html(*told[:2], int(step))}</section>"

    def _section(self, step: int) -> str:
        return f'<section data-step="{step}"{"" if step == self.step else " hidden"}>'

    def _told(self, told: Sequence[pd.DataFrame], links: Mapping[str, str]) -> str:
        """What the tables of a step say: per agent, and per turn where there are any."""
        shades = colors(self.source.agents)
        shades |= {agent: NEUTRAL for agent in told[1]["agent"] if agent not in shades}
        calls = dict(zip(told[4]["agent"], told[4]["calls"], strict=True)) if len(told) > 2 else {}
        by_turn = turns_html(*told[2:4], shades) if len(told) > 2 else ""
        return agents_html(*told[:2], calls, shades, links) + by_turn

    def _over_training(self) -> Iterator[str]:
        for heading, (figure, described, data) in zip(("<h2>Over training</h2>", ""), self._curves(), strict=False):
            yield heading + figure_html(figure, described, data)

    def _curves(self) -> Iterator[tuple["Figure", str, pd.DataFrame]]:
        """The figures over training steps, where there are several: each with what it shows, and its numbers."""
        if len(self.source.steps) > 1:
            curve = self.curve()
            yield rewards_over_steps(curve, self.source.agents), "Mean credit of each agent over training steps", curve
        if len(self.source.steps) > 1 and "turn" in self.turns.columns:
            calls = self.calls()
            yield calls_over_steps(calls), CALLED, calls

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        told = [self.table, self.advice]
        if self.turn_table is not None:
            told += [self.turn_table, self.turn_advice, call_table(self.turns, self.source.agents)]
        display(HTML(beside(f"<p>{escape(self.source.title)}, step {self.step}</p>{self._told(told, {})}")))
        display(self.figure())
        for figure, *_ in self._curves():
            display(figure)
        numbers = numbers_html(self.table, self.advice, self.step)
        numbers += counts_html(credit_counts(self.turns), self.step)
        display(HTML(beside(numbers + key_html("rewards", self.table.columns))))


CALLED = "In how many turns of an episode each agent is called, over training steps"


def credit_counts(turns: pd.DataFrame) -> pd.DataFrame:
    """How many rows of each agent earned what: columns `agent`, `credit`, `rows`."""
    rows = turns[trained(turns)]
    counted = rows.assign(credit=rows["credit"].round(2)).groupby(["agent", "credit"], sort=False).size()
    return counted.rename("rows").reset_index().sort_values(["agent", "credit"], ignore_index=True)
