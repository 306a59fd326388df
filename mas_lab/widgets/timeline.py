"""Timeline: how long a step takes under a schedule of rollouts and updates, and which engine waits.

It plays the rows that a team has made on the simulated clock of `train.overlap`. Leaves out: the clock itself, and what
age does to learning (docs/asynchronous.md).
"""

from collections.abc import Collection
from dataclasses import replace
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from mas_lab.arguments import check_arguments
from mas_lab.train.overlap import overlap
from mas_lab.widgets.document import beside, document, escape, table_html, write
from mas_lab.widgets.drawing import svg
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly

LANES = {"sample": "samples", "learn": "learns"}


class Timeline:
    """Show when each engine samples and learns, a lane per engine.

    >>> lab.Timeline("runs/math", lab.overlap(2, lab.Costs(replicas={"solver": 2})))

    Args:
        x: A table of turns with advantages, one report or several, a run, or its path.
        schedule: Bound on the age, and the costs. Staleness 0: rollouts wait for updates.
        frozen: Names of policies that do not learn.
        steps: Number of steps to draw; the steps of `x` are repeated in turn.
        epochs: Passes of the update over the rows.
        minibatches: Optimizer steps per pass.

    Attributes:
        events: When each engine was busy: `lane`, `step`, `policy`, `kind`, `version`, `start` and `end` in seconds.
        seconds: Mean seconds of a step, once the engines are at work.
        table: A row per engine: `lane`, and the shares of that time in which it is `busy` and `idle`.

    Raises:
        TableError: `x` is empty or lacks a column.
    """

    def __init__(
        self,
        x: Any,
        schedule: overlap = overlap(0),  # noqa: B008 - a frozen value
        frozen: Collection[str] = (),
        steps: int = 12,
        epochs: int = 1,
        minibatches: int = 1,
    ):
        check_arguments(Timeline.__init__, locals(), "Timeline", steps=1, epochs=1, minibatches=1)
        self.source = Source(x)
        self.tables = [self.source.turns(step) for step in self.source.some_steps(steps)]
        self.schedule, self.frozen, self.steps, self.passes = schedule, frozen, steps, (epochs, minibatches)
        self._speakers = list(dict.fromkeys(chain.from_iterable(table["policy"] for table in self.tables)))
        self.policies = [name for name in self._speakers if name not in frozen]
        played, cycle = self._events(schedule)
        self.events = played[played["step"] < steps]
        (_, self.seconds), self.table = _span(played, cycle), _shares(played, cycle)

    def __repr__(self) -> str:
        return f"Timeline({self.source.title}, {self.schedule!r}: {self.seconds:.3g} s per step)"

    def _events(self, schedule: overlap) -> tuple[pd.DataFrame, int]:
        """Return the events of two rounds, and the steps of a round, in which each table is played equally often.

        What is measured is the second round. Then rollouts still go on, `staleness` steps ahead of the updates.
        """
        found, tables = [], len(self.tables)
        cycle = tables * ceil(max(self.steps, schedule.staleness) / tables)
        for step in range(2 * cycle + schedule.staleness):
            turns = self.tables[step % len(self.tables)]
            schedule, events = schedule.after(step, turns, self.policies, *self.passes)
            found.append(events)
        events = pd.concat(found, ignore_index=True)
        engine = "one engine" if schedule.costs.shared else events["policy"]
        events.insert(0, "lane", engine + " " + events["kind"].map(LANES))
        return events, cycle

    def choices(self, staleness: int = 1, replicas: int = 2) -> pd.DataFrame:
        """Return what other engines and schedules would give, the slowest first.

        Args:
            staleness: That of the overlapped choices.
            replicas: Number of engines of the policy that gets more of them.

        Returns:
            A row per choice: `seconds` of a step, and the idle share of each policy's sampler and of its learner. Under
            one engine, the time that it spends on other policies counts as idle.
        """
        costs, waits = self.schedule.costs, overlap(0)
        apart = {"one engine": replace(costs, shared=True), "an engine each": replace(costs, shared=False)}
        found = {
            f"{name}, {word}": replace(one, costs=own)
            for name, own in apart.items()
            for word, one in (("synchronous", waits), (f"staleness {staleness}", overlap(staleness)))
        }
        for policy in self._speakers:
            more = replace(apart["an engine each"], replicas={**costs.replicas, policy: replicas})
            found[f"the same, {replicas} replicas of {policy}"] = overlap(staleness, more)
        rows = []
        for choice, schedule in found.items():
            events, cycle = self._events(schedule)
            own = events.assign(lane="idle: " + events["policy"] + " " + events["kind"].map(LANES))
            idle = _shares(own, cycle).set_index("lane")["idle"]
            rows.append({"choice": choice, "seconds": _span(events, cycle)[1], **idle})
        return pd.DataFrame(rows).sort_values("seconds", ascending=False, ignore_index=True)

    def figure(self) -> Figure:
        """Draw `events`, see `engine_lanes`."""
        return engine_lanes(self.events)

    def to_html(self, path: str | Path) -> Path:
        """Write the page to `path` and return it."""
        return write(path, document("Timeline", self._body()))

    def _body(self) -> str:
        parts = [f"<p>{escape(repr(self))}</p>", svg(self.figure())]
        parts += [table_html(self.table, "share of the time in which each engine is busy")]
        others = self.choices(max(1, self.schedule.staleness))
        return "".join([*parts, table_html(others, "other engines and schedules")])

    def _repr_html_(self) -> str:
        return beside(self._body())


def engine_lanes(events: pd.DataFrame) -> Figure:
    """Draw a lane per engine over simulated seconds, with a colour for each policy; updates are paler."""
    figure, lanes = Figure(), list(dict.fromkeys(events["lane"]))
    shades = colors(events["policy"].unique())
    for (policy, kind), own in events.groupby(["policy", "kind"], sort=False):
        x = [value for ends in zip(own["start"], own["end"], strict=True) for value in (*ends, None)]
        y = [value for lane in own["lane"] for value in (-lanes.index(lane), -lanes.index(lane), None)]
        figure.add_scatter(
            x=x, y=y, mode="lines", name=for_plotly(f"{policy} {LANES[kind]}"), hoverinfo="x+name",
            line={"color": shades[policy], "width": 14}, opacity=1.0 if kind == "sample" else 0.45,
        )  # fmt: skip
    names = {"tickvals": [-place for place in range(len(lanes))], "ticktext": list(map(for_plotly, lanes))}
    figure.update_layout(**{**LAYOUT, "margin": LAYOUT["margin"] | {"l": 140}}, height=150 + 34 * len(lanes))
    return figure.update_yaxes(**names).update_xaxes(title_text="simulated seconds")


def _span(events: pd.DataFrame, cycle: int) -> tuple[tuple[float, float], float]:
    """Return start and end of the second round, by the last events of the rounds, and its seconds per step."""
    ends = events.groupby("step")["end"].max()
    start, end = ends[cycle - 1], ends[2 * cycle - 1]
    return (start, end), (end - start) / cycle


def _shares(events: pd.DataFrame, cycle: int) -> pd.DataFrame:
    (start, end), _ = _span(events, cycle)
    inside = (events["end"].clip(upper=end) - events["start"].clip(lower=start)).clip(lower=0)
    busy = inside.groupby(events["lane"], sort=False).sum() / (end - start)
    return pd.DataFrame({"lane": busy.index, "busy": busy.to_numpy(), "idle": 1 - busy.to_numpy()})
