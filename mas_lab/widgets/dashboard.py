"""LiveDashboard: `train` in a thread of its own, so that its cell returns: a bar, growing curves and a stop button.

Leaves out: what a step is (`train`), how it is drawn in place (`live`), and looking into what was trained (the other
instruments, which take a dashboard as they take a run).
"""

import contextvars
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd

from mas_lab.env import Env
from mas_lab.explain.spike_rule import spike_scores
from mas_lab.progress import front_end
from mas_lab.recipes import Recipe, find
from mas_lab.runs.run import Run, load_run, run_folder
from mas_lab.runs.scores import CURVE, run_curve
from mas_lab.team import Team
from mas_lab.train import Report, train
from mas_lab.widgets.document import document, escape, figure_html, table_html, write
from mas_lab.widgets.figures import LAYOUT
from mas_lab.widgets.live import Bar, Controls, Line, Redrawn
from mas_lab.widgets.spikes import WHOLE, norm_curves
from mas_lab.widgets.text import visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LIVE = ("jupyter", "vscode")
"""Front ends (`progress.front_end`) whose widgets live on when a cell has returned."""
DRAWING, PAUSES = 0.1, (1.0, 5.0)
"""Share of the time that may go into drawing; seconds between two drawings, at least and at most."""
INTERRUPT = "no widgets here: interrupt the kernel to stop after the current step"


def training_figure(curve: pd.DataFrame, scored: pd.DataFrame | None, agents: Sequence[str]) -> "Figure":
    """Success and return of the training episodes over steps, and gradient norms with their spikes.

    `curve`: `scores.training_curve`. `scored`: `spike_scores` of the statistics, or None where there are none yet.
    """
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=2, specs=[[{}, {}], [{"colspan": 2}, None]], vertical_spacing=0.2)
    for place, name in enumerate(("success", "return"), start=1):
        line = {"color": WHOLE, "width": 2}
        figure.add_scatter(
            x=curve["step"].tolist(), y=curve[name].tolist(), mode="lines+markers", marker={"size": 4}, line=line,
            name=name, showlegend=False, row=1, col=place,
        )  # fmt: skip
    for trace in norm_curves(scored, agents).data if scored is not None else ():
        figure.add_trace(trace, row=2, col=1)
    longest = max((len(trace.x) for trace in figure.data), default=0)
    figure.update_xaxes(title_text="training step", nticks=_ticks(len(curve)), row=1)
    figure.update_xaxes(title_text="optimizer step", nticks=_ticks(longest), row=2, col=1)
    figure.update_yaxes(title_text="success (share of episodes)", range=[-0.03, 1.03], row=1, col=1)
    figure.update_yaxes(title_text="return (reward per episode)", row=1, col=2)
    figure.update_yaxes(title_text="gradient norm (log scale)", type="log", row=2, col=1)
    figure.update_yaxes(title_font_size=13)
    legend = {"orientation": "h", "y": 0.42, "yanchor": "bottom", "x": 0}
    figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 20, "b": 50}, "legend": legend}, height=520)
    return figure


def _ticks(steps: int) -> int:
    """So many ticks that none stands between two steps."""
    return min(10, max(1, steps - 1))


class LiveDashboard:
    """Train, watch and stop: the arguments of `lab.train`, in a thread of its own, so that the cell returns.

    `.stop()`, its button, or an interrupt of the kernel during `.wait()` ends training after the current step, with a
    valid checkpoint where `run` keeps one. `.wait()` returns when training has ended, and raises what it raised: call
    it before anything else uses the team. `reports` holds a `Report` per step, or the last one where `run` keeps all.

    Where no widget outlives its cell (Colab, saved Kaggle versions, nbconvert, a terminal), it trains in the
    foreground: the cell returns when training has ended, and the kernel's interrupt is the stop. `foreground` decides
    otherwise. `.figure()`, `.to_html(path)`; the other instruments take it in the place of a run.
    """

    _running: ClassVar[set["LiveDashboard"]] = set()

    def __init__(
        self,
        env: Env,
        team: Team,
        recipe: str | Recipe,
        steps: int,
        seed: int = 0,
        run: str | Path | None = None,
        foreground: bool | None = None,
        **settings: Any,
    ):
        self._refuse_a_team_in_training(team)
        self.agents, self.steps, self.watch = tuple(env.agents), steps, settings.get("watch")
        self.name = f"{find(recipe).name}, seed {seed}" + (f", run {run_folder(run).name}" if run else "")
        self.reports: list[Report] = []
        self.error: BaseException | None = None
        """What ended the training, if it was not its last step or a stop."""
        self._folder = run_folder(run) if run is not None else None
        self._team, self._training = team, train(env, team, recipe, steps, seed=seed, run=run, **settings)
        self._curve, self._stats, self._spikes = [], [], []
        self._asked_to_stop, self._ended, self._outcome = threading.Event(), threading.Event(), ""
        self._telling, self._next_drawing = threading.Lock(), 0.0
        self._foreground = front_end() not in LIVE if foreground is None else foreground
        self._begin_drawing()
        self._running.add(self)
        # The copied context sends what the thread prints and draws to this cell.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work,), name="mas_lab training", daemon=True).start()
        if self._foreground:
            self.wait()

    def __repr__(self) -> str:
        return f"LiveDashboard({self.name}: {self._line()})"

    # Running

    def stop(self) -> None:
        """End training after the current step. Returns at once; `wait()` for the end."""
        self._asked_to_stop.set()
        if not self._outcome:
            self._tell()

    def wait(self, timeout: float | None = None) -> "LiveDashboard":
        """Until training has ended, or `timeout` seconds have gone by; raises what ended it, if that was an error."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(until)
        except KeyboardInterrupt:
            self.stop()
            self._wait(until)
        if not self.running and self.error is not None:
            raise self.error
        return self

    def _wait(self, until: float | None) -> None:
        while not self._ended.wait(0.2):  # in slices, since Windows interrupts no endless wait
            if until is not None and time.monotonic() > until:
                return

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    def _work(self) -> None:
        try:
            for report in self._training:
                self._take(report)
                if self._asked_to_stop.is_set():
                    break
        except BaseException as error:  # whatever it is, `wait` raises it
            self.error = error
        self._end()

    def _end(self) -> None:
        try:
            self._training.close()  # leaves a checkpoint
            self._read_steps_before(None)
        except BaseException as error:
            self.error = self.error or error
        self._running.discard(self)
        self._outcome = "ended" if self.error is None else "failed"
        try:
            self._draw()
            if self.error is not None and not self._foreground:
                traceback.print_exception(self.error, file=sys.stderr)
        finally:
            self._ended.set()

    def _take(self, report: Report) -> None:
        if not self._curve:
            self._read_steps_before(report.step)
        tokens = self._curve[-1]["tokens"] if self._curve else 0
        self._curve.append(report.scored | {"step": report.step, "tokens": tokens + report.scored["tokens"]})
        self._stats.append(report.stats)
        self._spikes = list(getattr(self.watch, "spikes", ()))
        self.reports = [report] if self._folder else [*self.reports, report]
        if time.monotonic() >= self._next_drawing:
            start, first = time.monotonic(), len(self._curve) == 1  # the first imports plotly
            self._draw()
            pause = 0.0 if first else (time.monotonic() - start) * (1 / DRAWING - 1)
            self._next_drawing = time.monotonic() + min(max(pause, PAUSES[0]), PAUSES[1])
        else:
            self._tell()

    def _read_steps_before(self, step: int | None) -> None:
        """A resumed run's curves begin where the run began."""
        if self._folder and not self._curve and step != 0 and (run := load_run(self._folder)).steps:
            before = run_curve(run)
            stats = run.stats
            self._curve = before[before["step"] < (step or run.steps)].to_dict("records")
            self._stats = [stats[stats["step"] < (step or run.steps)]]

    def _refuse_a_team_in_training(self, team: Team) -> None:
        models = {id(policy.model) for policy in team.policies.values()}
        for other in self._running:
            if models & {id(policy.model) for policy in other._team.policies.values()}:
                raise RuntimeError(
                    f"LiveDashboard: this team is being trained by {other!r}; call its .stop() and .wait() first, or "
                    "load a team of its own"
                )

    # Telling

    def _begin_drawing(self) -> None:
        self._drawing, self._shown_in = None, _cell()
        if front_end() == "terminal":
            self._controls = Bar(self.steps)
            return
        self._controls, self._drawing = (Line() if self._foreground else Controls(self.steps, self.stop)), Redrawn()
        self._tell()
        if not self._foreground:
            self._controls.show()

    def _line(self) -> str:
        done, last = len(self._curve), self._curve[-1] if self._curve else None
        line = f"step {done} of {self.steps}"
        if last:
            line += f", success {last['success']:.2f}, return {last['return']:.2f}"
        if self._state == "failed":
            return f"{line}: ended by {type(self.error).__name__}: {visible(str(self.error))}"
        if self._state == "ended":
            return f"{line}: {'stopped' if done < self.steps else 'done'}"
        if self._state == "stopping":
            return f"{line}: stopping after this step"
        return f"{line} ({INTERRUPT})" if self._foreground else line

    @property
    def _state(self) -> str:
        return self._outcome or ("stopping" if self._asked_to_stop.is_set() else "running")

    def _tell(self) -> None:
        with self._telling:  # two threads tell: the last to tell must tell the newest
            self._controls.tell(len(self._curve), self._line(), self._state)

    def _draw(self) -> None:
        self._tell()
        if self._drawing is not None and self._curve:
            self._drawing.show(self.figure())

    def _ipython_display_(self) -> None:
        if self._shown_in == _cell():  # it has just been drawn, when it was made
            return
        self._controls.repeat()
        if self._drawing is not None:
            self._drawing.repeat()

    # What was trained

    @property
    def run(self) -> Run | None:
        """The run in its folder, if `run` names one."""
        return load_run(self._folder) if self._folder else None

    @property
    def recorded(self) -> Run | list[Report]:
        """What the other instruments read."""
        return self.run or list(self.reports)

    def watched(self) -> dict[str, Any] | None:
        """What a `SpikeWatch` has recorded in the steps that are done."""
        return {"rule": asdict(self.watch.rule), "spikes": self._spikes} if hasattr(self.watch, "rule") else None

    @property
    def curve(self) -> pd.DataFrame:
        """A row per step: `tokens` until then, `success` and `return`, see `scores.training_curve`."""
        return pd.DataFrame(list(self._curve), columns=CURVE)

    @property
    def stats(self) -> pd.DataFrame:
        """What `update` reported, all steps."""
        return pd.concat(list(self._stats), ignore_index=True) if self._stats else pd.DataFrame()

    def figure(self) -> "Figure":
        """Success, return, and the norms of each agent's gradient with their spikes marked."""
        stats = self.stats
        return training_figure(self.curve, spike_scores(stats, **self._rule()) if len(stats) else None, self.agents)

    def _rule(self) -> dict[str, Any]:
        watched = self.watched()
        return {name: watched["rule"][name] for name in ("warmup", "window", "threshold")} if watched else {}

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        curve, stats = self.curve, self.stats
        described = f"Success, return and gradient norms of {', '.join(self.agents)} over {len(curve)} training steps"
        parts = [f'<p class="quiet">{escape(self.name)}: {escape(self._line())}</p>',
                 figure_html(self.figure(), described, curve, first=True)]  # fmt: skip
        if len(stats):
            shown = ["step", "optimizer_step", "policy", "agent", "grad_norm", "grad_norm_clipped", "entropy"]
            parts.append(f"<details><summary>The optimizer's numbers</summary>"
                         f"{table_html(stats[shown], 'Gradient norms, and entropy in nats')}</details>")  # fmt: skip
        return write(path, document("Training", "".join(parts)))


def _cell() -> int | None:
    """The number of the notebook cell that runs."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell.execution_count if shell else None
