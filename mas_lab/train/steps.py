"""Run a training in progress: make its next step, and keep tables and checkpoints.

Leaves out: the check of the arguments (`loop`), the work of each cell, and the files of a run (`runs.recorder`).
"""

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from mas_lab.cells.episode import RolloutError
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import UpdateCallback, learners, nonzero, update
from mas_lab.env import Env, EnvError, Task
from mas_lab.locks import locked
from mas_lab.policy import NotFiniteError
from mas_lab.recipes import Recipe
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import RunError
from mas_lab.table import refuse_lone_groups, selected
from mas_lab.team import Team
from mas_lab.train.budget import Budget, Spent
from mas_lab.train.drawing import Curriculum, drawn, step_seed
from mas_lab.train.held_out import HeldOut
from mas_lab.train.memory import Memory
from mas_lab.train.record import describe
from mas_lab.train.report import Report
from mas_lab.train.settings import Settings


@dataclass
class Training:
    """One training in progress: the arguments of `train`, with its own copies of the parts that remember."""

    env: Env
    team: Team
    recipe: Recipe
    seed: int
    chosen: Settings
    watch: UpdateCallback | None
    curriculum: Curriculum | None
    memory: Memory
    recorder: Recorder | None
    ranks: Any = None
    budget: Budget | None = None
    done: int = 0
    """Number of steps that were made."""
    spent: Spent | None = None
    """The resources spent, if a budget or a score depends on them."""
    whole: bool = True
    """True if the weights are those after `done` steps, and the tables of each of these steps are kept."""
    unkept: Report | None = None
    """The last step, if its update is done but its tables are not kept yet; else `None`."""
    learned: list[int] = field(default_factory=list)
    """Versions of the learning policies after `done` steps. They differ if another training has used the team since."""

    def run(self, steps: int | None) -> Iterator[Report]:
        """Yield a report after each step, until `steps` steps are made or the budget is spent."""
        if self._counts:
            self.spent = Spent()
        if self.recorder:
            self._begin()
        self.learned = self._learned()
        try:
            held_out = None
            if self.chosen.score_every is not None or self.chosen.score_at:
                held_out = HeldOut(self.env, self.team, self.seed, self.chosen, self.recorder, self.spent)
            if self.ranks:
                self.ranks.assemble(self.team, self.watch)
            while not self._ended(steps):
                if self.recorder and self.recorder.is_superseded():
                    raise RunError(f"{self.recorder.folder}: a later train() went on with this run; use that one")
                scores = [held_out.now(self.done)] if held_out else []
                report = self._step(self.done)
                if held_out:
                    scores.append(held_out.after(self.done, last=self._ended(steps)))
                if self.done % self.chosen.save_every == 0 or self._ended(steps):
                    self._save()
                yield _with_scores(report, scores)
            if held_out and self._ended(steps):  # needed if an earlier call ended before the last scores were made
                held_out.now(self.done, last=True)
        except GeneratorExit:
            self._save()
        except BaseException as error:
            self._save_after(error)
            raise
        finally:
            if self.recorder:
                self.recorder.end()

    @property
    def _counts(self) -> bool:
        """Return True if a budget or a score depends on the resources spent."""
        return self.budget is not None or bool(self.chosen.score_at)

    def _ended(self, steps: int | None) -> bool:
        """Return True if all steps are made or the budget is spent."""
        made = steps is not None and self.done >= steps
        return made or (self.budget is not None and self.spent.reaches(self.budget, self.done))

    def _save_after(self, error: BaseException) -> None:
        """Save a checkpoint after an error if the weights are those after `done` steps.

        That is so during rollout, scores and advantages, and in an update until the first policy steps. Between two
        optimizer steps of an update no checkpoint is possible; the run then goes on from the newest one. If an
        interrupt comes before the tables of a step are kept, they are kept first. Weights that cannot be sampled from
        are not kept.
        """
        try:
            if self.unkept is not None and not isinstance(error, Exception):
                self._keep(self.unkept)
            # Ranks save together. This is impossible if one of them may have ended or waits within an update.
            lost = isinstance(error.__cause__, NotFiniteError)
            if self.whole and not lost and (not self.ranks or isinstance(error, RolloutError | EnvError)):
                self._save()
        except Exception as failed:
            error.add_note(f"mas_lab: no checkpoint of step {self.done} was kept: {type(failed).__name__}: {failed}")

    def _keep(self, report: Report) -> None:
        if self.recorder:
            self.recorder.tables(report.step, report.turns, report.stats)
        self.unkept, self.whole = None, True

    def _begin(self) -> None:
        """Begin the run, or continue it where it stopped, with the number of torch threads that it recorded.

        Several ranks get their number of threads from their launcher.
        """
        from mas_lab.backends.torch.threads import take_threads

        ranks = self.ranks.size if self.ranks else 1
        asked = describe(self.env, self.team, self.recipe, self.seed, self.chosen, self.curriculum, ranks)
        if not self.ranks:
            asked["threads"] = self.recorder.recorded_threads() or asked["threads"]
        self.done = self.recorder.begin(asked, self.team, self.watch, self.memory)
        if self._counts:
            self.spent.steps = Spent.of(self.recorder).steps
        if not self.ranks:
            take_threads(asked["threads"], str(self.recorder.folder))

    def _save(self) -> None:
        if self.recorder and not self.recorder.is_superseded():
            with locked(self.team.policies.values()):
                if self._learned() == self.learned:
                    self.recorder.save(self.done, self.team, self.watch, self.memory)

    def _learned(self) -> list[int]:
        return [policy.version for policy in learners(self.team)]

    def _step(self, step: int) -> Report:
        """Make one training step: rollout, advantages, update, record.

        While too few tasks have a row to learn from, more tasks are played (`Settings.rounds`). The advantages of all
        rounds are computed in one table, so the memory of the recipe changes once per step. An error restores it.
        """
        chosen, recipe_memory, seconds = self.chosen, self.memory.of_recipe(), {}
        before, rounds, known, missing = recipe_memory.state(), [], [], chosen.tasks
        with self.memory.unmoved_by_errors():
            while missing and len(rounds) < chosen.rounds:
                with _timed(seconds, "rollout"):
                    tasks = self._tasks(step, len(rounds), missing, known)
                    rounds.append(rollout(
                        self.env, self.team, tasks, self.recipe.plan, self.seed, chosen.max_turns, chosen.workers, step,
                        chosen.step_timeout,
                    ))  # fmt: skip
                with _timed(seconds, "advantages"):
                    recipe_memory.load_state(before)
                    turns = rounds[0] if len(rounds) == 1 else pd.concat(rounds, ignore_index=True)
                    turns = self.recipe.advantages(turns)
                    refuse_lone_groups(turns, "train")
                missing = chosen.tasks - turns.loc[selected(turns), "task"].nunique()
            with _timed(seconds, "update"):
                stats = self._update(turns, step)
            report = Report(step, turns, stats, seconds, self._notes(turns, missing, len(known)))
            if hasattr(self.curriculum, "see"):
                self.curriculum.see(report)
        self._record(report)
        return report

    def _tasks(self, step: int, round_: int, n: int, known: list[str]) -> list[Task]:
        """Return `n` tasks that are not in `known`, the task ids of this step; add their ids to `known`."""
        by = step_seed(self.seed, step, round_)
        tasks = drawn(self.env, self.curriculum, n, self.chosen.split, by, known)
        known += [task.id for task in tasks]
        return tasks

    def _update(self, turns: pd.DataFrame, step: int) -> pd.DataFrame:
        """Update the team; after an error before the first policy step, weights and watch are unchanged."""
        options = {
            "loss": self.recipe.loss,
            "aggregate": self.recipe.aggregate,
            "epochs": self.chosen.epochs,
            "minibatches": self.chosen.minibatches,
            "max_norm": self.chosen.max_norm,
            "lr_scale": self.chosen.lr_scale(step),
            "nonfinite": self.chosen.nonfinite,
            "seed": step_seed(self.seed, step),
        }
        versions, watched = self._learned(), self._watched()
        self.whole = False
        try:
            with self.ranks.updating(turns, options) if self.ranks else nullcontext():
                stats = update(self.team, turns, watch=self.watch, **options)
        except BaseException:
            if self._learned() == versions:
                if watched is not None:
                    self.watch.load_state(watched)
                self.whole = True
            raise
        stats.insert(0, "step", step)
        return stats

    def _notes(self, turns: pd.DataFrame, missing: int, known: int) -> tuple[str, ...]:
        """Return remarks about a step in which little or nothing was learned."""
        notes, tasks, rounds = [], self.chosen.tasks, self.chosen.rounds
        if rounds > 1 and missing:
            found = f"{tasks - missing} of {tasks} tasks have a row that is learned from"
            notes.append(f"{found}, after {rounds} rounds of {known} tasks")
        if not (chosen := selected(turns)).any():
            notes.append("no row is selected, nothing was learned")
        elif not nonzero(turns.loc[chosen, "advantage"]).any():
            notes.append("all groups are flat: every advantage is 0, nothing was learned")
        return tuple(notes)

    def _record(self, report: Report) -> None:
        """Count a step as made, and keep its tables."""
        self.done, self.unkept, self.learned = report.step + 1, report, self._learned()
        if self._counts:
            self.spent.add(report)
        self._keep(report)

    def _watched(self) -> Any:
        """Return a copy of the state of `watch` if a checkpoint would keep it, else `None`."""
        remembers = self.recorder and hasattr(self.watch, "state") and hasattr(self.watch, "load_state")
        return copy.deepcopy(self.watch.state()) if remembers else None


def _with_scores(report: Report, scores: list[pd.DataFrame | None]) -> Report:
    made = [table for table in scores if table is not None]
    return replace(report, held_out=pd.concat(made, ignore_index=True)) if made else report


@contextmanager
def _timed(profile: dict[str, float], name: str):
    start = time.perf_counter()
    yield
    profile[name] = profile.get(name, 0.0) + time.perf_counter() - start
