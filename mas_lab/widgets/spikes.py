"""SpikeInspector: show gradient norms over training, and open a spike down to agent, group, sample and token.

The page is client-side. It has the figure of the norms, whose marks open a spike, the anatomy of the chosen spike, and
the episodes of its largest samples. Agents hold groups, groups hold samples, samples hold tokens, each with its share
of the gradient. This module leaves out the rule and the shares (`spike_rule`, `diagnostics`).
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure

from mas_lab.explain.spike_rule import SpikeRule, SpikeWatch, spike_scores, spike_steps
from mas_lab.table import TableError, require
from mas_lab.widgets import rollouts as rollout_page
from mas_lab.widgets.document import FIGURES, Framed, document, escape, figure_html, table_html
from mas_lab.widgets.episodes import Reading, in_words, index_of, listed, page_data, spike_shares
from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import escape_control_chars as escaped
from mas_lab.widgets.text import for_plotly, visible_data

SAMPLE = ["agent", "policy", "task", "group", "turn", "prompt", "completion", "completion_ids", "credit", "center",
          "scale", "advantage", "episode", "node", "candidate"]  # fmt: skip
RECORDED = ("step", "optimizer_step", "policy", "agent", "agents", "norm", "usual", "score", "norms", "without",
        "baselines")  # fmt: skip
LIMIT, EPISODES = 1_500_000, 64
"""Maximum bytes of episodes, and number of episodes, on the page of spikes."""

Spike = Mapping[str, Any]


def anatomy(spike: Spike, turns: pd.DataFrame, source: Source) -> dict[str, Any]:
    """Return one record of a `SpikeWatch` as plain data, together with its prompts and completions.

    Agents hold groups and groups hold samples, each sorted by the size of its share. Only the `samples` largest samples
    of the watch have texts and tokens. Other samples below 0.1 % are counted, not listed.
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
        name = str(record.get("group", record.get("task", "")))
        agent = agents.setdefault(record["agent"], {"agent": escaped(record["agent"]), "share": 0.0, "groups": {}})
        new = {"group": escaped(name), "share": 0.0, "rows": 0, "little": 0, "samples": []}
        group = agent["groups"].setdefault(name, new)
        agent["share"] += share
        group["share"] += share
        group["rows"] += 1
        if row in spike["tokens"] or abs(share) >= 1e-3:
            group["samples"].append(_sample(record, row, share, spike, source))
        else:
            group["little"] += 1
    for agent in agents.values():
        agent["groups"] = _by_share(agent["groups"])
    fields = visible_data({name: spike[name] for name in RECORDED})
    return {**fields, "exact": spike.get("exact", True), "anatomy": _by_share(agents)}


def _by_share(parts: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(parts.values(), key=lambda part: -abs(part["share"]))


def _sample(record: Mapping[str, Any], row: str, share: float, spike: Spike, source: Source) -> dict[str, Any]:
    numbers = {name: in_words(record[name]) for name in ("credit", "center", "scale", "advantage") if name in record}
    sample = {"row": int(row), "share": share, "turn": int(record.get("turn", 0)), "numbers": numbers}
    if "episode" in record:  # the fields of an address of the RolloutViewer
        sample["at"] = {name: escaped(str(record[name])) for name in ("episode", "node", "candidate") if name in record}
    if row in spike["tokens"]:
        judged = {name: advantages.get(row) for name, advantages in spike.get("judged", {}).items()}
        sample |= {
            "heard": escaped(record.get("prompt", "")), "said": escaped(record["completion"]),
            "tokens": source.token_texts(record.get("policy", ""), record["completion_ids"]),
            "shares": [round(one, 6) for one in spike["tokens"][row]], "advantages": listed(record.get("advantage")),
            "judged": {name: round(value, 4) for name, value in judged.items() if value is not None},
        }  # fmt: skip
    return sample


def episodes_of(spikes: Sequence[Spike], source: Source) -> dict[str, Any] | None:
    """Return the data for `mount` of the page's RolloutViewer, or `None` if the turns name no episodes.

    It takes the episode of each spike's largest sample, then of each spike's second, and so on, while there is room.
    """
    steps = {spike["step"]: source.turns(spike["step"]) for spike in spikes}
    if not steps or any(not set(turns.columns) >= {"episode", "agent", "completion"} for turns in steps.values()):
        return None
    opened = Source(pd.concat([turns.assign(step=step) for step, turns in steps.items()]), source.agents)
    index = index_of(opened)
    reading = Reading(source, shares=spike_shares(spikes))
    names = list(zip(index["step"], index["episode"], strict=True))
    largest = []
    for spike in spikes:
        rows = sorted(map(int, spike["tokens"]), key=lambda row: -abs(spike["rows"][str(row)]))
        largest.append([(spike["step"], steps[spike["step"]]["episode"].iloc[row]) for row in rows])
    named = dict.fromkeys(one for rank in zip_longest(*largest) for one in rank if one is not None)
    places = [names.index(one) for one in named][:EPISODES]
    data = page_data(index, lambda place: reading.with_groups(*names[place]), places, LIMIT)
    data["shades"].sort(key=lambda name: name != "share")  # "share" comes first here
    agents = {escaped(agent): color for agent, color in colors(source.agents).items()}
    return {**data, "agents": agents, "runs": [opened.title], "at": ""}


READ = ["step", "optimizer_step", "policy", "agent", "grad_norm", "policy_norm", "policy_norm_clipped"]

SCRIPTS = (*FIGURES, *rollout_page.SCRIPTS, "spikes.js")
POLICY = NEUTRAL
"""Colour of a policy's own norm, beside the colours of its agents."""
PROXY = "proxy, not a share of the gradient: part of the summed |advantage| x weight x (1 - p)"


def norm_curves(scored: pd.DataFrame, agents: Sequence[str], opened: Sequence[Mapping[str, Any]] = ()) -> Figure:
    """Draw gradient norms before clipping over optimizer steps, with spikes marked.

    There is a line per agent, and a line per policy with several agents. `scored`: `spike_scores(stats)`. The points of
    a spike in `opened` have its place in this list as `customdata`; other points have -1.
    """
    figure, shades = Figure(), colors(agents)
    known = {(spike["policy"], spike["step"], spike["optimizer_step"]): at for at, spike in enumerate(opened)}
    scored = without_repeats(scored.assign(place=places(scored)))
    for (policy, agent), own in scored.groupby(["policy", "agent"], sort=False):
        shade, name = shades.get(agent, POLICY), for_plotly(named(policy, agent))
        rows = own.to_dict("records")
        keys = [(policy, row.get("step"), row["optimizer_step"]) for row in rows]
        opens = [known.get(key, -1) if row["spike"] else -1 for key, row in zip(keys, rows, strict=True)]
        own = own.assign(opens=opens, told=list(map(_told, rows)), norm=own["norm"].where(own["norm"] > 0))
        high = own[own["spike"]]
        signs = ["diamond" if place >= 0 else "diamond-open" for place in high["opens"]]
        line = {"color": shade, "width": 2 if agent else 3}
        marker = {"color": shade, "size": 12, "symbol": signs, "line": {"width": 2}}
        for points, look in (
            (own, {"mode": "lines+markers", "marker": {"size": 4}, "line": line, "name": name}),
            (high, {"mode": "markers", "marker": marker, "name": f"spike of {name}", "showlegend": False}),
        ):
            x, customdata = points["place"].tolist(), points["opens"].tolist()  # lists, which the page's script reads
            figure.add_scatter(
                x=x, y=points["norm"], customdata=customdata, text=points["told"], hovertemplate="%{text}", **look
            )
    figure.update_layout(**LAYOUT, xaxis_title="optimizer step", yaxis_title="gradient norm (log scale)")
    return figure.update_yaxes(type="log", dtick="D2")


def _told(row: Mapping[str, Any]) -> str:
    """Return what a point of the figure says when the mouse is over it."""
    known = row["score"] == row["score"]
    judged = f"{row['score']:.1f} times the usual norm {row['usual']:.3g}" if known else "no score yet"
    return f"step {row.get('step', 0)}, its optimizer step {row['optimizer_step']}<br>norm {row['norm']:.4g}, {judged}"


def places(stats: pd.DataFrame) -> pd.Series:
    """Return each row's place on the axis of the run's optimizer steps, from 0; a silent agent has no row there."""
    return stats.groupby([name for name in ("step", "optimizer_step") if name in stats.columns]).ngroup()


def without_repeats(scored: pd.DataFrame) -> pd.DataFrame:
    """Return `spike_scores` without the norm of a policy with one agent, because the agent's norm is the same."""
    agents = scored[scored["agent"] != ""].groupby("policy")["agent"].nunique()
    return scored[(scored["agent"] != "") | (scored["policy"].map(agents) != 1)]


def named(policy: str, agent: str) -> str:
    return f"{policy}, all" if not agent else agent if agent == policy else f"{policy}: {agent}"


class SpikeInspector(Framed):
    """Show the gradient norms of a run, its spikes, and the anatomy of each: agent, group, sample, token.

    A notebook shows the inspector as it is. The anatomy comes from a `SpikeWatch`. Without one, the page only shows
    where the spikes are.

    Args:
        x: A run or its path, one report or several, the statistics of `update` (a table, or one per step), or a live
            dashboard.
        watch: The `SpikeWatch` of the training. `None` takes what a run's newest checkpoint, an exported zip or a live
            dashboard remembers.
        agents: Names of the agents, in acting order. `None` takes them from `x`.
        team: Team whose tokenizers give tokens their text. A run's own checkpoint does so without it.

    Raises:
        RunError: If there is no readable run at the path.
        TableError: If `x` has no statistics, or lacks a column.
        TypeError: If `x` is none of the above.
        ValueError: If the watch belongs to another run.

    The rule for spikes is that of the watch, or else the default `SpikeRule()`.
    """

    def __init__(self, x: Any, watch: SpikeWatch | None = None, agents: Sequence[str] | None = None, team: Any = None):
        self.source = Source(x, agents, team)
        remembered = watch.state() if watch is not None else self.source.watched()
        self.watched = bool(remembered)
        self.rule = rule = SpikeRule(**remembered["rule"]) if remembered else SpikeRule()
        self.stats = self.source.stats(READ)
        if "step" not in self.stats.columns:
            self.stats = self.stats.assign(step=0)
        self.scores = without_repeats(spike_scores(self.stats, rule.warmup, rule.window, rule.threshold))
        """Every norm with its score by the rule, see `spike_scores`. A policy with one agent has only that agent's
        norm."""
        self.spikes = spike_steps(self.stats, remembered["spikes"])[:OPENED] if remembered else []
        """Records of the watch, highest score first, with their `step` and `optimizer_step`."""
        tallest = [remembered["tallest"]] if remembered and remembered.get("tallest") else []
        self.opened = self.spikes or spike_steps(self.stats, tallest)
        """What the page opens: the spikes, or without any the largest norm of an agent."""
        several = (one for one in self.opened if len(one["rows"]) > 1)
        self.first = next(several, self.opened[0] if self.opened else None)
        """The record that is open at first: the highest one that several rows made, since the share of a single row is
        always 100 %. `None` if nothing is opened."""

    def __repr__(self) -> str:
        found = int(self.scores["spike"].sum())
        return f"SpikeInspector({self.source.title}: {found} norms above the rule, {len(self.spikes)} spikes opened)"

    def figure(self) -> Figure:
        """Draw the norms over optimizer steps, with spikes marked.

        Returns:
            Plotly figure with a line per agent, a line per policy with several agents, and a dotted line per policy
            whose gradient was clipped.
        """
        figure = norm_curves(self.scores, self.source.agents, self.opened)
        if "policy_norm_clipped" in self.stats:
            stats = self.stats.assign(place=places(self.stats))
            for _, own in stats.drop_duplicates(["place", "policy"]).groupby("policy", sort=False):
                if (own["policy_norm_clipped"] < own["policy_norm"] * (1 - 1e-6)).any():
                    figure.add_scatter(
                        x=own["place"].tolist(), y=own["policy_norm_clipped"], mode="lines",
                        line={"color": POLICY, "width": 1, "dash": "dot"}, name="after clipping",
                        legendgroup="after clipping", showlegend=figure.data[-1].name != "after clipping",
                    )  # fmt: skip
        return figure

    def data(self) -> dict[str, Any]:
        """Collect what the page shows besides the figure.

        Returns:
            Plain data with the opened spikes, the one that is open at first, and the episodes.
        """
        return {
            "agents": {escaped(agent): color for agent, color in colors(self.source.agents).items()},
            "spikes": [anatomy(spike, self.source.turns(spike["step"], SAMPLE), self.source) for spike in self.opened],
            "above": bool(self.spikes),
            "empty": "Every norm was 0." if self.watched else "Keep the run (run=), or train with watch=SpikeWatch().",
            "first": self.opened.index(self.first) if self.first else None,
            "rollouts": episodes_of(self.opened, self.source),
        }  # fmt: skip

    def _summary(self) -> str:
        rule = self.rule
        sentence = RULE.format(rule.threshold, rule.window, rule.warmup)
        tallest = ""
        if self.opened and not self.spikes:
            one = self.opened[0]
            named_norm = f"{one['agent']}, step {one['step']}, norm {one['norm']:.3g}"
            tallest = f" Watched; no norm is above it. The tallest: {named_norm}."
        last = self.stats["step"].max()
        silent = self.source.silent(last, self.stats.loc[self.stats["step"] == last, "agent"])
        return " ".join([f"{self.source.title}. {silent} {sentence}{tallest}", *([SHARE] if self.opened else [])])

    def _table(self) -> str:
        return table_html(self.scores[self.scores["spike"]], "Norms above the rule")

    def static(self) -> str:
        """Make a picture of the norms, a table of the spikes, and the largest samples of the first opened spike.

        Returns:
            HTML for viewers in which no script runs.
        """
        from mas_lab.widgets.picture import picture

        parts = [picture(self.figure()), self._table()]
        if self.opened:
            spike = self.first
            turns = self.source.turns(spike["step"], SAMPLE)
            largest = sorted(spike["rows"].items(), key=lambda item: -abs(item[1]))[:FEW]
            rows = turns.iloc[[int(row) for row, _ in largest]]
            table = rows[[name for name in ("agent", "task", "turn", "prompt", "completion") if name in rows]]
            table.insert(0, "share", [share for _, share in largest])
            which = "A spike opened" if self.spikes else "The largest norm"
            title = f"{which}: step {spike['step']}, {named(spike['policy'], spike['agent'])}"
            exact = "shares of the gradient" if spike.get("exact", True) else PROXY
            parts.append(table_html(table, f"{title}, norm {spike['norm']:.3g}; its samples with the largest {exact}"))
        key = f"<p><small>{escape(self._summary())} A diamond is a spike.</small></p>"
        return "".join([*parts, key])

    def page(self) -> str:
        """Make the page as one standalone document.

        Returns:
            Text of an HTML page.
        """
        body = (
            f'{self.source.verdict}<p class="quiet">{escape(self._summary())}</p>'
            f'<div id="spikes">{self._table()}</div>'  # remains if no script replaces it
            f"{figure_html(self.figure(), CHART, self.scores, 480)}"
        )
        styles = ("spikes.css", *rollout_page.STYLES)
        return document("Gradient spikes", body, self.data(), scripts=SCRIPTS, styles=styles)


OPENED = 12
"""Spikes that the page opens."""
FEW = 5
"""Samples of a spike in its static form."""
CHART = "Gradient norms before clipping over optimizer steps. A diamond is a spike; a filled one opens at a click."
RULE = (
    "A norm is a spike if it is more than {:g} times the usual norm (the median of the {} norms before it, of all "
    "agents) and taller than each of these. The rule starts after {} norms."
)
SHARE = (
    "A share is the projection on the policy's gradient before clipping: exact, summing to 1 over all tokens of the "
    "policy, unless a spike says that its shares are a proxy."
)
"""`RULE` and `SHARE` stand wherever the norms are; the page's scripts explain its own marks."""
