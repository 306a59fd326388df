"""Scores on held-out tasks during training: the ability of the team, apart from its training episodes.

They have a random stream of their own, so the training is the same, bit for bit, with and without them. Leaves out: the
scoring itself (`evaluate`) and the files of scores (`runs.scores`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from math import ceil

import pandas as pd

from mas_lab.env import with_max_turns
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.scores import keep_scores, scored_steps
from mas_lab.train.drawing import tasks_of
from mas_lab.train.evaluate import evaluate
from mas_lab.train.progress import Hook, Progress
from mas_lab.train.report import Report

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


class HeldOut(Hook):
    """The hook that scores the team on held-out tasks, and keeps the result with the run.

    It scores before the first step, after every `score_every` steps or shares of the budget, at the counts of tokens in
    `score_at`, and after the last step. Tasks and draws depend on the run's `seed` and are the same at every scored
    step, so two runs of one seed play the same tasks.
    """

    def __init__(self, recorder: Recorder | None):
        self.recorder = recorder
        self.first: pd.DataFrame | None = None
        """The scores before a step, for its report."""

    def begin(self, now: Progress) -> None:
        self.scored = set(scored_steps(self.recorder)) if self.recorder else set()

    def before(self, now: Progress) -> None:
        """Score before the first step, or what an earlier call left out; no report is about to bring it."""
        self.first = self._score(now, due=now.done == 0)
        if self.first is not None:
            tell(now.done, self.first)

    def after(self, now: Progress, report: Report) -> Report:
        scores = [one for one in (self.first, self._score(now, due=now.ended)) if one is not None]
        return replace(report, held_out=pd.concat(scores, ignore_index=True)) if scores else report

    def end(self, now: Progress) -> None:
        if (scores := self._score(now, due=True)) is not None:  # an earlier call ended before them
            tell(now.done, scores)

    def _score(self, now: Progress, due: bool) -> pd.DataFrame | None:
        """Return the table of `evaluate` with the column `step`; `None` if it is not due, or was kept before."""
        done, chosen = now.done, now.settings
        every = chosen.score_every or 0
        due = due or (every >= 1 and done % every == 0) or now.usage.passes(chosen.score_at, done)
        if 0 < every < 1:
            shares = [now.budget.amount * every * number for number in range(1, ceil(1 / every))]
            due = due or now.usage.passes(shares, done, now.budget.kind)
        if not due or done in self.scored:
            return None
        tell(done)
        tasks, env = tasks_of(now.env, chosen.score_tasks, SPLIT, now.seed), with_max_turns(now.env, chosen.max_turns)
        scores = evaluate(env, now.team, tasks, k=chosen.score_episodes, seed=now.seed, workers=chosen.workers)
        self.scored.add(done)
        if self.recorder:
            keep_scores(self.recorder, done, scores)
        return scores.assign(step=done)
