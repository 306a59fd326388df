"""The resources that a training has used so far, and the budget at which it ends.

A fair comparison of recipes gives each the same amount of something: sampled tokens, episodes, or optimizer steps.
These three differ from each other, so you must choose one. Leaves out: the step itself (`loop`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mas_lab.runs.run import Run
from mas_lab.runs.scores import run_curve
from mas_lab.train.report import Report

KINDS = ("tokens", "episodes", "optimizer_steps")
"""Tokens sampled in training; instances of the env that were played (a tree or a joint plan is one); optimizer steps of
each policy."""


@dataclass(frozen=True)
class Budget:
    """A budget that ends a training with the step that reaches `amount` of `kind`, one of `KINDS`.

    The part of the last step beyond `amount` is used as well.
    """

    kind: str
    amount: int

    def __str__(self) -> str:
        return f"{self.amount:,} {self.kind.replace('_', ' ')}"

    @classmethod
    def of(cls, budget: "Budget | Mapping[str, int]") -> "Budget":
        """Return a budget from `{"tokens": 100_000}`, the form that files use."""
        if isinstance(budget, Budget):
            return budget
        kinds = [*budget] if isinstance(budget, Mapping) else []
        if len(kinds) != 1 or kinds[0] not in KINDS or type(budget[kinds[0]]) is not int or budget[kinds[0]] < 1:
            raise ValueError(
                f"budget={budget!r}; give one of {', '.join(KINDS)} with a whole number of 1 or more, such as "
                "{'tokens': 100000}"
            )
        return cls(kinds[0], budget[kinds[0]])


class Usage:
    """The resources that every step used; those of a resumed run are only read if something depends on them."""

    def __init__(self, steps: Sequence[Mapping[str, int]] = ()):
        self.steps = list(steps)

    def after(self, done: int) -> dict[str, int]:
        """Return the sums over the first `done` steps, by kind."""
        return {kind: sum(step[kind] for step in self.steps[:done]) for kind in KINDS}

    def add(self, report: Report) -> None:
        """Add a step. It replaces a step of the same number that was undone, and all steps after it."""
        episodes, updates = report.turns["episode"].nunique(), report.stats["optimizer_step"].nunique()
        self.steps[report.step :] = [{"tokens": report.tokens, "episodes": episodes, "optimizer_steps": updates}]

    def passes(self, counts: Sequence[float], done: int, kind: str = "tokens") -> bool:
        """Return True if step `done` reaches one of these counts of `kind`, and no step before it did."""
        before, now = (self.after(step)[kind] for step in (done - 1, done))
        return any(before < count <= now for count in counts)

    @classmethod
    def of(cls, run: Run) -> "Usage":
        """Return the resources of a run that was kept."""
        if not run.steps:
            return cls()
        episodes = run.read("turns", ["step", "episode"]).groupby("step")["episode"].nunique()
        updates = run.stats.groupby("step")["optimizer_step"].nunique()  # without steps that selected no row
        tokens = np.diff(run_curve(run)["tokens"], prepend=0)
        each = zip(tokens, episodes, updates.reindex(episodes.index, fill_value=0), strict=True)
        return cls([dict(zip(KINDS, map(int, step), strict=True)) for step in each])
