"""The present state of a training, and the hooks around its four cells.

Leaves out: the loop itself (`loop`), and what each hook does (the modules named after them).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from mas_lab.cells.update import UpdateCallback, learners
from mas_lab.env import Env, Task, not_plain
from mas_lab.recipes import Recipe, stateful_parts
from mas_lab.team import Team
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.drawing import Curriculum, drawn, step_seed
from mas_lab.train.report import Report, tasks_learned
from mas_lab.train.settings import Settings


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


class Hook:
    """A part of a training beside the four cells. Every method may be left out."""

    def begin(self, now: Progress) -> None:
        """Act before the first step of this call."""

    def before(self, now: Progress) -> None:
        """Act before each step."""

    def after(self, now: Progress, report: Report) -> Report:
        """Act after each step, and return its report."""
        return report

    def end(self, now: Progress) -> None:
        """Act after the last step."""

    def stop(self, now: Progress, error: BaseException) -> None:
        """Act when an error ends the training, or `close` does (GeneratorExit)."""

    def finish(self) -> None:
        """Act at the very end, however the training ended."""
