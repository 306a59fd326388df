"""Train a team in a loop: rollout, group, normalize, update, and again.

The loop is a generator, so that a notebook can draw, stop and resume. Arguments without a meaning are refused at the
call of `train`, before anything is played. `Training` makes the steps and keeps tables and checkpoints. Leaves out: the
work of each cell, the files of a run (`runs.recorder`), and the command line (`__main__`).
"""

import atexit
import copy
import gc
import os
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.episode import RolloutError
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import UpdateCallback, learners, update
from mas_lab.check import check_env
from mas_lab.display.progress import in_notebook, may_print
from mas_lab.env import Env, EnvError, not_plain, with_max_turns
from mas_lab.explain.uphill import uphill
from mas_lab.locks import locked, one_trainer
from mas_lab.policy import SAMPLED, NotFiniteError
from mas_lab.recipes import Recipe, find, learning
from mas_lab.runs.forking import Fork
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import RunError, run_folder
from mas_lab.table import refuse_lone_groups, selected
from mas_lab.team import Team
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.checks import check_training
from mas_lab.train.drawing import Curriculum, drawn, step_seed
from mas_lab.train.held_out import HeldOut
from mas_lab.train.record import describe_training
from mas_lab.train.report import Report
from mas_lab.train.settings import Settings
from mas_lab.train.staleness import earlier_weights, may_overlap, snapshots, weights_to_keep, with_versions
from mas_lab.train.status_line import with_status_line
from mas_lab.train.verdict import MOST, learns, verdict, verdict_of_table, why_silent

DEAD = 3
"""Steps without an advantage after which a training warns."""
Played = tuple[pd.DataFrame, Recipe, dict[str, float], tuple[str, ...]]
"""A step before its update: the table with advantages, the recipe of the next step, seconds of each cell, remarks."""


def train(
    env: Env,
    team: Team,
    recipe: str | Recipe,
    steps: int | None = None,
    seed: int = 0,
    run: str | Path | None = None,
    watch: UpdateCallback | None = None,
    curriculum: Curriculum | None = None,
    budget: Budget | Mapping[str, int] | None = None,
    fork: str | Path | None = None,
    **settings: Any,
) -> Iterator[Report]:
    """Train `team` on `env` by `recipe`.

    The call checks its arguments, and the loop over its result makes the steps. You may close the generator, or break
    out of the loop, at any time; a kept run then saves a checkpoint.

    Args:
        env: The environment. Each of its agents needs a policy in `team`.
        team: The team. Its policies learn, except those of frozen agents.
        recipe: The name of a recipe, or a `Recipe`.
        steps: Total number of steps: if you resume a 3-step run with steps=6, it makes three more. `None`: no bound,
            `budget` ends the training. One of `steps` and `budget` must be given.
        seed: Seed of the tasks and of all draws, 0 or more.
        run: Folder that keeps the run; a bare name goes under `runs_dir()`. If the folder holds a run, training goes on
            where that run stopped, with `team` set to the saved weights, or an error says why it cannot. `None`:
            nothing is kept.
        watch: Callback that sees each gradient, see `update`. It is called on every rank. `None`: no callback.
        curriculum: Function that draws the tasks of a step instead of `env.tasks`: `curriculum(env, n, split, seed)`.
            It may learn from the report of each step, see `train.drawing`. `None`: `env.tasks` draws.
        budget: {"tokens": 100_000}, or "episodes", or "optimizer_steps". Training ends with the step that reaches this
            amount, or after `steps` if these are made earlier. `None`: no budget.
        fork: Folder or name of another run, which the new run in `run` continues under other settings; see below.
            `None`: no fork.
        **settings: The fields of `Settings`.

    Yields:
        A `Report` after each step.

    Raises:
        TypeError: Both `steps` and `budget` are missing, `fork` comes without `run`, a setting is unknown, a part that
            must be called cannot be called, or `run` is given and a part is a lambda, a function within a function, or
            an object with attributes whose class is no dataclass.
        ValueError: An argument has no meaning: a negative number, an unknown recipe, groups of one, an agent without a
            policy, or `rounds` above 1 without a `select` in the recipe.
        EnvError: The environment breaks its contract, at the call (`check_env`) or in a step.
        PolicyError: The back end of a policy cannot make this update, or another thread trains its model.
        RunError: The run cannot be written, resumed or forked.
        RolloutError: A rollout failed. The message names task, agent and turn.
        UpdateError: A loss or gradient must not reach the optimizer. The message names policy, agent, task and turn.

    Fork: the new run begins as the other run after its newest checkpoint. It takes over the steps and scores until
    then, weights, optimizer, and the state of its parts and of its watch. It goes on under the present arguments:
    another recipe, seed or settings, or a team with other learning rates, sampling or frozen agents. run.json lists
    these changes. The env and the structure of the team stay the same. `steps` also counts the steps of the other run.

    Learning: a part of the recipe may learn from step to step, see `Recipe.after`. Training goes on with the recipe of
    the next step, keeps the states of its parts with each checkpoint, and restores them on resume.

    Threads: until the training has ended, other threads may play with the team (`rollout`, `evaluate`). This does not
    change the training. A change of the weights of a learning policy raises PolicyError in the other thread. A loop
    that was left unfinished in the main thread does not block other threads.

    Ranks: under `accelerate launch` all ranks make this call with the same arguments, and they learn as one. Only rank
    0 plays, keeps the run and yields reports, so the body of the loop runs once. A run may go on with another number of
    ranks; the results then agree up to float noise.
    """
    check_arguments(train, locals(), steps=0, seed=0)
    recipe, chosen, budget = find(recipe), Settings.of(settings), None if budget is None else Budget.of(budget)
    check_training(env, team, recipe, chosen, steps, budget, run, fork, watch, curriculum)
    ranks = _ranks(team)
    if ranks and chosen.staleness:
        raise ValueError(
            f"train: staleness={chosen.staleness} is for one process, and a launcher started several; leave it out"
        )
    if ranks and not ranks.drives:
        return ranks.serve(team, watch, update)
    with ranks.reporting_errors() if ranks else nullcontext():
        _check_env_once(env, chosen, seed)
    recorder = None if run is None else Recorder(run_folder(run)) if fork is None else Fork(run_folder(run), fork)
    training = Training(env, team, recipe, int(seed), chosen, watch, curriculum, recorder, ranks, budget)
    loop = with_status_line(training.run(steps), recipe, steps) if in_notebook() else training.run(steps)
    loop = one_trainer(learners(team), _driven(loop, ranks) if ranks else loop)
    _open.add(loop)
    return loop


_open: WeakSet[Iterator[Report]] = WeakSet()
_checked: set[tuple[type, str, str]] = set()
"""Environments, with the split, that passed `check_env` in this process."""


def _check_env_once(env: Env, chosen: Settings, seed: int) -> None:
    if chosen.check and (kind := (type(env), repr(env), chosen.split)) not in _checked:
        check_env(env, tasks=min(2, chosen.tasks), split=chosen.split, seed=seed)
        _checked.add(kind)


@atexit.register
def _close_all() -> None:
    """Close all trainings when the script ends, so that each saves a checkpoint."""
    for loop in list(_open):
        if not loop.gi_running:  # it runs in another thread
            loop.close()


def _ranks(team: Team):
    """Return the processes of a launcher, or `None` for a single process, which then needs no import of `Ranks`."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from mas_lab.train.ranks import Ranks

    return Ranks.of(team)


def _driven(loop: Iterator[Report], ranks) -> Iterator[Report]:
    with ranks.driving():
        yield from loop


@dataclass
class Training:
    """One training in progress: the arguments of `train`, and the present values of the parts that learn."""

    env: Env
    team: Team
    recipe: Recipe
    seed: int
    chosen: Settings
    watch: UpdateCallback | None
    curriculum: Curriculum | None
    recorder: Recorder | None
    ranks: Any = None
    budget: Budget | None = None
    done: int = 0
    """Number of steps that were made."""
    usage: Usage = field(default_factory=Usage)
    """The resources used; those of earlier calls are only read if a budget or a score depends on them."""
    complete: bool = True
    """True if the weights are those after `done` steps, and the tables of each of these steps are kept."""
    silent: int = 0
    """Number of steps in a row in which no row had an advantage."""
    recent: deque[pd.DataFrame] = field(default_factory=lambda: deque(maxlen=MOST))
    """Tables of the last steps, without tokens, for the verdict on a training that keeps no run."""
    ahead: Future[Played] | None = None
    """The next step, if it was played during the update before. `None`: it is still to be played."""
    versions: list[int] = field(default_factory=list)
    """Versions of the learning policies after `done` steps. They differ if another training has used the team since."""

    def run(self, steps: int | None) -> Iterator[Report]:
        """Yield a report after each step, until `steps` steps are made or the budget is used up."""
        self._forget_versions()
        if self.recorder:
            self._begin()
            if self.done and self._ended(steps):
                made = steps is not None and self.done >= steps
                reason = f"{self.done} of {steps} steps" if made else "its budget is used up"
                warnings.warn(
                    f"train: the run {self.recorder.folder} is already complete: {reason}; nothing is trained. Pass "
                    "more steps, or keep the new run in another folder", stacklevel=2,
                )  # fmt: skip
            if self.chosen.uphill and not self.done and self.recorder.uphill is None:
                env, tasks = with_max_turns(self.env, self.chosen.max_turns), self.chosen.tasks
                found = uphill(self.team, env, self.chosen.uphill, tasks=tasks, seed=self.seed)
                self.recorder.keep_uphill(found)
        if not self.chosen.staleness:
            self._forget_versions()  # of the run that was forked
        self.versions = self._versions()
        gc.freeze()  # the garbage collector need not walk all that was imported again and again
        try:
            held_out = HeldOut(self.env, self.team, self.seed, self.chosen, self.recorder, self.usage, self.budget)
            if self.ranks:
                self.ranks.assemble(self.team, self.watch)
            while not self._ended(steps):
                if self.recorder and self.recorder.is_superseded():
                    raise RunError(f"{self.recorder.folder}: a later train() went on with this run; use that one")
                before = held_out.now(self.done)
                report = self._step(self.done, goes_on=steps is None or self.done + 1 < steps)
                after = held_out.after(self.done, last=self._ended(steps))
                if self.done % self.chosen.save_every == 0 or self._ended(steps):
                    self._save()
                scores = [table for table in (before, after) if table is not None]
                yield replace(report, held_out=pd.concat(scores, ignore_index=True)) if scores else report
            held_out.now(self.done, last=True)  # needed if an earlier call ended before the last scores were made
            if self.done and may_print():
                print(self._verdict())
            self._forget_versions()
        except GeneratorExit:
            self._save()
        except BaseException as error:
            self._save_after(error)
            raise
        finally:
            gc.unfreeze()
            if self.recorder:
                self.recorder.end()

    def _ended(self, steps: int | None) -> bool:
        """Return True if all steps are made or the budget is used up."""
        made = steps is not None and self.done >= steps
        return made or (self.budget is not None and self.usage.reaches(self.budget, self.done))

    def _save_after(self, error: BaseException) -> None:
        """Save a checkpoint after an error if the weights are those after `done` steps.

        That is so during rollout, scores and advantages, and in an update until the first policy steps. Between two
        optimizer steps of an update, and before its tables are kept, no checkpoint is possible; the run then goes on
        from the newest one. Weights that cannot be sampled from are not kept.
        """
        try:
            # Ranks save together. This is impossible if one of them may have ended or waits within an update.
            lost = isinstance(error.__cause__, NotFiniteError)
            if self.complete and not lost and (not self.ranks or isinstance(error, RolloutError | EnvError)):
                self._save()
        except Exception as failed:
            error.add_note(f"mas_lab: no checkpoint of step {self.done} was kept: {type(failed).__name__}: {failed}")

    def _begin(self) -> None:
        """Begin the run, or continue it where it stopped, with the number of torch threads that it recorded.

        Several ranks get their number of threads from their launcher.
        """
        from mas_lab.backends.torch.threads import take_threads

        ranks = self.ranks.size if self.ranks else 1
        config = describe_training(self.env, self.team, self.recipe, self.seed, self.chosen, self.curriculum, ranks)
        if not self.ranks:
            config["threads"] = self.recorder.recorded_threads() or config["threads"]
        self.done, states = self.recorder.begin(config, self.team, self.watch, self._states())
        self._restore(states)
        if self.budget or self.chosen.score_at:
            self.usage.steps = Usage.of(self.recorder).steps
        if not self.ranks:
            take_threads(config["threads"], str(self.recorder.folder))

    def _states(self) -> dict[str, Any]:
        """Return the state of each part that learns, by its place; raise TypeError if one is not plain data."""
        parts = learning({**vars(self.recipe), "curriculum": self.curriculum})
        states = {place: part.state for place, part in parts.items()}
        if problem := not_plain(states, "train: state"):
            raise TypeError(problem)
        return states

    def _restore(self, states: Mapping[str, Any]) -> None:
        """Set the parts that learn to these states."""
        parts = {**vars(self.recipe), "curriculum": self.curriculum}
        restored = {place: replace(parts[place], state=state) for place, state in states.items()}
        self.curriculum = restored.pop("curriculum", self.curriculum)
        self.recipe = self.recipe.replace(**restored)

    def _save(self) -> None:
        if self.recorder and not self.recorder.is_superseded():
            with locked(self.team.policies.values()):
                if self._versions() == self.versions:
                    self.recorder.save(self.done, self.team, self.watch, self._states())

    def _versions(self) -> list[int]:
        return [policy.version for policy in learners(self.team)]

    def _step(self, step: int, goes_on: bool) -> Report:
        """Make one training step: the four cells in a row, then keep the tables.

        The parts that learn get their next value at the end, so an error changes nothing. `goes_on`: one more step may
        follow.
        """
        staleness = self.chosen.staleness
        if self.ahead:
            turns, recipe, seconds, notes = self.ahead.result()
        else:
            with earlier_weights(self.team, step, staleness) if staleness else nullcontext() as versions:
                turns, recipe, seconds, notes = self._play(step, self.recipe, self.team, versions)
        kept = weights_to_keep(self.team, step, staleness) if staleness else []
        with self._playing_ahead(step + 1, recipe) if goes_on else nullcontext(), _timed(seconds, "update"):
            stats = self._update(turns, step)
        report = Report(step, turns, stats, seconds, notes)
        if hasattr(self.curriculum, "after"):
            self.curriculum = self.curriculum.after(report)
        self._warn_if_dead(report)
        self.usage.add(report)
        if self.recorder:
            self.recorder.tables(step, turns, stats)
        else:
            self.recent.append(turns.drop(columns=SAMPLED))
        for policy, weights in kept:
            policy.kept = weights
        self.recipe, self.done = recipe, step + 1
        self.versions, self.complete = self._versions(), True
        return report

    @contextmanager
    def _playing_ahead(self, step: int, recipe: Recipe) -> Iterator[None]:
        """Play the next step in a thread until the end of the `with` block, if the engines sample meanwhile."""
        self.ahead = None
        if not self.chosen.staleness or not may_overlap(self.team, vars(recipe)):
            yield
            return
        with earlier_weights(self.team, step - 1, self.chosen.staleness - 1) as versions:
            team = snapshots(self.team)
        with ThreadPoolExecutor(1, "rollout") as thread:
            self.ahead = thread.submit(self._play, step, recipe, team, versions)
            yield

    def _play(self, step: int, recipe: Recipe, team: Team, versions: Mapping[str, int] | None) -> Played:
        """Make the first three cells of a step.

        While too few tasks have a row to learn from, more tasks are played (`Settings.rounds`), and all rounds are
        compared in one table.
        """
        chosen, seconds = self.chosen, {}
        rounds, known, missing = [], [], chosen.tasks
        while missing and len(rounds) < chosen.rounds:
            with _timed(seconds, "rollout"):
                by = step_seed(self.seed, step, len(rounds))
                tasks = drawn(self.env, self.curriculum, missing, chosen.split, by, known)
                known += [task.id for task in tasks]
                played = rollout(self.env, team, tasks, recipe.plan, self.seed, chosen.max_turns, chosen.workers, step)
                rounds.append(played if versions is None else with_versions(played, versions))
            with _timed(seconds, "advantages"):
                turns = rounds[0] if len(rounds) == 1 else pd.concat(rounds, ignore_index=True)
                turns = recipe.group(turns, team)
                turns = recipe.normalize(turns, team)
                refuse_lone_groups(turns, "train")
                trained_on = self._of_learning_agents(turns, step)
            missing = chosen.tasks - trained_on.loc[selected(trained_on), "task"].nunique()
        with _timed(seconds, "advantages"):
            recipe = recipe.after(turns, team)
        return trained_on, recipe, seconds, self._notes(trained_on, missing, len(known))

    def _forget_versions(self) -> None:
        """Forget the earlier weights that a training with `staleness` has kept."""
        for policy in learners(self.team):
            if policy.capabilities.versions:
                policy.kept = {}

    def _of_learning_agents(self, turns: pd.DataFrame, step: int) -> pd.DataFrame:
        """Return the table in which only rows of the agents that learn in this step are selected."""
        agents = self.chosen.learning(step)
        return turns if agents is None else turns.assign(selected=selected(turns) & turns["agent"].isin(agents))

    def _update(self, turns: pd.DataFrame, step: int) -> pd.DataFrame:
        """Update the team; after an error before the first policy step, weights and watch are unchanged."""
        options = {name: getattr(self.chosen, name) for name in ("epochs", "minibatches", "max_norm", "nonfinite")}
        options |= {"loss": self.recipe.loss, "aggregate": self.recipe.aggregate}
        options |= {"lr_scale": self.chosen.lr_scale(step), "seed": step_seed(self.seed, step)}
        remembers = self.recorder and hasattr(self.watch, "state") and hasattr(self.watch, "load_state")
        versions, watched = self._versions(), copy.deepcopy(self.watch.state()) if remembers else None
        self.complete = False
        try:
            with self.ranks.updating(turns, options) if self.ranks else nullcontext():
                stats = update(self.team, turns, watch=self.watch, **options)
        except BaseException:
            if self._versions() == versions:
                if remembers:
                    self.watch.load_state(watched)
                self.complete = True
            raise
        stats.insert(0, "step", step)
        return stats

    def _notes(self, turns: pd.DataFrame, missing: int, known: int) -> tuple[str, ...]:
        """Return remarks about a step in which little or nothing was learned."""
        notes, tasks, rounds = [], self.chosen.tasks, self.chosen.rounds
        if rounds > 1 and missing:
            found = f"{tasks - missing} of {tasks} tasks have a row that is learned from"
            notes.append(f"{found}, after {rounds} rounds of {known} tasks")
        if not selected(turns).any():
            notes.append("no row is selected, nothing was learned")
        elif not learns(turns):
            notes.append(f"every advantage is 0, nothing was learned: {why_silent(turns)}")
        return tuple(notes)

    def _verdict(self) -> str:
        """Return the verdict on the training; a damaged table of a kept run costs the verdict alone."""
        try:
            if self.recorder:
                return verdict(self.recorder)
            return verdict_of_table(pd.concat(self.recent), self.team.frozen)
        except RunError as error:
            return f"No verdict: {error}"

    def _warn_if_dead(self, report: Report) -> None:
        """Warn once, when no row of `DEAD` steps in a row had an advantage, unless every episode succeeds."""
        self.silent = 0 if learns(report.turns) or report.success == 1 else self.silent + 1
        if self.silent == DEAD:
            reason = why_silent(report.turns)
            warnings.warn(
                f"train: no row had an advantage in the last {DEAD} steps, nothing is learned: {reason}. "
                "docs/my_reward_does_not_move.md lists the causes", stacklevel=2,
            )  # fmt: skip


@contextmanager
def _timed(profile: dict[str, float], name: str):
    start = time.perf_counter()
    yield
    profile[name] = profile.get(name, 0.0) + time.perf_counter() - start
