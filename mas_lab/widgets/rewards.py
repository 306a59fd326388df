"""RewardInspector: show what each agent earned, and how each baseline would judge it.

This module makes the tables, and the instrument around them. It leaves out the figures (`credit_figures`), the tables
as HTML (`earned`), gradients (`spikes`) and texts (`rollouts`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.cells.normalization import is_flat
from mas_lab.display.documented_frame import documented, key_html
from mas_lab.explain.advice import advise
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.table import require, trained
from mas_lab.widgets.address import page_address
from mas_lab.widgets.credit_figures import Spread, calls_over_steps, rewards_over_steps, spread_figure, two_baselines
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, folded, table_html, write
from mas_lab.widgets.earned import agents_html, links_to, numbers_html, turns_html
from mas_lab.widgets.figures import NEUTRAL, colors
from mas_lab.widgets.source import Source

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CHOICES = 12
"""Maximum number of steps on a page, which shows one at a time."""
OF_TURN = ("agent", "turn")
READ = ["step", "task", "episode", "node", "turn", "agent", "policy", "probe", "valid", "credit", "group"]
"""Columns that are read from the turns of the page's steps."""
CURVE_STEPS = 100
"""Steps in the curves of a long run, evenly spread."""
CALLED = "In how many turns of an episode each agent is called, over training steps"


def reward_table(turns: pd.DataFrame, by: Sequence[str] = ("agent",)) -> pd.DataFrame:
    """Return a row per agent (or agent and turn): how often it spoke, its credits, and the effect of each baseline.

    `rows`: number of its rows. `spoke`: share of episodes in which it spoke. `mean`, `std` (population) and quartiles
    are those of its credits. `valid`: share of its valid rows. `lone`, `flat`: share of its rows whose comparison group
    has one row, or only equal credits. `b`, `v`, `F` and `signal` are over all of its rows, see `pooled_inflation`.
    Groups and episodes of different steps are kept apart.
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
        return documented(told, "rewards")
    pooled = pooled_inflation(inflation(rows, once_per=baseline_unit(rows)), by)
    return documented(told.merge(pooled.drop(columns="n"), on=list(by), how="left"), "rewards")


def call_table(turns: pd.DataFrame, agents: Sequence[str] = ()) -> pd.DataFrame:
    """Return how often each agent is called in an episode: columns `step`, `agent`, `calls`.

    `calls` counts the turns in which the agent speaks, averaged over the episodes of a step. It is 0 for a silent
    agent. A table without steps counts as one step. `agents` come first, then all others that speak.
    """
    require(turns, ["episode", "agent", "turn"], "RewardInspector")
    rows = turns[trained(turns)]
    rows = rows if "step" in rows.columns else rows.assign(step=0)
    everybody = pd.Index(dict.fromkeys([*agents, *rows["agent"].unique()]), name="agent")
    played = rows.groupby("step")["episode"].nunique()
    spoken = rows.drop_duplicates(["step", "episode", "agent", "turn"]).groupby(["step", "agent"], observed=True).size()
    calls = spoken.unstack(fill_value=0).reindex(columns=everybody, fill_value=0)
    return calls.div(played, axis=0).stack().rename("calls").reset_index()


def credit_counts(turns: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each agent have each credit: columns `agent`, `credit`, `rows`."""
    rows = turns[trained(turns)]
    counted = rows.assign(credit=rows["credit"].round(2)).groupby(["agent", "credit"], sort=False).size()
    return counted.rename("rows").reset_index().sort_values(["agent", "credit"], ignore_index=True)


class RewardInspector:
    """Show for each agent its credits, how often it spoke, and how the global and its own baseline would judge it.

    A notebook shows the inspector as it is. Use `.figure()`, `.table`, `.advice` and `.to_html(path)`. `.turn_table`
    and `.turn_advice` treat each turn of an agent separately.

    Args:
        x: A table after `group` (with the columns `credit` and `group`), one report or several, a run, its path, or a
            live dashboard.
        step: Training step whose distribution is drawn, from 0. `None` takes the last step.
        agents: Names of the agents, in acting order. `None` takes them from `x`.

    Raises:
        RunError: If there is no readable run at the path.
        TableError: If `x` is empty or lacks a column.
        TypeError: If `x` is none of the above.
    """

    def __init__(self, x: Any, step: int | None = None, agents: Sequence[str] | None = None):
        self.source = Source(x, agents)
        self.step = self.source.steps[-1] if step is None else step
        self.turns = self.source.turns(self.step)
        self.table = reward_table(self.turns)
        """One row per agent, see `reward_table`."""
        self.advice = advise(self.turns, self.source.agents)
        """Advice on whether an agent's own baseline would pay, see `advise`."""

    @cached_property
    def turn_table(self) -> pd.DataFrame | None:
        """Return one row per agent and turn, see `reward_table`; `None` for a table without turns."""
        return reward_table(self.turns, OF_TURN) if "turn" in self.turns.columns else None

    @cached_property
    def turn_advice(self) -> pd.DataFrame | None:
        """Return advice on whether a mean for each turn would pay, see `advise`; `None` without turns."""
        return advise(self.turns, self.source.agents, OF_TURN) if "turn" in self.turns.columns else None

    def __repr__(self) -> str:
        return f"RewardInspector({self.source.title}, step {self.step}: {', '.join(self.source.agents)})"

    def figure(self) -> "Figure":
        """Draw the credits of the step, and the advantages under both baselines.

        Returns:
            Plotly figure with one column per agent.
        """
        return two_baselines(self.turns, self.source.agents)

    def curve(self) -> pd.DataFrame:
        """Compute the mean and the quartiles of each agent's credits at up to `CURVE_STEPS` steps.

        Returns:
            Table with the columns `step`, `agent`, `25 %`, `75 %` and `mean`.
        """
        turns = self.source.some_turns(self.source.some_steps(CURVE_STEPS), ["step", "agent", "credit", "probe"])
        by = turns[trained(turns)].groupby(["step", "agent"], sort=False)["credit"]
        quartiles = by.quantile([0.25, 0.75]).unstack().set_axis(["25 %", "75 %"], axis=1)
        return quartiles.join(by.mean().rename("mean")).reset_index()

    def calls(self) -> pd.DataFrame:
        """Count how often each agent was called in an episode, at up to `CURVE_STEPS` steps.

        Returns:
            Table with the columns `step`, `agent` and `calls`, see `call_table`.
        """
        read = ["step", "episode", "agent", "turn", "probe"]
        return call_table(self.source.some_turns(self.source.some_steps(CURVE_STEPS), read), self.source.agents)

    def to_html(self, path: str | Path, rollouts: str | Path | None = None) -> Path:
        """Write one standalone HTML file that works offline, with a choice of up to `CHOICES` steps.

        Args:
            path: The file to write. Missing parent folders are created.
            rollouts: Address of the page of a RolloutViewer of the same run: relative, or with http, https or file.
                Links beside each agent lead to it. `None` makes no links.

        Returns:
            The path of the file.

        Raises:
            ValueError: If `rollouts` is not the address of a page.
        """
        page, agents = page_address(rollouts, "RewardInspector"), self.source.agents
        steps = sorted({*self.source.some_steps(CHOICES - 1), self.step})
        one = len(steps) == 1
        turns = self.turns.assign(step=self.step) if one else self.source.some_turns(steps, READ).reset_index(drop=True)
        spread = Spread.of(turns, agents)
        sections = []
        for step, own in turns.groupby("step", sort=True):
            tables, links = self._tables(own), links_to(own, page, int(step))
            sections.append(
                f'<section data-step="{step}"{"" if step == self.step else " hidden"}><h2>Step {step}</h2>'
                f"{self._told(tables, links)}{numbers_html(*tables[:2], int(step))}</section>"
            )
        counts = pd.concat([credit_counts(own).assign(step=step) for step, own in turns.groupby("step")])
        described = f"Credits and advantages of {', '.join(agents)} under two baselines, at the step that is chosen"
        figure = figure_html(spread_figure(spread, agents, self.step), described,
                             counts[["step", "agent", "credit", "rows"]], 60 + 180 * len(agents))  # fmt: skip
        curves = "".join(figure_html(*curve) for curve in self._curves())
        keys = key_html("rewards", self.table.columns) + key_html("advise", self.advice.columns)
        body = (
            f'<p class="quiet">{escape(self.source.title)}</p>{"" if one else self._chooser(steps)}{"".join(sections)}'
            f'<div id="spread">{figure}</div>{"<h2>Over training</h2>" if curves else ""}{curves}'
            f"{folded('What the columns mean', keys)}"
        )
        data = {"steps": {str(step): spread.of_step(step, agents) for step in steps}}
        return write(path, document("Who earned what", body, data, scripts=(*FIGURES, "rewards.js")))

    def _chooser(self, steps: Sequence[int]) -> str:
        buttons = "".join(
            f'<button type="button" data-step="{step}" aria-pressed="{str(step == self.step).lower()}">{step}</button>'
            for step in steps
        )
        return f'<div class="bar" id="steps" role="group" aria-label="Training step">Training step {buttons}</div>'

    def _tables(self, turns: pd.DataFrame) -> list[pd.DataFrame]:
        """Return the tables of a step: earned and advised per agent and, if there are turns, per turn, and calls."""
        agents, by = self.source.agents, [("agent",), *([OF_TURN] if "turn" in turns.columns else [])]
        tables = [table for one in by for table in (reward_table(turns, one), advise(turns, agents, one))]
        return tables + ([call_table(turns.drop(columns="step", errors="ignore"), agents)] if len(by) > 1 else [])

    def _told(self, told: Sequence[pd.DataFrame], links: Mapping[str, str]) -> str:
        """Return the tables of a step as HTML: per agent, and per turn if there are turns."""
        shades = dict.fromkeys(told[1]["agent"], NEUTRAL) | colors(self.source.agents)
        calls = dict(zip(told[4]["agent"], told[4]["calls"], strict=True)) if len(told) > 2 else {}
        return agents_html(*told[:2], calls, shades, links) + (turns_html(*told[2:4], shades) if len(told) > 2 else "")

    def _curves(self) -> Iterator[tuple["Figure", str, pd.DataFrame]]:
        """Yield the figures over several training steps, each with a description and its numbers."""
        if len(self.source.steps) > 1:
            curve = self.curve()
            yield rewards_over_steps(curve, self.source.agents), "Mean credit of each agent over training steps", curve
        if len(self.source.steps) > 1 and "turn" in self.turns.columns:
            calls = self.calls()
            yield calls_over_steps(calls), CALLED, calls

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        told = self._told(self._tables(self.turns), {})
        display(HTML(beside(f"<p>{escape(self.source.title)}, step {self.step}</p>{told}")))
        for figure in (self.figure(), *(figure for figure, *_ in self._curves())):
            display(figure)
        counts = table_html(credit_counts(self.turns), f"Rows by agent and credit, step {self.step}")
        numbers = numbers_html(self.table, self.advice, self.step) + folded("The numbers behind this figure", counts)
        display(HTML(beside(numbers + key_html("rewards", self.table.columns))))
