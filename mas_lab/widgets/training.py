"""Hold the results of a training so far, and draw them: success, return and gradient norms.

The figure says for which episodes success and return hold. This module leaves out running the training (`dashboard`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.cells.plans import joint, tree
from mas_lab.runs.run import Run
from mas_lab.runs.scores import CURVE, kept_scores, mean_scores, run_curve
from mas_lab.train import Report
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, folded, table_html
from mas_lab.widgets.figures import LAYOUT, PALETTE
from mas_lab.widgets.norms import WHOLE, norm_curves
from mas_lab.widgets.origin import Origin
from mas_lab.widgets.text import for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HELD_OUT = "held-out tasks"


def whose_success(plan: Any) -> str:
    """Return the name of a training curve's episodes, which follow the plan and not the team's own play."""
    if isinstance(plan, tree):
        return f"training episodes, best of {plan.k} candidates"
    return "training episodes, all branches" if isinstance(plan, joint) else "training episodes"


class Training:
    """The steps of a training so far: `curve`, `stats` and `held_out`, from the start of a resumed run."""

    def __init__(self):
        self._curve: list[dict[str, Any]] = []
        self._held_out: list[dict[str, Any]] = []
        self._stats: list[pd.DataFrame] = []

    @property
    def steps(self) -> int:
        return len(self._curve)

    @property
    def curve(self) -> pd.DataFrame:
        return pd.DataFrame(list(self._curve), columns=CURVE)

    @property
    def held_out(self) -> pd.DataFrame:
        """Return the scores on held-out tasks; `step` and `tokens` count what was made before each score."""
        return pd.DataFrame(list(self._held_out), columns=CURVE)

    @property
    def stats(self) -> pd.DataFrame:
        return pd.concat(list(self._stats), ignore_index=True) if self._stats else pd.DataFrame()

    def begin(self, run: Run | None, step: int | None) -> None:
        """Load what a resumed run has shown before its first report, of `step` (`None` if there is no report)."""
        if run is None or step == 0 or not run.steps:
            return
        until = step or run.steps
        curve, stats = run_curve(run), run.stats
        scores = kept_scores(run, curve)
        self._curve = curve[curve["step"] < until].to_dict("records")
        self._held_out = scores[scores["step"] <= until].to_dict("records")
        self._stats = [stats[stats["step"] < until]]

    def take(self, report: Report) -> None:
        tokens = self._curve[-1]["tokens"] if self._curve else 0
        self._curve.append(report.scored | {"step": report.step, "tokens": tokens + report.scored["tokens"]})
        self._stats.append(report.stats)
        if report.held_out is not None:
            self.score(report.held_out)

    def score(self, scores: pd.DataFrame) -> None:
        """Add scores of held-out tasks that are not known yet."""
        known = {score["step"] for score in self._held_out}
        for score in mean_scores(scores).to_dict("records"):
            if score["step"] not in known:
                self._held_out.append(score | {"tokens": self._sampled_until(int(score["step"]))})

    def _sampled_until(self, step: int) -> int:
        return self._curve[step - 1]["tokens"] if step else 0

    def line(self, whose: str) -> str:
        """Return the newest numbers as a piece of text."""
        told = [f", success {one['success']:.2f}, return {one['return']:.2f} ({whose})" for one in self._curve[-1:]]
        told += [f", held out {one['success']:.2f} after {int(one['step'])}" for one in self._held_out[-1:]]
        return "".join(told)


def training_figure(
    curve: pd.DataFrame,
    scored: pd.DataFrame | None,
    agents: Sequence[str],
    held_out: pd.DataFrame | None = None,
    whose: str = "training episodes",
    origin: "Origin | None" = None,
) -> "Figure":
    """Draw success and return of training episodes and held-out tasks, and gradient norms with their spikes.

    For a fork, thin lines behind show the run that it was forked from.
    `curve`: `scores.training_curve`. `scored`: `spike_scores` of the statistics, or `None` if there are none yet.
    `held_out`: `scores.kept_scores`. A score after s steps stands at s, where the episodes of that team begin.
    """
    from mas_lab.widgets.picture import subplots

    figure = subplots(rows=2, cols=2, specs=[[{}, {}], [{"colspan": 2}, None]], vertical_spacing=0.2)
    held_out = curve[:0] if held_out is None else held_out
    drawn = []  # points, name, colour, width, size of the marks, opacity
    if origin:
        called = for_plotly(origin.name)
        drawn.append((origin.curve, f"{called}: {whose_success(origin.plan)}", WHOLE, 1, 3, 0.8))
        drawn.append((origin.held_out, f"{called}: {HELD_OUT}", PALETTE[0], 1, 3, 0.8))
    drawn += [(curve, whose, WHOLE, 2, 4, 1), (held_out, HELD_OUT, PALETTE[0], 3, 8, 1)]
    for place, name in enumerate(("success", "return"), start=1):
        for points, label, color, width, dots, opacity in drawn:
            if len(points) or label == whose:
                line = {"mode": "lines+markers", "line": {"color": color, "width": width}, "marker": {"size": dots}}
                _line(figure, points["step"].tolist(), points[name].astype(float).tolist(), label, place,
                      opacity=opacity, cliponaxis=False, **line)  # fmt: skip
        if origin:
            values = pd.concat([points[name].astype(float) for points, *_ in drawn])
            ends = [0.0, 1.0] if place == 1 or values.isna().all() else [float(values.min()), float(values.max())]
            _line(figure, [origin.step] * 2, ends, f"forked after {origin.step} steps", place, mode="lines",
                  hoverinfo="name", line={"color": WHOLE, "width": 1, "dash": "dot"})  # fmt: skip
    for trace in norm_curves(scored, agents).data if scored is not None else ():
        figure.add_trace(trace, row=2, col=1)
    longest = max((int(max(trace.x, default=-1)) + 1 for trace in figure.data), default=0)
    figure.update_xaxes(title_text="training step", nticks=_ticks(len(curve)), row=1)
    figure.update_xaxes(title_text="optimizer step", nticks=_ticks(longest), row=2, col=1)
    figure.update_yaxes(title_text="success (share of episodes)", range=[-0.03, 1.03], row=1, col=1)
    figure.update_yaxes(title_text="return (reward per episode)", row=1, col=2)
    figure.update_yaxes(title_text="gradient norm (log scale)", type="log", row=2, col=1)
    figure.update_yaxes(title_font_size=13)
    keys = {name: {"orientation": "h", "y": y, "yanchor": "bottom", "x": 0} for name, y in KEYS.items()}
    return figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 44, "b": 50}} | keys, height=544)


KEYS = {"legend": 0.42, "legend2": 1.01}
"""Heights of the legends: the norms' legend is between the rows, the curves' legend above both."""


def _line(figure: "Figure", x: list, y: list, name: str, place: int, **looks: Any) -> None:
    figure.add_scatter(x=x, y=y, name=name, legend="legend2", legendgroup=name, showlegend=place == 1, row=1, col=place,
                       **looks)  # fmt: skip


def _ticks(steps: int) -> int:
    """Return a number of ticks so that none stands between two steps."""
    return min(10, max(1, steps - 1))


def training_page(told: str, so_far: Training, figure: "Figure", agents: Sequence[str]) -> str:
    """Return a standalone page; `told` says which training it is, and how far it is."""
    curve, stats = so_far.curve, so_far.stats
    described = f"Success, return and gradient norms of {', '.join(agents)} over {len(curve)} training steps"
    parts = [f'<p class="quiet">{escape(told)}</p>', figure_html(figure, described, curve, least=560)]
    if len(so_far.held_out):
        parts.append(table_html(so_far.held_out, "Scores on held-out tasks, by training steps made until then"))
    if len(stats):
        shown = ["step", "optimizer_step", "policy", "agent", "grad_norm", "grad_norm_clipped", "entropy"]
        table = table_html(stats[shown], "Gradient norms, and entropy in nats")
        parts.append(folded("The optimizer's numbers", table))
    return document("Training", "".join(parts), scripts=FIGURES)
