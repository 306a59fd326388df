"""The loop: rollout, group, normalize, update, again. A generator, so that a notebook can draw, stop and resume.

What cannot be meant is refused here, before anything is played. Leaves out: a step, and the next (`steps`), and the
command line (`__main__`).
"""

import atexit
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakSet

from mas_lab.cells.normalization import refuse_nonsense
from mas_lab.cells.update import UpdateCallback, check_update, learners, update
from mas_lab.check import check_env
from mas_lab.display.progress import in_notebook
from mas_lab.env import Env, spec
from mas_lab.locks import one_trainer
from mas_lab.recipes import Recipe, find
from mas_lab.runs.forking import Fork
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import run_folder
from mas_lab.team import Team
from mas_lab.train.budget import Budget
from mas_lab.train.drawing import Curriculum
from mas_lab.train.memory import own_copies
from mas_lab.train.report import Report
from mas_lab.train.settings import Settings
from mas_lab.train.status_line import with_status_line
from mas_lab.train.steps import Training


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
    """Train `team` on `env` by `recipe`; yields a `Report` after each step. `settings`: the fields of `Settings`.

    `run`: a folder (a bare name goes under `runs_dir()`) that keeps the run; on an existing run it goes on where that
    stopped, with the team passed in set to the saved one, or says why it cannot. `steps` is the total: resuming a
    3-step run with steps=6 makes three more. Close the generator, or break out of the loop, at any time.
    `budget`: {"tokens": 100_000}, or "episodes", or "optimizer_steps": it ends with the step that reaches so many, or
    after `steps` if these are made before; one of the two must be given.

    `fork`: another run's folder or name. The new run in `run` begins as that one after its newest checkpoint (its steps
    and scores until then, weights, optimizer, what its parts and its watch remember), and goes on under what is asked
    now: another recipe, seed, settings, or a team with other learning rates, sampling or frozen agents. run.json tells
    what that is. The env and what the team is made of stay; `steps` counts those of the other run too.

    Until it has ended, other threads may play with the team (`rollout`, `evaluate`), which changes nothing here; what
    would change the weights of a policy that learns is refused there with a PolicyError. It takes no notice of a loop
    that was left unfinished in the main thread.

    `curriculum(env, n, split, seed)` draws the tasks of a step in the place of `env.tasks`, and may `see(report)`, see
    `train.drawing`. A part of the recipe, or a curriculum, that has `state()` and `load_state(state)` remembers from
    step to step: training copies it, keeps what it remembers with each checkpoint, and goes on with that.

    Under `accelerate launch` all ranks call this alike, and learn as one; only rank 0 plays, keeps the run and yields
    reports, so that what the loop's body does is done once. `watch` is called on every rank. A run may go on with
    another number of ranks: the results then agree up to float noise. Under FSDP each rank holds a part of the weights;
    after such a training they are whole in its run alone, `load_run(run).team()`.
    """
    recipe, chosen = find(recipe), Settings.of(settings)
    recipe, curriculum, memory = own_copies(recipe, curriculum)
    refuse_nonsense(**recipe.normalization)
    _refuse_what_cannot_choose(recipe, chosen, curriculum)
    check_update(team, recipe.loss, recipe.aggregate, chosen.max_norm, watch, "train")
    if steps is None and budget is None:
        raise TypeError("train: give steps=, how many to make, or budget={'tokens': ...}, at which it ends")
    budget = None if budget is None else Budget.of(budget)
    for name, number in (("steps", steps), ("seed", seed)):
        if number is not None and number < 0:
            raise ValueError(f"train: {name}={number} is negative")
    if getattr(recipe.plan, "siblings", 2) < 2:
        raise ValueError(f"train: {recipe.plan} gives groups of one (K = 1): nothing is compared; ask for two or more")
    if fork is not None and run is None:
        raise TypeError(f"train: fork={str(fork)!r} begins a new run, and wants run=, a folder to keep it in")
    missing = [agent for agent in env.agents if agent not in team]
    if missing:
        raise ValueError(
            f"train: agent {missing[0]!r} has no policy; the env plays {env.agents}, the team has {list(team)}"
        )
    ranks = _ranks(team)
    if ranks and not ranks.drives:
        return ranks.serve(team, watch, update)
    if chosen.check and (kind := (type(env), repr(spec(env)))) not in _checked:
        with ranks.reporting_errors() if ranks else nullcontext():
            check_env(env, tasks=2, split=chosen.split, seed=seed)
        _checked.add(kind)
    recorder = _recorder(run, fork)
    training = Training(env, team, recipe, seed, chosen, watch, curriculum, memory, recorder, ranks, budget)
    loop = with_status_line(training.run(steps), recipe, steps) if in_notebook() else training.run(steps)
    loop = _driven(loop, ranks) if ranks else loop
    loop = one_trainer(learners(team), loop)
    _open.add(loop)
    return loop


_open: WeakSet[Iterator[Report]] = WeakSet()
_checked: set[tuple[type, str]] = set()
"""Environments that passed `check_env` in this process."""


@atexit.register
def _close_all() -> None:
    """A script that ends in the middle of its trainings leaves their checkpoints."""
    for loop in list(_open):
        if not loop.gi_running:  # in another thread
            loop.close()


def _refuse_what_cannot_choose(recipe: Recipe, chosen: Settings, curriculum: Curriculum | None) -> None:
    for name, part in (("the recipe's select", recipe.select), ("curriculum", curriculum)):
        if part is not None and not callable(part):
            raise TypeError(
                f"train: {name}={part!r} cannot be called; see lab.not_flat, and Curriculum in train.drawing"
            )
    if chosen.rounds > 1 and recipe.select is None:
        raise ValueError(
            f"train: rounds={chosen.rounds} draws more tasks until enough are worth learning from, and recipe "
            f"{recipe.name!r} does not say which are: recipe.replace(select=lab.not_flat())"
        )


def _ranks(team: Team):
    """The processes that a launcher started; `None` in a process of its own, which never imports what joins them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from mas_lab.backends.distributed.ranks import Ranks

    return Ranks.of(team)


def _driven(loop: Iterator[Report], ranks) -> Iterator[Report]:
    with ranks.driving():
        yield from loop


def _recorder(run: str | Path | None, fork: str | Path | None) -> Recorder | None:
    if run is None or fork is None:
        return None if run is None else Recorder(run_folder(run))
    return Fork(run_folder(run), fork)
