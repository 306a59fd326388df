"""The present state of a training, and the tasks of its next step: the env draws them, or a curriculum.

Leaves out: the loop itself (`loop`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.episode import RolloutError
from mas_lab.cells.update import UpdateCallback, learners
from mas_lab.env import Env, EnvError, Task, not_plain
from mas_lab.recipes import Recipe, stateful_parts
from mas_lab.team import Team
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.report import Report, tasks_learned
from mas_lab.train.settings import Settings

Curriculum = Callable[[Env, int, str, int], list[Task]]
"""`curriculum(env, n, split, seed)` returns n tasks of `env`.

It is pure, as a part of a recipe is. One that learns is a frozen dataclass with a field `state` (plain data) and a
method `after(report)`, which returns the curriculum of the next step: `dataclasses.replace(self, state=...)`. The
report has no scores on held-out tasks, which are not for training.
"""


def step_seed(seed: int, step: int, round_: int = 0) -> int:
    """Return a seed for each (seed, step), and for each further round of tasks in that step."""
    words = [seed, step, round_] if round_ else [seed, step]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


def tasks_of(env: Env, n: int, split: str, seed: int) -> list[Task]:
    """Return `env.tasks(...)`; an error names the call, and anything that is no task is refused."""
    call = f"{type(env).__name__}.tasks({n}, {split!r}, seed={seed})"
    try:
        tasks = list(env.tasks(n, split, seed=seed))
    except EnvError:
        raise
    except Exception as error:
        raise RolloutError(f"train: {call} failed: {type(error).__name__}: {error}") from error
    strange = [task for task in tasks if not isinstance(task, Task)]
    if strange:
        raise EnvError(f"{call} gave {strange[0]!r:.200}; an env gives a list of lab.Task")
    return tasks


def drawn(
    env: Env, curriculum: Curriculum | None, n: int, split: str, seed: int, known: Collection[str] = ()
) -> list[Task]:
    """Return `n` tasks whose ids are not in `known`, the tasks that this step played before.

    Two tasks of one id would form one group.
    """
    total = n + len(known)
    tasks = (curriculum or tasks_of)(env, total, split, seed)
    different = len({task.id for task in tasks})
    if curriculum is not None and not different == len(tasks) == total:
        raise ValueError(
            f"train: {curriculum!r} gave {len(tasks)} tasks with {different} different ids, and n is {total}; a "
            "curriculum returns n different tasks: take them from env.tasks(...), with more of them if it chooses"
        )
    return [task for task in tasks if task.id not in known][:n]


@dataclass
class Progress:
    """The arguments of `train`, and how far the training has come. Recipe and curriculum have their present states."""

    env: Env
    team: Team
    recipe: Recipe
    seed: int
    settings: Settings
    steps: int | None
    budget: Budget | None
    watch: UpdateCallback | None
    curriculum: Curriculum | None
    started: bool = False
    """Whether the loop over the steps has begun."""
    done: int = 0
    """Number of steps that were made."""
    usage: Usage = field(default_factory=Usage)
    """The resources used; those of earlier calls are only read if a budget or a score depends on them."""

    @property
    def ended(self) -> bool:
        """Return True if all steps are made or the budget is used up."""
        if self.budget and self.usage.after(self.done)[self.budget.kind] >= self.budget.amount:
            return True
        return self.steps is not None and self.done >= self.steps

    @property
    def versions(self) -> list[int]:
        """Return the versions of the policies that learn; each optimizer step adds one."""
        return [policy.version for policy in learners(self.team)]

    @property
    def parts(self) -> dict[str, Any]:
        """Return the parts of the recipe and the curriculum, by their place."""
        return {**vars(self.recipe), "curriculum": self.curriculum}

    @property
    def states(self) -> dict[str, Any]:
        """Return the state of each part that learns, by its place; raise TypeError if one is not plain data."""
        states = {place: part.state for place, part in stateful_parts(self.parts).items()}
        if problem := not_plain(states, "train: state"):
            raise TypeError(problem)
        return states

    def restore(self, states: Mapping[str, Any]) -> None:
        """Set the parts that learn to these states."""
        restored = {place: replace(self.parts[place], state=state) for place, state in states.items()}
        self.curriculum = restored.pop("curriculum", self.curriculum)
        self.recipe = self.recipe.replace(**restored)

    def tasks(self, step: int, draw: int = 0, turns: pd.DataFrame | None = None) -> list[Task]:
        """Return the tasks of a draw: all in the first, and later as many as lack a row to learn from in `turns`.

        There are none after as many draws as `rounds`.
        """
        chosen, seed = self.settings, step_seed(self.seed, step, draw)
        known, learned = ([], 0) if turns is None else ([*turns["task"].unique()], tasks_learned(turns))
        missing = chosen.tasks - learned if draw < chosen.rounds else 0
        return drawn(self.env, self.curriculum, missing, "train", seed, known) if missing > 0 else []

    def advance(self, report: Report, recipe: Recipe) -> None:
        """Count a step. `recipe`: that of the next one; the curriculum learns here, if it does."""
        if hasattr(self.curriculum, "after"):
            self.curriculum = self.curriculum.after(report)
        self.usage.add(report)
        self.recipe, self.done = recipe, report.step + 1
