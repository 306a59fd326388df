"""The loop: rollout, group, normalize, update, again. A generator, so that a notebook can draw, stop and resume.

Leaves out: what each cell does, how a run is kept (`run`), and the command line (`__main__`).
"""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.advantages import live
from mas_lab.cells.contract import require_loss
from mas_lab.cells.normalization import refuse_lone_groups, refuse_nonsense
from mas_lab.cells.rollout import RolloutError, rollout
from mas_lab.cells.update import Watch, update
from mas_lab.check import check_env
from mas_lab.env import Env, spec
from mas_lab.recipes import Recipe, find, to_data
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import FORMAT, RunError, run_folder
from mas_lab.runs.scores import KEPT, episode_success, step_scores
from mas_lab.table import TableError
from mas_lab.team import Team
from mas_lab.train.held_out import HeldOut
from mas_lab.train.settings import Settings

LIBRARIES = ("mas-lab", "torch", "transformers", "peft", "pandas", "numpy")


@dataclass(frozen=True)
class Report:
    """One training step: the full table, the optimizer's statistics, and where the time went (seconds)."""

    step: int
    turns: pd.DataFrame
    stats: pd.DataFrame
    profile: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    held_out: pd.DataFrame | None = None
    """What was scored on held-out tasks since the report before, where `score_every` asks for it: rows of `evaluate`,
    with `step`, the training steps that were made until then (0 in the first report: before training)."""

    @cached_property
    def scored(self) -> dict[str, float]:
        """`tokens` sampled in this step, `success` and `return` of its episodes, see `scores.training_curve`."""
        return step_scores(self.turns)

    @property
    def success(self) -> float:
        """Share of the episodes whose goal stood at the end."""
        return success_rate(self.turns)

    @property
    def tokens(self) -> int:
        """Tokens sampled in this step."""
        return int(self.turns["completion_ids"].map(len).sum())

    def __repr__(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        played = f"{len(self.turns)} turns, {self.tokens} tokens"
        return f"Report(step {self.step}: success {self.success:.2f}, {played}{notes})"


def success_rate(turns: pd.DataFrame) -> float:
    """The mean of `scores.episode_success`."""
    return float(episode_success(turns).mean())


def train(
    env: Env,
    team: Team,
    recipe: str | Recipe,
    steps: int,
    seed: int = 0,
    run: str | Path | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Iterator[Report]:
    """Train `team` on `env` by `recipe`; yields a `Report` after each step. `settings`: the fields of `Settings`.

    `run`: a folder (a bare name goes under `runs_dir()`) that keeps the run; on an existing run it goes on where that
    stopped, with the team passed in set to the saved one, or says why it cannot. `steps` is the total: resuming a
    3-step run with steps=6 makes three more. Close the generator, or break out of the loop, at any time.

    Under `accelerate launch` all ranks call this alike, and learn as one; only rank 0 plays, keeps the run and yields
    reports, so that what the loop's body does is done once. `watch` is called on every rank. A run may go on with
    another number of ranks: the results then agree up to float noise. Under FSDP each rank holds a part of the weights;
    after such a training they are whole in its run alone, `load_run(run).team()`.
    """
    recipe, chosen = find(recipe), Settings.of(settings)
    require_loss(recipe.loss, recipe.aggregate, "train")
    refuse_nonsense(**recipe.normalization)
    for name, number in (("steps", steps), ("seed", seed)):
        if number < 0:
            raise ValueError(f"train: {name}={number} is negative")
    if getattr(recipe.plan, "siblings", 2) < 2:
        raise ValueError(f"train: {recipe.plan} gives groups of one (K = 1): nothing is compared; ask for two or more")
    missing = [agent for agent in env.agents if agent not in team]
    if missing:
        raise ValueError(
            f"train: agent {missing[0]!r} has no policy; the env plays {env.agents}, the team has {list(team)}"
        )
    ranks = _ranks(team)
    if ranks and not ranks.drives:
        return ranks.serve(team, watch, update)
    if chosen.check:
        with ranks.telling() if ranks else nullcontext():
            check_env(env, tasks=2, split=chosen.split, seed=seed)
    loop = _steps(env, team, recipe, steps, seed, _recorder(run), watch, chosen, ranks)
    return _driven(loop, ranks) if ranks else loop


def _ranks(team: Team):
    """The processes that a launcher started; `None` in a process of its own, which never imports what joins them."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    from mas_lab.backends.ranks.ranks import Ranks

    return Ranks.of(team)


def _driven(loop: Iterator[Report], ranks) -> Iterator[Report]:
    with ranks.driving():
        yield from loop


def _steps(
    env: Env,
    team: Team,
    recipe: Recipe,
    steps: int,
    seed: int,
    recorder: Recorder | None,
    watch,
    chosen: Settings,
    ranks=None,
) -> Iterator[Report]:
    done = _begin(recorder, describe(env, recipe, seed, chosen), team, watch, ranks) if recorder else 0
    try:
        held_out = HeldOut(env, team, seed, chosen, recorder)
        if ranks:
            ranks.assemble(team, watch)
        for step in range(done, steps):
            if recorder and recorder.is_superseded():
                raise RunError(f"{recorder.folder}: a later train() went on with this run; use that one")
            scores = [held_out.after(step)]
            report = _step(env, team, recipe, step, seed, watch, chosen, ranks)
            done = step + 1
            if recorder:
                recorder.tables(step, report.turns, report.stats, _notes(report))
            scores.append(held_out.after(done, last=done == steps))
            if recorder and (done % chosen.save_every == 0 or done == steps):
                recorder.save(done, team, watch)
            yield _with_scores(report, scores)
    except (GeneratorExit, RolloutError) as ended:
        # While a team plays nothing is learned: its weights are still those after `done` steps.
        if recorder and not recorder.is_superseded():
            recorder.save(done, team, watch)
        if isinstance(ended, RolloutError):
            raise
    finally:
        if recorder:
            recorder.end()


def _begin(recorder: Recorder, asked: dict[str, Any], team: Team, watch, ranks) -> int:
    """Steps that are done. A run goes on with as many torch threads as it was made with; several ranks have theirs from
    their launcher."""
    from mas_lab.backends.torch.threads import take_threads

    if not ranks:
        asked["threads"] = recorder.recorded_threads() or asked["threads"]
    done = recorder.begin(asked, team, watch)
    if not ranks:
        take_threads(asked["threads"], str(recorder.folder))
    return done


def _with_scores(report: Report, scores: list[pd.DataFrame | None]) -> Report:
    made = [table for table in scores if table is not None]
    return replace(report, held_out=pd.concat(made, ignore_index=True)) if made else report


def _notes(report: Report) -> dict[str, Any]:
    """What is kept with the turns of a step: its scores, if its plan has any. A plan of one's own may branch in ways
    that have no return; whoever asks for the curve of such a run is told why."""
    try:
        return {KEPT: report.scored}
    except TableError:
        return {}


def _step(env: Env, team: Team, recipe: Recipe, step: int, seed: int, watch, chosen: Settings, ranks=None) -> Report:
    profile: dict[str, float] = {}
    with _timed(profile, "rollout"):
        tasks = env.tasks(chosen.tasks, chosen.split, seed=step_seed(seed, step))
        turns = rollout(
            env, team, tasks, recipe.plan, seed, max_turns=chosen.max_turns, workers=chosen.workers, step=step
        )
    with _timed(profile, "advantages"):
        turns = recipe.advantages(turns)
        refuse_lone_groups(turns, "train")
    options = {
        "loss": recipe.loss,
        "aggregate": recipe.aggregate,
        "epochs": chosen.epochs,
        "minibatches": chosen.minibatches,
        "max_norm": chosen.max_norm,
        "lr_scale": chosen.lr_scale(step),
        "nonfinite": chosen.nonfinite,
        "seed": step_seed(seed, step),
    }
    with _timed(profile, "update"), ranks.updating(turns, options) if ranks else nullcontext():
        stats = update(team, turns, watch=watch, **options)
    stats.insert(0, "step", step)
    flat = not live(turns["advantage"]).any()
    notes = ("all groups are flat: every advantage is 0, nothing was learned",) if flat else ()
    return Report(step, turns, stats, profile, notes)


def step_seed(seed: int, step: int) -> int:
    """A seed of its own for each (seed, step)."""
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint32)[0])


@contextmanager
def _timed(profile: dict[str, float], name: str):
    start = time.perf_counter()
    yield
    profile[name] = time.perf_counter() - start


def _recorder(run: str | Path | None) -> Recorder | None:
    return None if run is None else Recorder(run_folder(run))


def describe(env: Env, recipe: Recipe, seed: int, settings: Settings) -> dict[str, Any]:
    """What run.json records."""
    import torch

    try:
        plain_env = spec(env)
    except (AttributeError, TypeError):
        told = repr(env) if type(env).__repr__ is not object.__repr__ else None  # that one is an address in memory
        plain_env = {"name": type(env).__name__, "repr": told}
    return {
        "format": FORMAT,
        "env": plain_env,
        "recipe": to_data(recipe),
        "seed": seed,
        "settings": asdict(settings),
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in LIBRARIES} | {"python": platform.python_version()},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
