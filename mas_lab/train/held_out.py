"""Scores on held-out tasks during training: the ability of the team, apart from its training episodes.

They have a random stream of their own, so the training is the same, bit for bit, with and without them. Leaves out: the
scoring itself (`evaluate`) and the files of scores (`runs.scores`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import ceil

import pandas as pd

from mas_lab.env import Env, with_max_turns
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.scores import keep_scores, scored_steps
from mas_lab.team import Team
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.drawing import tasks_of
from mas_lab.train.evaluate import evaluate
from mas_lab.train.settings import Settings

SPLIT = "test"
Hears = Callable[[int, pd.DataFrame | None], None]
"""Callback with the number of completed steps. It gets None when their score begins. It gets the table of scores if no
report is about to bring it: before a training's first step, and after its last."""
_hears: ContextVar[Hears | None] = ContextVar("who hears of scores as they are made", default=None)


@contextmanager
def heard_by(hears: Hears) -> Iterator[None]:
    """Report the scores of trainings inside the `with` block to `hears` at once; their reports come a step later."""
    token = _hears.set(hears)
    try:
        yield
    finally:
        _hears.reset(token)


def tell(done: int, scores: pd.DataFrame | None = None) -> None:
    if hears := _hears.get():
        hears(done, scores)


class HeldOut:
    """The schedule of scores of `team`: it decides when to score, scores, and keeps the result with the run.

    It scores before the first step, after every `score_every` steps or shares of `budget`, at the counts of tokens in
    `score_at`, and after the last step. Without both settings it never scores. Tasks and draws depend on the run's
    `seed` and are the same at every scored step, so two runs of one seed play the same tasks.
    """

    def __init__(self, env: Env, team: Team, seed: int, chosen: Settings, recorder: Recorder | None, usage: Usage,
                 budget: Budget | None = None):  # fmt: skip
        self.env, self.team, self.chosen, self.recorder, self.usage = env, team, chosen, recorder, usage
        self._every, self._counts = chosen.score_every or 0, [("tokens", chosen.score_at)]
        if 0 < self._every < 1:
            shares = [budget.amount * self._every * number for number in range(1, ceil(1 / self._every))]
            self._counts.append((budget.kind, shares))
        self.seed = seed if chosen.score_seed is None else chosen.score_seed
        self._is_on = chosen.score_every is not None or bool(chosen.score_at)
        self._scored = set(scored_steps(recorder)) if recorder and self._is_on else set()

    def after(self, done: int, last: bool = False) -> pd.DataFrame | None:
        """Return the table of `evaluate` after `done` steps, with the column `step`.

        None means that no score is due, or that it was kept before.
        """
        is_due = last or done == 0 or (self._every >= 1 and done % self._every == 0)
        is_due = is_due or any(self.usage.passes(counts, done, kind) for kind, counts in self._counts)
        if not self._is_on or not is_due or done in self._scored:
            return None
        tell(done)
        tasks = tasks_of(self.env, self.chosen.score_tasks, SPLIT, self.seed)
        scores = evaluate(
            with_max_turns(self.env, self.chosen.max_turns), self.team, tasks, k=self.chosen.score_episodes,
            seed=self.seed, workers=self.chosen.workers,
        )  # fmt: skip
        self._scored.add(done)
        if self.recorder:
            keep_scores(self.recorder, done, scores)
        return scores.assign(step=done)

    def now(self, done: int, last: bool = False) -> pd.DataFrame | None:
        """Return the same as `after`, and report it at once, because no report is about to bring it."""
        scores = self.after(done, last)
        if scores is not None:
            tell(done, scores)
        return scores
