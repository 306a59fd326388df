"""Hold the results of a training so far, and draw them: success, return, each agent's reward, and gradient norms.

The figure says for which episodes success and return hold. This module leaves out running the training (`dashboard`).
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.cells.plans import joint, tree
from mas_lab.explain.spike_rule import spike_scores
from mas_lab.runs.disk import RunError
from mas_lab.runs.forking import origin_of
from mas_lab.runs.run import Run, load_run
from mas_lab.runs.scores import CURVE, grown, mean_scores, run_curve, score_curve
from mas_lab.table import TableError, trained
from mas_lab.train import Report
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, folded, table_html
from mas_lab.widgets.figures import LAYOUT, PALETTE, colors
from mas_lab.widgets.spikes import POLICY, norm_curves
from mas_lab.widgets.text import escape_control_chars, for_plotly

HELD_OUT = "held-out tasks"
REWARDS = ["step", "agent", "local_reward", "credit"]


def whose_success(plan: Any) -> str:
    """Return the name of a training curve's episodes, which follow the plan and not the team's own play."""
    if isinstance(plan, tree):
        return f"training episodes, best of {plan.k} candidates"
    return "training episodes, all branches" if isinstance(plan, joint) else "training episodes"


class Training:
    """The steps of a training so far, from the start of a resumed run or of the run that it was forked from.

    For a fork, `forked` says from where and what was changed, and `origin()` reads the curves of the other run.
    """

    def __init__(self):
        self.curve = self.held_out = self._origin = pd.DataFrame(columns=CURVE)
        """One row per step (`curve`) or score on held-out tasks (`held_out`): `step`, `tokens` until then, `success`
        and `return`."""
        self._stats: list[pd.DataFrame] = []
        self._rewards: list[pd.DataFrame] = []
        self.forked: dict[str, Any] | None = None
        self._loaded: Run | None = None

    @property
    def stats(self) -> pd.DataFrame:
        """Return the statistics that `update` reported, for all steps."""
        return pd.concat(self._stats, ignore_index=True) if self._stats else pd.DataFrame()

    @property
    def rewards(self) -> pd.DataFrame:
        """Return each agent's mean own reward and mean credit per step: `step`, `agent`, `local_reward`, `credit`."""
        return pd.concat(self._rewards, ignore_index=True) if self._rewards else pd.DataFrame(columns=REWARDS)

    def begin(self, run: Run, step: int | None) -> None:
        """Load what a run has shown before its first report, of `step` (`None` if there is no report)."""
        self._loaded, self.forked = run, run.config.get("forked")
        if step == 0 or not run.steps:
            return
        until, curve = step or run.steps, run_curve(run)
        self.curve, self.held_out = curve[curve["step"] < until], score_curve(run, curve).query("step <= @until")
        self._stats = [run.stats.query("step < @until")]
        self._rewards = [_rewards(run.read("turns", [*REWARDS, "probe"]).query("step < @until"))]

    def take(self, report: Report) -> None:
        """Add a step."""
        self._rewards.append(_rewards(report.turns.assign(step=report.step)))
        tokens = self._sampled_until(len(self.curve)) + report.scored["tokens"]
        self.curve = _with(self.curve, report.scored | {"step": report.step, "tokens": tokens})
        self._stats.append(report.stats)
        if report.held_out is not None:
            self.score(report.held_out)

    def score(self, scores: pd.DataFrame) -> None:
        """Add scores of held-out tasks that are not known yet; `tokens` counts those sampled before each."""
        for score in mean_scores(scores).to_dict("records"):
            if score["step"] not in set(self.held_out["step"]):
                tokens = self._sampled_until(int(score["step"]))
                self.held_out = _with(self.held_out, score | {"tokens": tokens})

    def _sampled_until(self, step: int) -> int:
        return int(self.curve["tokens"].iloc[step - 1]) if step else 0

    def line(self, whose: str) -> str:
        """Return the newest numbers, and the origin of a fork, as a piece of text."""
        text = ""
        if len(self.curve):
            text += (
                f", success {self.curve['success'].iloc[-1]:.2f}, return {self.curve['return'].iloc[-1]:.2f} ({whose})"
            )
        if len(self.held_out):
            text += f", held out {self.held_out['success'].iloc[-1]:.2f} after {int(self.held_out['step'].iloc[-1])}"
        if self._stats and "age" in (newest := self._stats[-1]):
            ages = newest[newest["step"] == newest["step"].max()].groupby("agent", sort=False)["age"].first()
            text += f", age of rows: {', '.join(f'{agent} {age:g}' for agent, age in ages.items())}"
        if self.forked:
            changed = "; ".join(self.forked["changed"]) or "nothing was changed"
            text += f", forked from {Path(self.forked['from']).name} after {self.forked['step']} steps: {changed}"
        return escape_control_chars(text)

    def origin(self) -> pd.DataFrame:
        """Return the curve of the run that this one was forked from, as far as it is now; empty if it is gone."""
        with suppress(RunError, TableError, OSError):
            self._origin = grown(self._origin, load_run(origin_of(self._loaded)))
        return self._origin


def _with(table: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([*table.to_dict("records"), row], columns=CURVE)


def _rewards(turns: pd.DataFrame) -> pd.DataFrame:
    return turns[trained(turns)].groupby(REWARDS[:2], sort=False)[REWARDS[2:]].mean().reset_index()


def training_figure(so_far: Training, agents: Sequence[str], whose: str, rule: dict[str, Any]) -> Figure:
    """Draw success and return of training episodes and held-out tasks, and each agent's reward and gradient norm.

    A score after s steps stands at s, where the episodes of that team begin. For a fork, a thin line behind shows the
    run that it was forked from. An agent's reward is its own one, or its credit in an env that gives no own rewards.
    `rule`: arguments of `spike_scores`.
    """
    wide = [{"colspan": 2}, None]
    figure = make_subplots(rows=3, cols=2, specs=[[{}, {}], wide, wide], vertical_spacing=0.14)
    drawn = []  # points, name, colour, width, size of the marks
    if so_far.forked:
        drawn.append((so_far.origin(), for_plotly(Path(so_far.forked["from"]).name), POLICY, 1, 3))
    drawn += [(so_far.curve, whose, POLICY, 2, 4), (so_far.held_out, HELD_OUT, PALETTE[0], 3, 8)]
    for place, score in enumerate(("success", "return"), start=1):
        for points, name, color, width, size in drawn:
            if len(points) or name == whose:
                figure.add_scatter(
                    x=points["step"].tolist(), y=points[score].astype(float).tolist(), mode="lines+markers",
                    line={"color": color, "width": width}, marker={"size": size}, cliponaxis=False, name=name,
                    legend="legend2", legendgroup=name, showlegend=place == 1, row=1, col=place,
                )  # fmt: skip
        if so_far.forked:
            line = {"color": POLICY, "width": 1, "dash": "dot"}
            figure.add_vline(x=so_far.forked["step"], line=line, name="forked here", showlegend=place == 1,
                             legend="legend2", row=1, col=place)  # fmt: skip
    stats, rewards, shades = so_far.stats, so_far.rewards, colors(agents)
    kind, title = ("local_reward", "own reward") if rewards["local_reward"].any() else ("credit", "credit")
    for agent in agents:
        own = rewards[rewards["agent"] == agent]
        figure.add_scatter(
            x=own["step"].tolist(), y=own[kind].tolist(), name=for_plotly(agent), mode="lines+markers",
            line={"color": shades[agent], "width": 2}, marker={"size": 4}, cliponaxis=False, row=2, col=1,
        )  # fmt: skip
    norms = norm_curves(spike_scores(stats, **rule), agents).data if len(stats) else ()
    for trace in norms:  # the lines of agents have their names above
        figure.add_trace(trace.update(showlegend=trace.mode == "lines" and trace.line.color == POLICY), row=3, col=1)
    longest = max((int(max(trace.x, default=-1)) + 1 for trace in norms), default=0)
    figure.update_xaxes(title_text="training step", nticks=_ticks(len(so_far.curve)))
    figure.update_xaxes(title_text="optimizer step", nticks=_ticks(longest), row=3, col=1)
    figure.update_yaxes(title_text="success (share of episodes)", range=[-0.03, 1.03], row=1, col=1)
    figure.update_yaxes(title_text="return (reward per episode)", row=1, col=2)
    figure.update_yaxes(title_text=f"{title} (mean per call)", row=2, col=1)
    figure.update_yaxes(title_text="gradient norm (log scale)", type="log", row=3, col=1)
    figure.update_yaxes(title_font_size=13)
    # The legend of the agents is above the second row, that of the curves above the first.
    keys = {name: {"orientation": "h", "y": y, "yanchor": "bottom", "x": 0}
            for name, y in {"legend": figure.layout.yaxis3.domain[1] + 0.01, "legend2": 1.01}.items()}  # fmt: skip
    return figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 44, "b": 50}} | keys, height=780)


def _ticks(steps: int) -> int:
    """Return a number of ticks so that none stands between two steps."""
    return min(10, max(1, steps - 1))


def training_page(subtitle: str, so_far: Training, figure: Figure, agents: Sequence[str]) -> str:
    """Return a standalone page; `told` says which training it is, and how far it is."""
    described = f"Success, return, rewards and gradient norms of {', '.join(agents)} over {len(so_far.curve)} steps"
    parts = [f'<p class="quiet">{escape(subtitle)}</p>', figure_html(figure, described, so_far.curve, least=560)]
    if len(so_far.held_out):
        parts.append(table_html(so_far.held_out, "Scores on held-out tasks, by training steps made until then"))
    if len(so_far.stats):
        columns = ["step", "optimizer_step", "policy", "agent", "grad_norm", "grad_norm_clipped", "entropy"]
        table = table_html(so_far.stats[columns], "Gradient norms, and entropy in nats")
        parts.append(folded("The optimizer's numbers", table))
    return document("Training", "".join(parts), scripts=FIGURES)
