"""Train a team in a loop: rollout, group, normalize, update, and again.

The loop is a generator, so that a notebook can draw, stop and resume. Arguments without a meaning are refused here,
before anything is played. Leaves out: the steps themselves (`steps`) and the command line (`__main__`).
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
from mas_lab.check.env import check_env
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
            It may have a method `see(report)`, see `train.drawing`. `None`: `env.tasks` draws.
        budget: {"tokens": 100_000}, or "episodes", or "optimizer_steps". Training ends with the step that reaches this
            amount, or after `steps` if these are made earlier. `None`: no budget.
        fork: Folder or name of another run, which the new run in `run` continues under other settings; see below.
            `None`: no fork.
        **settings: The fields of `Settings`.

    Yields:
        A `Report` after each step.

    Raises:
        TypeError: Both `steps` and `budget` are missing, `fork` comes without `run`, a setting is unknown, or a part
            that must be called cannot be called.
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

    Memory: a part of the recipe, or a curriculum, with methods `state()` and `load_state(state)` remembers from step to
    step. Training copies the part, keeps its state with each checkpoint, and restores that state on resume.

    Threads: until the training has ended, other threads may play with the team (`rollout`, `evaluate`). This does not
    change the training. A change of the weights of a learning policy raises PolicyError in the other thread. A loop
    that was left unfinished in the main thread does not block other threads.

    Ranks: under `accelerate launch` all ranks make this call with the same arguments, and they learn as one. Only rank
    0 plays, keeps the run and yields reports, so the body of the loop runs once. A run may go on with another number of
    ranks; the results then agree up to float noise. Under FSDP each rank holds a part of the weights. After such a
    training only the run has the whole weights: `load_run(run).team()`.
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
    if chosen.check and (kind := (type(env), repr(spec(env)), chosen.split)) not in _checked:
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
_checked: set[tuple[type, str, str]] = set()
"""Environments, with the split, that passed `check_env` in this process."""


@atexit.register
def _close_all() -> None:
    """Close all trainings when the script ends, so that each saves a checkpoint."""
    for loop in list(_open):
        if not loop.gi_running:  # it runs in another thread
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
    """Return the processes of a launcher, or `None` for a single process, which then needs no import of `Ranks`."""
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
