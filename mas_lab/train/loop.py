"""Train a team in a loop: rollout, group, normalize, update, and again.

The loop is a generator, so that a notebook can draw, stop and resume. Arguments without a meaning are refused at the
call of `train`, before anything is played. `training_steps` has the four cells; hooks score, keep and report. Leaves
out: the work of each cell, the hooks (`hooks`), and the command line (`__main__`).
"""

import atexit
import gc
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakSet, finalize

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import UpdateCallback, learners, update
from mas_lab.check import check_env
from mas_lab.env import Env
from mas_lab.explain.spike_rule import SpikeWatch
from mas_lab.locks import one_trainer
from mas_lab.recipes import Recipe, find
from mas_lab.runs.forking import Fork
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import run_folder
from mas_lab.table import refuse_lone_groups, selected
from mas_lab.team import Team
from mas_lab.train.budget import Budget
from mas_lab.train.checks import check_training
from mas_lab.train.hooks import HeldOut, Hook, Showing
from mas_lab.train.keeping import Keeping
from mas_lab.train.progress import Curriculum, Progress, step_seed
from mas_lab.train.report import Report, tasks_learned
from mas_lab.train.settings import Settings
from mas_lab.train.staleness import Staleness, forget_versions
from mas_lab.train.verdict import has_advantage, why_silent


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
        watch: Callback that sees each gradient, see `update`. It is called on every rank. `None`: a `SpikeWatch` if
            `run` keeps the training and the back end has gradients, else no callback.
        curriculum: Function that draws the tasks of a step instead of `env.tasks`: `curriculum(env, n, split, seed)`.
            It may learn from the report of each step, see `mas_lab.train.Curriculum`. `None`: `env.tasks` draws.
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
    now = Progress(env, team, recipe, int(seed), chosen, steps, budget, watch, curriculum)
    check_training(now, run, fork)
    if watch is None and run is not None and all(policy.capabilities.gradients for policy in learners(team)):
        watch = now.watch = SpikeWatch()
    ranks = None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:  # a launcher started several processes
        from mas_lab.train.ranks import Ranks

        if chosen.staleness:
            raise ValueError(
                f"train: staleness={chosen.staleness} is for one process, and a launcher started several; leave it out"
            )
        ranks = Ranks(team)
    if ranks and not ranks.drives:
        return ranks.serve(team, watch)
    _check_env_once(env, chosen, seed)
    recorder = None if run is None else Recorder(run_folder(run)) if fork is None else Fork(run_folder(run), fork)
    stale = Staleness(now) if chosen.staleness else None
    scores = chosen.score_every is not None or chosen.score_at
    keeping = recorder and Keeping(recorder, ranks.size if ranks else 1)
    hooks = [keeping, ranks, scores and HeldOut(recorder), Showing(recorder)]
    forget_versions(team)
    loop = training_steps(now, list(filter(None, hooks)), stale, ranks.update if ranks else update)
    loop = one_trainer(learners(team), ranks.driving(loop) if ranks else loop)
    _open.add(loop)
    finalize(loop, _warn_if_idle, now)
    return loop


def _warn_if_idle(now: Progress) -> None:
    if not now.started:
        warnings.warn(
            "train: nobody looped over its result, so nothing was trained; for report in lab.train(...): print(report)",
            stacklevel=2,
        )


_open: WeakSet[Iterator[Report]] = WeakSet()
_checked: set[tuple[type, str]] = set()
"""Environments that passed `check_env` in this process."""


def _check_env_once(env: Env, chosen: Settings, seed: int) -> None:
    if chosen.check and (kind := (type(env), repr(env))) not in _checked:
        check_env(env, tasks=min(2, chosen.tasks), seed=seed)
        _checked.add(kind)


@atexit.register
def _close_all() -> None:
    """Close all trainings when the script ends, so that each saves a checkpoint."""
    for loop in list(_open):
        if not loop.gi_running:  # it runs in another thread
            loop.close()


def training_steps(now: Progress, hooks: Sequence[Hook], stale: Staleness | None, update: Callable) -> Iterator[Report]:
    """Yield a report after each step: the four cells in a row, and the hooks around them.

    `stale` plays with earlier weights, and `update` is cell 4, perhaps of several ranks. The parts that learn get their
    next value at the end of a step, so an error changes nothing.
    """
    env, team, chosen, begun, now.started = now.env, now.team, now.settings, [], True
    draw, play = (stale.tasks, stale.rollout) if stale else (now.tasks, rollout)
    gc.freeze()  # the garbage collector need not walk all that was imported again and again
    try:
        for hook in hooks:
            begun.append(hook)  # one that never began has nothing to end
            hook.begin(now)
        while not now.ended:
            for hook in hooks:
                hook.before(now)
            step, recipe, profile, played, turns = now.done, now.recipe, Counter(), [], None
            with stale.playing() if stale else nullcontext():
                while tasks := draw(step, len(played), turns):  # more than once with `rounds`
                    bounds = chosen.max_turns, chosen.workers
                    with timed(profile, "rollout"):
                        played.append(play(env, team, tasks, recipe.plan, now.seed, *bounds, step))
                    with timed(profile, "advantages"):
                        turns = recipe.group(pd.concat(played, ignore_index=True), team)
                        turns = recipe.normalize(turns, team)
                        refuse_lone_groups(turns, "train")
                        following = recipe.after(turns, team)
                        turns = of_learners(turns, chosen.learning(step))
            with timed(profile, "update"), stale.updating(following) if stale else nullcontext():
                stats = update(
                    team, turns, recipe.loss, recipe.aggregate, chosen.epochs, chosen.minibatches, chosen.max_norm,
                    chosen.lr_scale(step), watch=now.watch, seed=step_seed(now.seed, step),
                )  # fmt: skip
            stats.insert(0, "step", step)
            report = Report(step, turns, stats, dict(profile), notes_of(turns, chosen))
            now.advance(report, following)
            for hook in hooks:
                report = hook.after(now, report)
            yield report
        if stale:
            forget_versions(team)
        for hook in hooks:
            hook.end(now)
    except BaseException as error:
        for hook in begun:
            hook.stop(now, error)
        raise
    finally:
        gc.unfreeze()
        for hook in begun:
            hook.finish()


@contextmanager
def timed(profile: Counter, part: str) -> Iterator[None]:
    """Add the seconds of the `with` block to a part."""
    start = time.perf_counter()
    yield
    profile[part] += time.perf_counter() - start


def of_learners(turns: pd.DataFrame, agents: Sequence[str] | None) -> pd.DataFrame:
    """Return the table in which only rows of the agents that learn in this step are selected; `None`: all."""
    return turns if agents is None else turns.assign(selected=selected(turns) & turns["agent"].isin(agents))


def notes_of(turns: pd.DataFrame, chosen: Settings) -> tuple[str, ...]:
    """Return remarks about a step in which little or nothing was learned."""
    notes, learned = [], tasks_learned(turns)
    if chosen.rounds > 1 and learned < chosen.tasks:
        found = f"{learned} of {chosen.tasks} tasks have a row that is learned from"
        notes.append(f"{found}, after {chosen.rounds} rounds of {turns['task'].nunique()} tasks")
    if not selected(turns).any():
        notes.append("no row is selected, nothing was learned")
    elif not has_advantage(turns):
        notes.append(f"every advantage is 0, nothing was learned: {why_silent(turns)}")
    return tuple(notes)
