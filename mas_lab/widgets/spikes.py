"""SpikeInspector: gradient norms over training, and a spike opened to agent, group, sample and token.

The page is client-side: a chart whose spikes are buttons, and the anatomy of the one chosen. Leaves out: the rule and
the shares themselves (`spike_rule`, `diagnostics`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.cells.advantages import in_words, listed
from mas_lab.explain.spike_rule import SpikeRule, SpikeWatch, spike_scores, spike_steps
from mas_lab.table import TableError, require
from mas_lab.widgets.document import beside, document, escape, frame, live_or_static, table_html, write
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.peaks import unmarked_peaks
from mas_lab.widgets.source import Source
from mas_lab.widgets.svg import picture
from mas_lab.widgets.text import for_plotly, visible, visible_data

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

READ = ["step", "optimizer_step", "policy", "agent", "grad_norm", "policy_norm", "policy_norm_clipped", "skipped"]
SAMPLE = ["agent", "policy", "task", "group", "turn", "prompt", "completion", "completion_ids", "credit", "center",
          "scale", "advantage"]  # fmt: skip
WHOLE = "#767676"
"""The colour of a policy's own norm, beside its agents' colours."""


def norm_curves(scored: pd.DataFrame, agents: Sequence[str], clipped: pd.DataFrame | None = None) -> "Figure":
    """Gradient norms before clipping over optimizer steps, spikes marked: a line per agent, and per policy of several.

    `scored`: `spike_scores(stats)`. `clipped`: the statistics, to show what clipping left of the policies' norms.
    """
    from mas_lab.widgets.picture import Figure

    figure, shades = Figure(), colors(agents)
    scored = scored.assign(place=places(scored))
    for (policy, agent), own in without_repeats(scored).groupby(["policy", "agent"], sort=False):
        shade, x = shades.get(agent, WHOLE), own["place"].to_numpy()
        name = for_plotly(_named(policy, agent))
        line = {"color": shade, "width": 2 if agent else 3}
        figure.add_scatter(
            x=x, y=own["norm"].where(own["norm"] > 0), name=name, mode="lines", line=line, text=_judged(own),
            hovertemplate="%{y:.3g}<br>%{text}",
        )  # fmt: skip
        high = own["spike"].to_numpy()
        marker = {"color": shade, "size": 12, "symbol": "diamond-open", "line": {"width": 2}}
        figure.add_scatter(
            x=x[high], y=own["norm"][high], mode="markers", marker=marker, showlegend=False, name=f"spike of {name}"
        )
    if clipped is not None:
        for policy, own in clipped.assign(place=places(clipped)).groupby("policy", sort=False):
            shade = shades.get(own["agent"].iloc[0], WHOLE) if own["agent"].nunique() == 1 else WHOLE
            own = own.drop_duplicates(["step", "optimizer_step"])
            line, name = {"color": shade, "width": 1, "dash": "dot"}, for_plotly(f"{policy}, after clipping")
            norms = own["policy_norm_clipped"].astype(float)
            figure.add_scatter(x=own["place"], y=norms, name=name, mode="lines", line=line)
    figure.update_layout(**LAYOUT, xaxis_title="optimizer step", yaxis_title="gradient norm (log scale)")
    figure.update_yaxes(type="log")
    return figure


def places(stats: pd.DataFrame) -> pd.Series:
    """Where each row stands on an axis of the run's optimizer steps, from 0: an agent that is not called in each of
    them has no norm there."""
    return stats.groupby([name for name in ("step", "optimizer_step") if name in stats.columns]).ngroup()


def _judged(own: pd.DataFrame) -> list[str]:
    """What the rule says of each norm."""
    return [
        "still warming up" if np.isnan(score) else f"{score:+.1f} robust standard deviations from {usual:.3g}"
        for usual, score in zip(own["usual"], own["score"], strict=True)
    ]


def without_repeats(scored: pd.DataFrame) -> pd.DataFrame:
    """`spike_scores` without the norm of a whole policy where it has one agent: it is that agent's norm."""
    agents = scored[scored["agent"] != ""].groupby("policy")["agent"].nunique()
    return scored[(scored["agent"] != "") | (scored["policy"].map(agents) != 1)]


def _named(policy: str, agent: str) -> str:
    return f"{policy}, all" if not agent else agent if agent == policy else f"{policy}: {agent}"


def share_bars(spike: Mapping[str, Any], turns: pd.DataFrame, agents: Sequence[str], most: int = 20) -> "Figure":
    """The samples of one spike with the largest shares of the gradient, in their agents' colours."""
    import plotly.graph_objects as go

    from mas_lab.widgets.picture import Figure

    shades = colors(agents)
    top = sorted(spike["rows"].items(), key=lambda item: -abs(item[1]))[:most][::-1]
    rows = turns.iloc[[int(row) for row, _ in top]]
    names = [for_plotly(f"row {row} · {agent}") for (row, _), agent in zip(top, rows["agent"], strict=True)]
    figure = Figure(go.Bar(x=[share for _, share in top], y=names, orientation="h",
                              marker_color=[shades[agent] for agent in rows["agent"]]))  # fmt: skip
    title = "share of the policy's gradient (all rows sum to 1)" if spike.get("exact", True) else PROXY
    figure.update_layout(**LAYOUT, xaxis_title=title,
                         yaxis_title="sample", height=120 + 22 * len(top))  # fmt: skip
    return figure


def anatomy(spike: Mapping[str, Any], turns: pd.DataFrame, source: Source) -> dict[str, Any]:
    """One record of a `SpikeWatch` with the texts behind it, as plain data: agents hold groups, groups hold samples.

    Groups and samples are sorted by the size of their share; samples beyond the watch's `samples` have neither texts
    nor tokens, and those of no consequence (below 0.1 %) are counted, not listed.
    """
    require(turns, ["agent", "completion", "completion_ids"], "SpikeInspector")
    last = max(map(int, spike["rows"]), default=-1)
    if last >= len(turns):
        raise TableError(
            f"SpikeInspector: the watch names row {last} of step {spike['step']}, and the table has {len(turns)} rows "
            "of it; give it all rows of the step, in the order in which they were trained on"
        )
    agents: dict[str, dict[str, Any]] = {}
    records = turns[[name for name in SAMPLE if name in turns.columns]].to_dict("records")
    for row, share in sorted(spike["rows"].items(), key=lambda item: -abs(item[1])):
        record = records[int(row)]
        agent = agents.setdefault(record["agent"], {"agent": visible(record["agent"]), "share": 0.0, "groups": {}})
        name = str(record.get("group", record.get("task", "")))
        group = agent["groups"].setdefault(
            name, {"group": visible(name), "share": 0.0, "rows": 0, "little": 0, "samples": []}
        )
        for level in (agent, group):
            level["share"] += share
        group["rows"] += 1
        if row in spike["tokens"] or abs(share) >= 1e-3:
            group["samples"].append(_sample(record, row, share, spike, source))
        else:
            group["little"] += 1
    for agent in agents.values():
        agent["groups"] = sorted(agent["groups"].values(), key=lambda group: -abs(group["share"]))
    kept = ("step", "optimizer_step", "policy", "agent", "agents", "norm", "usual", "score", "norms", "without",
            "baselines")  # fmt: skip
    ordered = sorted(agents.values(), key=lambda agent: -abs(agent["share"]))
    told = visible_data({name: spike[name] for name in kept})
    return {**told, "exact": spike.get("exact", True), "anatomy": ordered}


def _sample(
    record: Mapping[str, Any], row: str, share: float, spike: Mapping[str, Any], source: Source
) -> dict[str, Any]:
    names = [name for name in ("credit", "center", "scale", "advantage") if name in record]
    numbers = {name: in_words(record[name]) for name in names}
    sample = {"row": int(row), "share": share, "turn": int(record.get("turn", 0)), "numbers": numbers}
    if row in spike["tokens"]:
        sample["heard"], sample["said"] = visible(record.get("prompt", "")), visible(record["completion"])
        sample["tokens"] = source.token_texts(record.get("policy", ""), record["completion_ids"])
        sample["shares"] = [round(one, 6) for one in spike["tokens"][row]]
        sample["advantages"] = listed(record.get("advantage"))
        judged = {name: advantages.get(row) for name, advantages in spike.get("judged", {}).items()}
        sample["judged"] = {name: round(value, 4) for name, value in judged.items() if value is not None}
    return sample


class SpikeInspector:
    """Gradient norms of a run, its spikes, and the anatomy of each: agent, group, sample, token.

    `x`: a run or its path, a report or several, or the statistics of `update`. The anatomy comes from a `SpikeWatch`:
    the one that a run's checkpoint remembers, or `watch`; without one, the page shows where the spikes are, by the same
    rule with `warmup`, `window` and `threshold`. The page opens the `most` highest spikes.
    """

    def __init__(
        self,
        x: Any,
        watch: SpikeWatch | None = None,
        agents: Sequence[str] | None = None,
        team: Any = None,
        warmup: int = 10,
        window: int = 50,
        threshold: float = 4.0,
        most: int = 12,
    ):
        self.source = Source(x, agents)
        if team is not None:
            self.source.use_team(team)
        remembered = watch.state() if watch is not None else self.source.watched()
        rule = SpikeRule(**remembered["rule"]) if remembered else SpikeRule(warmup, window, threshold)
        self.rule = rule
        self.stats = self.source.stats(READ)
        if "step" not in self.stats.columns:
            self.stats = self.stats.assign(step=0)
        self.scores = without_repeats(spike_scores(self.stats, rule.warmup, rule.window, rule.threshold))
        """Every norm with its score by the rule, see `spike_scores`; of a policy with one agent, that agent's alone."""
        self.spikes = spike_steps(self.stats, remembered["spikes"])[:most] if remembered else []
        """The records of the watch, highest score first, with their `step` and `optimizer_step`."""

    def __repr__(self) -> str:
        found = int(self.scores["spike"].sum())
        return f"SpikeInspector({self.source.title}: {found} norms above the rule, {len(self.spikes)} spikes opened)"

    def figure(self) -> "Figure":
        """The norms over optimizer steps, spikes marked."""
        return norm_curves(self.scores, self.source.agents, self.stats if "policy_norm_clipped" in self.stats else None)

    def shares(self, number: int = 0) -> "Figure":
        """The largest samples of one spike."""
        spike = self.spikes[number]
        return share_bars(spike, self.source.turns(spike["step"]), self.source.agents)

    def data(self) -> dict[str, Any]:
        """What the page shows, as plain data."""
        agents = {visible(agent): color for agent, color in colors(self.source.agents).items()}
        peaks = unmarked_peaks(self.scores, self.rule)
        by_line = self.scores.assign(place=places(self.scores)).groupby(["policy", "agent"], sort=False)
        lines = [self._line(key, own) | {"peaks": peaks.get(key, [])} for key, own in by_line]
        opened = [anatomy(spike, self.source.turns(spike["step"], SAMPLE), self.source) for spike in self.spikes]
        return {"agents": agents, "whole": WHOLE, "lines": lines, "spikes": opened, "closed": self._why_closed()}

    def _why_closed(self) -> str:
        """Why a spike that is marked may not open."""
        if not self.spikes:
            return "not opened: nothing watched it"
        return f"not opened: the page opens the {len(self.spikes)} highest that the watch recorded"

    def _line(self, key: tuple[str, str], own: pd.DataFrame) -> dict[str, Any]:
        policy, agent = map(visible, key)
        norms = [float(f"{norm:.4g}") if np.isfinite(norm) else None for norm in own["norm"]]
        when = own[["step", "optimizer_step"]].astype(int).to_numpy().tolist()
        high = np.flatnonzero(own["spike"]).tolist()
        told = {"policy": policy, "agent": agent, "name": _named(policy, agent)}
        return told | {"norms": norms, "when": when, "at": own["place"].tolist(), "high": high}

    def _told(self) -> str:
        rule = self.rule
        return f"{self.source.title}. {RULE.format(rule.threshold, rule.window, rule.warmup)}"

    def _table(self) -> str:
        return table_html(self.scores[self.scores["spike"]], "Norms above the rule")

    def static(self) -> str:
        """The norms, the spikes, and the largest samples of the highest one, for where no script runs."""
        parts = [picture(self.figure()), self._table()]
        if self.spikes:
            spike = self.spikes[0]
            turns = self.source.turns(spike["step"], SAMPLE)
            largest = sorted(spike["rows"].items(), key=lambda item: -abs(item[1]))[:FEW]
            rows = turns.iloc[[int(row) for row, _ in largest]]
            shown = rows[[name for name in ("agent", "task", "turn", "prompt", "completion") if name in rows]]
            shown.insert(0, "share", [share for _, share in largest])
            title = f"The spike with the highest score: step {spike['step']}, {_named(spike['policy'], spike['agent'])}"
            exact = "shares of the gradient" if spike.get("exact", True) else PROXY
            parts.append(table_html(shown, f"{title}, norm {spike['norm']:.3g}; its samples with the largest {exact}"))
        return "".join([*parts, f"<p><small>{escape(self._told())}</small></p>"])

    def page(self) -> str:
        table = self._table()
        body = (
            f'<p class="quiet">{escape(self._told())}</p>'
            f'<div id="spikes">{table}</div>'  # where no script replaces it
            f"<details><summary>The numbers of the spikes</summary>{table}</details>"
        )
        return document("Gradient spikes", body, self.data(), scripts=("spikes.js",))

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        return write(path, self.page())

    def _repr_html_(self) -> str:
        return live_or_static(frame(self.page(), repr(self), height=760), beside(self.static()))


FEW = 5
"""Samples of a spike that its static form tells."""
PROXY = "proxy, not a share of the gradient: part of the summed |advantage| x weight x (1 - p)"
RULE = (
    "A norm is a spike if its logarithm lies more than {} robust standard deviations above the median of the {} norms "
    "before it, once there were {}. A share is the projection on the policy's gradient before clipping: exact, summing "
    "to 1 over all tokens of the policy, unless a spike says that its shares are a proxy; a hatched bar pulls against "
    "the step. A small ring is a peak taller than a marked one that the rule does not mark, with its reason."
)
