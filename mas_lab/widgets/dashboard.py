"""LiveDashboard: `train` in a thread of its own, so that its cell returns: a bar, growing curves and a stop button.

Leaves out: the thread (`in_thread`), what it has shown so far and its figure (`training`), how that is drawn in place
(`live`), and looking into what was trained (the other instruments, which take a dashboard as they take a run).
"""

import copy
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.env import Env
from mas_lab.explain.spike_rule import spike_scores
from mas_lab.progress import front_end, no_bars
from mas_lab.recipes import Recipe, find
from mas_lab.runs.run import Run, load_run, run_folder
from mas_lab.team import Team
from mas_lab.train import Report, train
from mas_lab.widgets.address import address
from mas_lab.widgets.document import write
from mas_lab.widgets.in_thread import InThread
from mas_lab.widgets.index import index_of
from mas_lab.widgets.live import LIVE, Shown
from mas_lab.widgets.origin import Origin, own_team
from mas_lab.widgets.rollouts import RolloutViewer
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import visible
from mas_lab.widgets.training import Training, training_figure, training_page, whose_success

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

INTERRUPT = "no widgets here: interrupt the kernel to stop after the current step"


class LiveDashboard(InThread):
    """Train, watch and stop: the arguments of `lab.train`, in a thread of its own, so that the cell returns.

    `.stop()`, its button, or an interrupt of the kernel during `.wait()` ends training after the current step, with a
    valid checkpoint where `run` keeps one. `.wait()` returns when training has ended, and raises what it raised. Other
    cells may use the team meanwhile: each rollout or evaluation plays with the weights after some whole step, training
    waits for it before it changes them, and becomes what it would be alone. To train the team elsewhere, or to load
    other weights into it, `.stop()` and `.wait()` first. `reports` holds a `Report` per step, or the last one where
    `run` keeps all.

    Where no widget outlives its cell (Colab, saved Kaggle versions, nbconvert, a terminal), it trains in the
    foreground: the cell returns when training has ended, and the kernel's interrupt is the stop. `foreground` decides
    otherwise. `.figure()`, `.to_html(path)`; the other instruments take it in the place of a run.

    The curve of training says whose success it is: under `tree()` that of the best of K candidates, which may fall
    while the team gets better. `score_every=10` adds what counts, success on held-out tasks.

    `.fork(run=..., ...)` changes one thing and goes on beside it, as a second line. `.look()`, or a button, opens the
    most telling episode of the newest step.
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
        super().__init__(team)
        self.env, self.seed = env, seed
        self._asked = {"env": env, "recipe": recipe, "steps": steps, "seed": seed, **settings}
        self.agents, self.steps, self.watch = tuple(env.agents), steps, settings.get("watch")
        self.whose = whose_success(find(recipe).plan)
        """Whose success and return the training curve shows."""
        self.name = f"{find(recipe).name}, seed {seed}" + (f", run {run_folder(run).name}" if run else "")
        self.reports: list[Report] = []
        self._folder = run_folder(run) if run is not None else None
        with no_bars():  # there is one, its own
            training = train(env, team, recipe, steps, seed=seed, run=run, **settings)
        self._so_far, self._spikes, self._looked_at = Training(), [], None
        self._begun, self._scoring, self._origin = False, None, None
        self._foreground = front_end() not in LIVE if foreground is None else foreground
        self._shown = Shown(self.steps, self.stop, self._look_html, self._foreground)
        self._tell()
        self._start(training)
        if self._foreground:
            self.wait()

    def __repr__(self) -> str:
        return f"LiveDashboard({self.name}: {self._line()})"

    # What is made of its steps, in the thread

    def _begin(self, step: int | None) -> None:
        """Before anything is shown: take up what a run that goes on, or a fork, has shown before `step`."""
        if not self._begun:
            self._begun = True
            self._so_far.begin(self.run, step)
            self._origin = Origin.of(self.run)

    def _hear(self, done: int, scores: pd.DataFrame | None) -> None:
        self._scoring = done if scores is None else None
        if scores is not None:
            self._begin(done)
            self._so_far.score(scores)
            self._shown.draw_if_due(self.figure, patient=False)
        self._tell()

    def _take(self, report: Report) -> None:
        self._begin(report.step)
        self._so_far.take(report)
        self._scoring = None
        self._spikes = list(getattr(self.watch, "spikes", ()))
        self.reports = [report] if self._folder else [*self.reports, report]
        self._tell()
        self._shown.draw_if_due(self.figure, patient=report.held_out is None)

    def _close(self) -> None:
        self._begin(None)

    def _end(self) -> None:
        self._scoring = None
        self._tell()
        if self._so_far.steps or len(self.held_out):
            self._shown.draw(self.figure)
        if self.error is not None and not self._foreground:
            traceback.print_exception(self.error, file=sys.stderr)

    # Telling

    def _line(self) -> str:
        done = self._so_far.steps
        forked = f", {self._origin}" if self._origin else ""
        line = f"step {done} of {self.steps}{self._so_far.line(self.whose)}{visible(forked)}"
        if self._state == "failed":
            return f"{line}: ended by {type(self.error).__name__}: {visible(str(self.error))}"
        if self._state == "ended":
            return f"{line}: {'stopped' if done < self.steps else 'done'}"
        if self._state == "stopping":
            return f"{line}: stopping after this step"
        if self._scoring is not None:
            line += f", scoring held-out tasks after {self._scoring}"
        return f"{line} ({INTERRUPT})" if self._foreground else line

    def _tell(self) -> None:
        self._shown.tell(lambda: (self._so_far.steps, self._line(), self._state))

    def _ipython_display_(self) -> None:
        self._shown.repeat()

    # Another way from here, and a look inside

    def fork(
        self,
        run: str | Path | None = None,
        lr: float | Mapping[str, float] | None = None,
        team: Team | None = None,
        **changes: Any,
    ) -> "LiveDashboard":
        """A second training in the folder `run`, which begins as this one after its newest checkpoint and goes on
        beside it, with whatever of this one's arguments is given anew: `recipe`, `steps`, `seed`, any setting. `lr`: of
        all policies, or {agent: rate}. It has a team of its own, rebuilt from the checkpoint, or `team`, made alike.

        It plays the same held-out tasks under another seed too. See `fork` of `lab.train`.
        """
        if run is None or self._folder is None:
            lacks = "this training keeps none to begin from; start it with run=" if run else "give it run=, a folder"
            raise TypeError(f"fork: a fork begins as a run that is kept, and is one: {lacks}")
        asked = {**self._asked, "foreground": self._foreground, "fork": self._folder}
        if self._asked.get("score_seed") is None and "seed" in changes:
            asked["score_seed"] = self._asked["seed"]
        if hasattr(self.watch, "load_state"):
            asked["watch"] = copy.deepcopy(self.watch)  # set to what the checkpoint remembers
        with no_bars():
            own = own_team(load_run(self._folder), self._team, lr, team)
        return LiveDashboard(**{**asked, **changes, "team": own, "run": run})

    def look(self, step: int | None = None) -> RolloutViewer:
        """The rollouts so far, open at the most telling episode of a step, the newest if none is named."""
        source = Source(self.recorded)
        step = source.steps[-1] if step is None and source.steps else step or 0
        first = index_of(Source(source.turns(step)))["episode"].iloc[0]
        return RolloutViewer(self, at=address(step=step, episode=first), limit_mb=1.0)

    def _look_html(self) -> str:
        """What the button opens, in the place of what it opened before."""
        if self._looked_at is not None:
            self._looked_at.let_go()
        self._looked_at = self.look()
        return self._looked_at.beside_widgets()

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
        return self._so_far.curve

    @property
    def held_out(self) -> pd.DataFrame:
        """The same of held-out tasks, a row per score; empty where `score_every` asks for none."""
        return self._so_far.held_out

    @property
    def stats(self) -> pd.DataFrame:
        """What `update` reported, all steps."""
        return self._so_far.stats

    def figure(self) -> "Figure":
        """Success, return, and the norms of each agent's gradient with their spikes marked."""
        stats = self.stats
        scored = spike_scores(stats, **self._rule()) if len(stats) else None
        origin = self._origin and self._origin.refresh()
        return training_figure(self.curve, scored, self.agents, self.held_out, self.whose, origin)

    def _rule(self) -> dict[str, Any]:
        watched = self.watched()
        return {name: watched["rule"][name] for name in ("warmup", "window", "threshold")} if watched else {}

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        told = f"{self.name}: {self._line()}"
        return write(path, training_page(told, self._so_far, self.figure(), self.agents))
