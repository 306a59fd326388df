"""RewardInspector: show what each agent earned, and how each baseline would judge it.

Figures come from pure functions of tables; the instrument is around them. This module leaves out gradients (`spikes`)
and texts (`rollouts`).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.cells.credits import own_return
from mas_lab.cells.normalization import is_flat
from mas_lab.display.documented_frame import documented, key_html
from mas_lab.explain.moments import baseline_unit, both_baselines, inflation, pooled_inflation
from mas_lab.explain.rejudge import rejudge
from mas_lab.explain.wrong_way import wrong_way
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.table import TableError, ages, column, in_batch, require
from mas_lab.train.verdict import harmed_agent, rows_gone_wrong
from mas_lab.widgets.document import FIGURES, beside, document, escape, figure_html, folded, table_html, write
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.live import interact
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly

HOLLOW = {"color": "rgba(0,0,0,0)", "line": {"color": NEUTRAL, "width": 1.5}}
BINS = 40
NO_BREAK = "\N{NO-BREAK SPACE}"


def two_baselines(turns: pd.DataFrame, agents: Sequence[str], chosen: pd.Series | None = None) -> Figure:
    """Draw the same credits under two baselines, in one column per agent.

    The upper row shows the credits with the agent's own mean and the global mean. The lower row shows the advantages
    under the global baseline and under another one, in standard deviations (SD). These are the `chosen` advantages of
    the rows in the batch, or those of the agent's own baseline.
    """
    rows = turns[in_batch(turns)].reset_index(drop=True)
    sides = both_baselines(rows)
    values = {"credit": rows["credit"], "global": sides["global"], "other": sides["agent"]}
    if chosen is not None:
        values["other"] = chosen.reset_index(drop=True)
    other = "own baseline" if chosen is None else "chosen baseline"
    edges = [np.histogram_bin_edges(values["credit"], BINS),
             np.histogram_bin_edges(pd.concat([values["other"], values["global"]]), BINS)]  # fmt: skip
    shades, unit = colors(agents), baseline_unit(rows)
    # The global baseline is a mean over episodes, or over rows in a tree.
    everybody = (rows.groupby(unit)["credit"].mean() if unit else rows["credit"]).mean()
    spoke = set(rows["agent"])
    titles = [for_plotly(agent) + ("" if agent in spoke else "<br>did not speak") for agent in agents]
    figure = make_subplots(rows=2, cols=len(agents), subplot_titles=titles, vertical_spacing=0.2)
    for place, agent in enumerate(agents, start=1):
        own, fill = rows["agent"] == agent, {"color": shades[agent], "opacity": 0.6}
        for name, row, marker, label in (("credit", 1, fill, agent), ("other", 2, fill, other),
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
    for row, title in enumerate(("credit", "advantage"), start=1):
        span = [edges[row - 1][0], edges[row - 1][-1]]
        figure.update_xaxes(title_text=title, title_standoff=4, range=span, row=row)
    figure.update_yaxes(rangemode="tozero").update_yaxes(title_text="rows", col=1)
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, barmode="overlay", height=520)
    return figure.update_layout(legend_y=1.1)


def wrong_over_steps(wrong: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw each agent's own reward and its reinforced wrong answers over steps, a panel per agent.

    `wrong` has `step`, `agent`, `own_reward` and `reinforced`.
    """
    columns, spoke, shades = min(4, len(agents)), set(wrong["agent"]), colors(agents)
    titles = [for_plotly(agent) + ("" if agent in spoke else ", never spoke") for agent in agents]
    figure = make_subplots(rows=-(-len(agents) // columns), cols=columns, subplot_titles=titles, shared_yaxes=True,
                           shared_xaxes=True, vertical_spacing=min(0.16, columns / len(agents)))  # fmt: skip
    lines = (("own_reward", "own reward", {}), ("reinforced", "wrong answers that were reinforced", {"dash": "dot"}))
    for place, agent in enumerate(agents):
        own = wrong[wrong["agent"] == agent]
        for name, label, line in lines:
            figure.add_scatter(
                x=own["step"].astype(float), y=own[name], name=label, legendgroup=name, showlegend=place == 0,
                mode="lines+markers", marker={"size": 4},
                line=line | {"color": shades[agent] if name == "own_reward" else NEUTRAL},
                row=place // columns + 1, col=place % columns + 1,
            )  # fmt: skip
    layout = LAYOUT | {"margin": {"l": 50, "r": 20, "t": 80, "b": 50}}
    figure.update_layout(**layout, height=160 + 170 * -(-len(agents) // columns), legend_y=1.15)
    return figure.update_xaxes(title_text="training step", row=-(-len(agents) // columns))


WHOSE = {"the task": ("task",), "the agent in the task": ("task", "agent"), "the agent in the batch": ("agent",),
         "nobody": "none"}  # fmt: skip
"""Whose mean, or whose deviation, an agent is judged by: label -> the argument `center` or `scale` of cell 3."""
GLOBAL, OWN = ("the task", "the task"), ("the agent in the task", "the agent in the task")
"""Whose mean and whose deviation are compared with the global ones at first: those of `dr_mas`."""
WRONG = "Each agent's own reward, and the share of its wrong answers that were reinforced, over training steps"


def reward_table(turns: pd.DataFrame, agents: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row per agent: how often it spoke, its credits, and the effect of each baseline.

    `rows`: number of its rows. `spoke`: share of episodes in which it spoke. `mean`, `std` (population) and quartiles
    are those of its credits. `valid`: share of its valid rows. `lone`, `flat`: share of its rows whose comparison group
    has one row, or only equal credits. `malformed`, if tools were offered: share of its rows with a malformed tool
    call. `age`, with `staleness`: mean age of its rows in steps. `b`, `v`, `F`, `signal` and `peerless` are over all of
    its rows, see `pooled_inflation`.
    Groups and episodes of different steps are kept apart. Of `agents` each has a row, also a silent one.
    """
    require(turns, ["task", "episode", "credit", "group", "agent"], "RewardInspector")
    rows = turns[in_batch(turns)]
    step = ["step"] if "step" in rows.columns else []
    groups = rows.groupby([*step, "group"], sort=False, observed=True)["credit"]
    size, flat = groups.transform("size"), is_flat(groups.transform("min"), groups.transform("max"))
    rows = rows.assign(
        lone=(size == 1).astype(float), flat=((size > 1) & flat).astype(float),
        valid=column(rows, "valid").astype(float),
        episode=rows.groupby([*step, "episode"], sort=False, observed=True).ngroup(),
    )  # fmt: skip
    if "call_status" in rows:
        rows["malformed"] = (~rows["call_status"].isin(["none", "ok"])).astype(float)
    if (age := ages(rows, "RewardInspector")) is not None:
        rows["age"] = age
    split = rows.groupby("agent", sort=False, observed=True)
    quartiles = split["credit"].quantile([0.25, 0.5, 0.75]).unstack().set_axis(["25 %", "50 %", "75 %"], axis=1)
    moments = split["credit"].agg(rows="size", mean="mean", std=lambda credit: credit.std(ddof=0))
    moments.insert(1, "spoke", split["episode"].nunique() / rows["episode"].nunique())
    shares = split[[name for name in ("valid", "lone", "flat", "malformed", "age") if name in rows]].mean()
    table = moments.join([shares, quartiles]).reset_index()
    pooled = pooled_inflation(inflation(rows, once_per=baseline_unit(rows)), ["agent"])
    table = table.merge(pooled.drop(columns="n"), on="agent", how="left")
    if agents is not None:
        table = table.set_index("agent").reindex(pd.Index(agents, name="agent")).reset_index()
        table = table.fillna({"rows": 0, "spoke": 0.0}).astype({"rows": int})
    return documented(table, "rewards")


def credit_counts(turns: pd.DataFrame) -> pd.DataFrame:
    """Return how many rows of each agent have each credit: columns `agent`, `credit`, `rows`."""
    rows = turns[in_batch(turns)]
    counted = rows.assign(credit=rows["credit"].round(2)).groupby(["agent", "credit"], sort=False).size()
    return counted.rename("rows").reset_index().sort_values(["agent", "credit"], ignore_index=True)


def comparison(before: pd.DataFrame, after: pd.DataFrame, mean: str, deviation: str) -> str:
    """Return HTML on two sides of `rejudge`: what changes most in a sentence, each number on both sides, a legend."""
    before, after = before.set_index("agent"), after.set_index("agent")
    most = after["other_sign"].idxmax()
    change = f"{most} changes most: {after.loc[most, 'other_sign']:.0%} of its rows get the other sign"
    wrong = [side.loc[most, "wrong_way"] for side in (before, after)]
    if wrong[0] == wrong[0]:
        change += f", and {wrong[1]:.0%} of its advantage goes the wrong way instead of {wrong[0]:.0%}"
    if not after["other_sign"].any():
        change = "no row gets the other sign"
    table = after[["rows", "other_sign", "without_peer"]].copy()
    for name in ("silent", "size", "wrong_way", "reinforced"):
        pairs = zip(before[name], after[name], strict=True)
        cells = (f"{a:.2f} → {b:.2f} ({b - a:+.2f})".replace(" (+nan)", "").replace("nan", "–") for a, b in pairs)
        table[name] = [cell.replace(" ", NO_BREAK) for cell in cells]
    caption = "From the global baseline (mean and deviation of the task) to the chosen one, and the difference"
    sentence = f"By the mean of {mean}, deviation of {deviation}, {change}.".replace("%", " %")
    table = table.reset_index()
    return f"<p>{escape(sentence)}</p>{table_html(table, caption)}{key_html('rejudge', table.columns)}"


class RewardInspector:
    """Show for each agent its credits, how often it spoke, and how the global and its own baseline would judge it.

    A notebook shows the inspector as it is. Use `.figure()`, `.table` and `.to_html(path)`.

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
        self.table = reward_table(self.turns, agents=self.source.agents)
        """One row per agent, see `reward_table`."""

    def __repr__(self) -> str:
        return f"RewardInspector({self.source.title}, step {self.step}: {', '.join(self.source.agents)})"

    def figure(self, mean: str | None = None, deviation: str | None = None) -> Figure:
        """Draw the credits of the step, and the advantages under the global baseline and another one.

        Args:
            mean: Whose mean the other baseline subtracts, a key of `WHOSE`. `None` takes the agent's own baseline.
            deviation: Whose standard deviation it divides by, likewise.

        Returns:
            Plotly figure with one column per agent.
        """
        chosen = None
        if mean and deviation:
            judged = self._side("chosen", mean, deviation).advantages(self.turns)
            chosen = judged["advantage"][in_batch(judged)]
        return two_baselines(self.turns, self.source.agents, chosen)

    def wrong(self) -> pd.DataFrame:
        """Compute each agent's mean own reward and its reinforced wrong answers, at up to `CURVE_STEPS` steps.

        Returns:
            Table with the columns `step`, `agent`, `own_reward`, and `wrong_way` and `reinforced` of `lab.wrong_way`.
        """
        read = ["step", "task", "episode", "agent", "local_reward", "advantage", "probe"]
        turns = self.source.some_turns(read)
        own = turns[in_batch(turns)].groupby(["step", "agent"], sort=False)["local_reward"].mean().rename("own_reward")
        table = pd.DataFrame(wrong_way(turns)).drop(columns=["recipe", "wrong"])
        return table.merge(own.reset_index(), on=["step", "agent"])

    def judged(self, mean: str = "the agent in the task", deviation: str = "the agent in the task") -> pd.DataFrame:
        """Judge the rows of the step by `grpo` ("global") and by another baseline ("chosen"); it needs no model.

        The credit is the episode's return, or the agent's own return if the team earned nothing.

        Args:
            mean: Whose mean is subtracted, a key of `WHOSE`.
            deviation: Whose standard deviation divides, a key of `WHOSE`.

        Returns:
            Table with a row per agent and side, see `lab.rejudge`.

        Raises:
            KeyError: A label is not in `WHOSE`.
            TableError: The table lacks a column, or its episodes branch.
        """
        return rejudge(self.turns, [self._side("global", *GLOBAL), self._side("chosen", mean, deviation)])

    def _side(self, name: str, mean: str, deviation: str) -> Recipe:
        """Return the recipe that judges by the mean and the deviation of two labels."""
        unit = baseline_unit(self.turns)
        labels = {"center": mean, "scale": deviation}
        parts = {part: WHOSE[label] for part, label in labels.items()}
        once = {part: unit if label == "the task" else None for part, label in labels.items()}
        side = RECIPES["dr_mas"].replace(name=name, once_per=once, **parts)
        return side if self.turns["team_reward"].any() else side.replace(credit=own_return())

    def _menus(self) -> str:
        """Return HTML: two menus, and below them the comparison with each of their choices."""
        pairs = {", ".join(pair): pair for pair in product(WHOSE, WHOSE)}
        sides = [self._side("global", *GLOBAL), *(self._side(name, *pair) for name, pair in pairs.items())]
        judged = dict(list(rejudge(self.turns, sides).groupby("recipe")))
        parts = []
        for name, pair in pairs.items():
            compared = comparison(judged["global"], judged[name], *pair)
            parts.append(f'<div data-whose="{name}"{"" if pair == OWN else " hidden"}>{compared}</div>')
        for what, own in zip(("mean", "deviation"), OWN, strict=True):
            options = "".join(f"<option{' selected' * (label == own)}>{label}</option>" for label in WHOSE)
            parts.insert(0, f'<label class="whose">whose {what}? <select>{options}</select></label> ')
        return "".join([parts[1], parts[0], *parts[2:]])

    def to_html(self, path: str | Path) -> Path:
        """Write one standalone HTML file that works offline.

        Args:
            path: The file to write. Missing parent folders are created.

        Returns:
            The path of the file.
        """
        agents = self.source.agents
        described = f"Credits, and advantages in standard deviations, under two baselines, at step {self.step}"
        drawn = [figure_html(*one) for one in self._harm()]
        drawn.append(figure_html(self.figure(), described, credit_counts(self.turns), 60 + 125 * len(agents)))
        menus = f"<h2>Another baseline</h2>{self._menus()}" if self._can_be_judged else ""
        body = f"{self._first()}{''.join(drawn)}{menus}{self._numbers()}"
        return write(path, document("Who earned what", body, scripts=(*FIGURES, "rewards.js")))

    def _first(self) -> str:
        """Return the verdict on the run or table as HTML, and the rows behind it, folded."""
        rows = ""
        if self.source.judged and (worst := harmed_agent(*self.source.judged)) is not None:
            told = f"Rows of {worst.name} with the largest advantages of the wrong sign"
            rows = folded("The rows", table_html(rows_gone_wrong(self.source.judged[0], worst.name), told))
        silent = self.source.silent(self.step, self.turns["agent"])
        title = f"{self.source.title}, step {self.step}. {silent}"
        return f'<p class="quiet">{escape(title)}</p>{self.source.verdict}{rows}'

    def _harm(self) -> Iterator[tuple[Figure, str, pd.DataFrame, int]]:
        """Yield the figures of what goes the wrong way, each with a description, its numbers and its least width."""
        if {"local_reward", "advantage"} <= set(self.turns.columns):
            wrong = self.wrong()
            yield wrong_over_steps(wrong, self.source.agents), WRONG, wrong, 60 + 170 * min(4, len(self.source.agents))

    def _numbers(self) -> str:
        """Return the table of the step as HTML."""
        table = table_html(self.table, f"Per agent, step {self.step}")
        return folded("Who earned what, in numbers", table + key_html("rewards", self.table.columns))

    @cached_property
    def _can_be_judged(self) -> bool:
        try:
            return bool(len(self.judged()))
        except TableError:  # a tree, or a table without rewards
            return False

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display
        from ipywidgets import Dropdown

        def compare(mean: str, deviation: str) -> None:
            display(self.figure(mean, deviation))
            sides = dict(list(self.judged(mean, deviation).groupby("recipe")))
            display(HTML(beside(comparison(sides["global"], sides["chosen"], mean, deviation))))

        display(HTML(beside(self._first())))
        for figure, *_ in self._harm():
            display(figure)
        if self._can_be_judged:
            menus = {name: Dropdown(options=list(WHOSE), value=own, description=f"whose {name}?")
                     for name, own in zip(("mean", "deviation"), OWN, strict=True)}  # fmt: skip
            interact(compare, **menus)
        else:
            display(self.figure())
        counts = table_html(credit_counts(self.turns), f"Rows by agent and credit, step {self.step}")
        display(HTML(beside(self._numbers() + folded("The numbers behind this figure", counts))))
