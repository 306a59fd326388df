"""LiveDashboard: run `train` in a thread, with a progress bar, growing curves and a stop button.

The cell returns at once, and training goes on. Other instruments look into the trained team; they take a dashboard as
they take a run. `Training` holds the results so far, and `training_figure` draws them; the figure says for which
episodes success and return hold. This module leaves out redrawing the figure in place (`live`).
"""

import contextvars
import copy
import sys
import threading
import time
import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.cells.plans import joint, tree
from mas_lab.display.progress import front_end, no_bars, running_cell
from mas_lab.env import Env
from mas_lab.explain.spike_rule import spike_scores
from mas_lab.locks import locked
from mas_lab.recipes import Recipe, find
from mas_lab.runs.disk import RunError
from mas_lab.runs.forking import origin_of
from mas_lab.runs.run import Run, load_run, run_folder
from mas_lab.runs.scores import CURVE, mean_scores, run_curve, score_curve
from mas_lab.table import TableError, in_batch
from mas_lab.team import Team
from mas_lab.train import Report, train
from mas_lab.train.hooks import heard_by
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, table_html, write
from mas_lab.widgets.figures import LAYOUT, PALETTE, colors
from mas_lab.widgets.live import LIVE, Controls, Line, Redrawn
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
            last = self.curve.iloc[-1]
            text += f", success {last['success']:.2f}, return {last['return']:.2f} ({whose})"
        if len(self.held_out):
            text += f", held out {self.held_out['success'].iloc[-1]:.2f} after {int(self.held_out['step'].iloc[-1])}"
        if self.forked:
            changed = "; ".join(self.forked["changed"]) or "nothing was changed"
            text += f", forked from {Path(self.forked['from']).name} after {self.forked['step']} steps: {changed}"
        return escape_control_chars(text)

    def origin(self) -> pd.DataFrame:
        """Return the curve of the run that this one was forked from, as far as it is now; empty if it is gone."""
        with suppress(RunError, TableError, OSError):
            other = load_run(origin_of(self._loaded))
            self._origin = self._origin if len(self._origin) == other.steps else run_curve(other)
        return self._origin


def _with(table: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([*table.to_dict("records"), row], columns=CURVE)


def _rewards(turns: pd.DataFrame) -> pd.DataFrame:
    return turns[in_batch(turns)].groupby(REWARDS[:2], sort=False)[REWARDS[2:]].mean().reset_index()


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
        figure.add_trace(trace.update(showlegend=trace.mode != "markers" and trace.line.color == POLICY), row=3, col=1)
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


INTERRUPT = "no widgets here: interrupt the kernel to stop after the current step"


class LiveDashboard(Training):
    """Train a team in a thread, so that the cell returns at once, and show the progress.

    `.stop()`, its button, or an interrupt of the kernel during `.wait()` ends training after the current step. If `run`
    keeps the training, a valid checkpoint remains. `.wait()` returns when training has ended, and raises the error that
    ended it.

    `.figure()` and `.to_html(path)` show the curves. Their numbers are `.curve`, `.held_out` and `.stats`. Other
    instruments take a dashboard in place of a run. `reports` holds a `Report` per step, or only the last one if `run`
    keeps all.

    Other cells may use the team meanwhile. Each rollout or evaluation plays with the weights after some whole step.
    Training waits for it before it changes the weights. The result of training stays the same. Call `.stop()` and
    `.wait()` before you train the team elsewhere or load other weights into it.

    Some front ends have no widgets that outlive their cell (Colab, Kaggle, nbconvert, a terminal). There, training runs
    in the foreground: the cell returns when training has ended, and the kernel's interrupt stops it.

    The training curve names the episodes that it shows. Under `tree()`, it shows the best of K candidates, and this may
    fall while the team gets better. `score_every=10` adds the success on held-out tasks, which measures the team.

    `.fork(run=..., ...)` changes one thing and goes on beside this training, as a second line in the figure.

    Args:
        env: The environment.
        team: The team to train, with a policy for each agent of `env`.
        recipe: The recipe, or its name.
        steps: Number of training steps in total. A resumed run counts the steps that it has already made.
        seed: Seed of the training.
        run: Folder that keeps the run, or a bare name under `lab.runs_dir()`. `None` keeps nothing on disk.
        foreground: Whether the cell returns only after training has ended. `None` decides by the front end, see above.
        **settings: Other arguments of `lab.train`, such as `watch`, `curriculum`, `score_every` or another setting.

    Raises:
        PolicyError: If another thread is training a model of this team.
        Exception: Any error that `lab.train` raises for its arguments; in the foreground, any error of the training.
    """

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
        super().__init__()
        with locked(team.policies.values(), training=True):
            pass  # raises at once if another thread trains one of these models
        self._team, self.env, self.seed = team, env, seed
        self.error: BaseException | None = None
        """Exception that ended the training; `None` if it ended by its last step or by a stop."""
        self._stop_requested, self._ended, self._outcome = threading.Event(), threading.Event(), ""
        self._arguments = {"env": env, "recipe": recipe, "steps": steps, "seed": seed, **settings}
        self.agents, self.steps, self.watch = tuple(env.agents), steps, settings.get("watch")
        self.whose = whose_success(find(recipe).plan)
        """Name of the episodes whose success and return the training curve shows."""
        self.name = f"{find(recipe).name}, seed {seed}" + (f", run {run_folder(run).name}" if run else "")
        self.reports: list[Report] = []
        self._folder = run_folder(run) if run is not None else None
        self._resumed = 0
        with suppress(RunError, OSError):  # no run yet
            self._resumed = self.run.checkpoint().step if self._folder else 0
        with no_bars():  # the dashboard has its own bar
            training = train(env, team, recipe, steps, seed=seed, run=run, **settings)
        self._watched, self._scoring = {"spikes": [], "tallest": None}, None
        self._foreground = front_end() not in LIVE if foreground is None else foreground
        self._telling, self._cell = threading.Lock(), running_cell()
        is_terminal = front_end() == "terminal"
        self._controls = Line() if self._foreground or is_terminal else Controls(self.steps, self.stop)
        self._drawing = None if is_terminal else Redrawn()
        self._tell()
        if isinstance(self._controls, Controls):
            self._drawing.make_room()
        # The copied context sends the thread's output to this cell.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work, training), name="mas_lab training", daemon=True).start()
        if self._foreground:
            self.wait()

    def __repr__(self) -> str:
        return f"LiveDashboard({self.name}: {self._line()})"

    # The thread

    def _work(self, training: Generator[Report]) -> None:
        try:
            with heard_by(self._hear):
                for report in training:
                    self._take(report)
                    if self._stop_requested.is_set():
                        break
        except BaseException as error:  # `wait` raises it again
            self.error = error
        try:
            training.close()  # writes a checkpoint
            self._begin(None)
        except BaseException as error:
            self.error = self.error or error
        self._outcome, self._scoring = "ended" if self.error is None else "failed", None
        try:
            self._tell()
            if (len(self.curve) or len(self.held_out)) and self._drawing is not None:
                self._drawing.draw(self.figure())
            if self.error is not None and not self._foreground:
                traceback.print_exception(self.error, file=sys.stderr)
        finally:
            self._ended.set()

    def stop(self) -> None:
        """End training after the current step.

        The call returns at once. Use `wait()` to wait for the end.
        """
        self._stop_requested.set()
        if not self._outcome:
            self._tell()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until training has ended, or until the time is over.

        An interrupt of the kernel stops training after the current step.

        Args:
            timeout: Seconds to wait at most. `None` waits without a limit.

        Returns:
            This object.

        Raises:
            BaseException: The error that ended the training, if there was one.
        """
        self._cell = running_cell()  # which need not show it again
        until = time.monotonic() + (float("inf") if timeout is None else timeout)
        while not self._ended.is_set() and time.monotonic() < until:
            try:
                self._ended.wait(0.2)  # in slices, because Windows cannot interrupt an endless wait
            except KeyboardInterrupt:
                if self._stop_requested.is_set():
                    raise
                self.stop()
        if not self.running and self.error is not None:
            raise self.error
        return self

    @property
    def running(self) -> bool:
        """Return whether training is still running."""
        return not self._ended.is_set()

    @property
    def _state(self) -> str:
        """Return "running", "stopping", "ended" or "failed"."""
        return self._outcome or ("stopping" if self._stop_requested.is_set() else "running")

    # What the thread calls at each step

    def _begin(self, step: int | None) -> None:
        """Load what a resumed run or a fork has shown before `step`, before anything is drawn."""
        if self._folder and self._loaded is None:
            self.begin(self.run, step)

    def _hear(self, done: int, scores: pd.DataFrame | None) -> None:
        self._scoring = done if scores is None else None
        if scores is not None:
            self._begin(done)
            self.score(scores)
            self._draw()
        self._tell()

    def _take(self, report: Report) -> None:
        self._begin(report.step)
        self.take(report)
        self._scoring = None
        if hasattr(self.watch, "rule"):
            self._watched = {"spikes": list(self.watch.spikes), "tallest": self.watch.tallest}
        self.reports = [report] if self._folder else [*self.reports, report]
        self._tell()
        self._draw()

    # What is shown

    def _tell(self) -> None:
        with self._telling:  # two threads report
            self._controls.tell(len(self.curve) or self._resumed, self._line(), self._state)

    def _draw(self) -> None:
        if self._drawing is not None:
            self._drawing.draw_if_due(self.figure)

    def _line(self) -> str:
        done = len(self.curve)
        begun = f"continuing at {self._resumed}" if self._resumed and not done else f"{done}"
        line = f"{begun} of {self.steps} steps{self.line(self.whose)}"
        if self._state == "failed":
            return f"{line}: ended by {type(self.error).__name__}: {escape_control_chars(str(self.error))}"
        if self._state == "ended":
            return f"{line}: {'stopped' if done < self.steps else 'done'}"
        if self._state == "stopping":
            return f"{line}: stopping after this step"
        if self._scoring is not None:
            line += f", scoring held-out tasks after {self._scoring}"
        return f"{line} ({INTERRUPT})" if self._foreground else line

    def _ipython_display_(self) -> None:
        if self._drawing is not None and self._cell != running_cell():  # its own cell shows it already
            self._controls.repeat()
            self._drawing.repeat()

    # Forking

    def fork(
        self,
        run: str | Path | None = None,
        lr: float | Mapping[str, float] | None = None,
        team: Team | None = None,
        **changes: Any,
    ) -> "LiveDashboard":
        """Start a second training that begins after the newest checkpoint of this one and goes on beside it.

        It has its own team and the arguments of this dashboard, except for the changes. Under another
        seed it plays other held-out tasks. See `fork` of `lab.train`.

        Args:
            run: Folder of the new run. It is required.
            lr: Learning rate of all policies, or {agent: rate}. `None` keeps the rates of the team.
            team: Team to train, made like this one. `None` rebuilds a team from the checkpoint.
            **changes: New values for arguments of this dashboard: `recipe`, `steps`, `seed`, or any setting.

        Returns:
            The dashboard of the second training.

        Raises:
            TypeError: If `run` is missing, or if this training keeps no run.
            ValueError: If `lr` names an agent that the team does not have.
        """
        if run is None or self._folder is None:
            raise TypeError("fork: both trainings are kept; start the first with run=, and give the fork its run=")
        arguments = {**self._arguments, "foreground": self._foreground, "fork": self._folder}
        if hasattr(self.watch, "load_state"):
            arguments["watch"] = copy.deepcopy(self.watch)  # training sets it to its state in the checkpoint
        with no_bars():
            bases = [policy.shared.source.name for policy in self._team.policies.values() if hasattr(policy, "shared")]
            own = team or load_run(self._folder).team(bases)
        for agent, rate in (lr if isinstance(lr, Mapping) else dict.fromkeys(own, lr)).items():
            if agent not in own:
                raise ValueError(f"fork: lr names agent {agent!r}; the team has {', '.join(own)}")
            if rate is not None:
                own[agent].lr = float(rate)
        return LiveDashboard(**{**arguments, **changes, "team": own, "run": run})

    # Results

    @property
    def run(self) -> Run | None:
        """Return the run in its folder, or `None` if `run` names no folder."""
        return load_run(self._folder) if self._folder else None

    @property
    def recorded(self) -> Run | list[Report]:
        """Return what the other instruments read: the run, or the reports."""
        return self.run or list(self.reports)

    def watched(self) -> dict[str, Any] | None:
        """Return what a `SpikeWatch` has recorded in the completed steps.

        Returns:
            Dict with its `rule`, `spikes` and `tallest`; `None` if no such watch was given. A kept run has one of its
            own, see `lab.train`, which its checkpoints remember.
        """
        return {"rule": asdict(self.watch.rule), **self._watched} if hasattr(self.watch, "rule") else None

    def figure(self) -> Figure:
        """Draw success, return, and the norm of each agent's gradient with its spikes marked.

        Returns:
            Plotly figure over the training so far. For a fork it also shows the run that it was forked from.
        """
        watched = self.watched()
        return training_figure(self, self.agents, self.whose, watched["rule"] if watched else {})

    def to_html(self, path: str | Path) -> Path:
        """Write one standalone HTML file that works offline.

        Args:
            path: The file to write. Missing parent folders are created.

        Returns:
            The path of the file.
        """
        described = f"Success, return, rewards and gradient norms of {', '.join(self.agents)} over training steps"
        parts = [f'<p class="quiet">{escape(f"{self.name}: {self._line()}")}</p>',
                 figure_html(self.figure(), described, self.curve, least=560)]  # fmt: skip
        if len(self.held_out):
            parts.append(table_html(self.held_out, "Scores on held-out tasks, by training steps made until then"))
        return write(path, document("Training", "".join(parts), scripts=FIGURES))
