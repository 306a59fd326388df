"""Hooks of a training: the parts beside its four cells, which score held-out tasks and show how it goes.

Scores have a random stream of their own, so the training is the same, bit for bit, with and without them. Leaves out:
the files of a run (`keeping`), the scoring itself (`evaluate`), and what the verdict says (`verdict`).
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from math import ceil

import pandas as pd

from mas_lab.cells.plans import episodes
from mas_lab.cells.update import learners
from mas_lab.display.progress import in_notebook, is_watched, no_bars, progress_bar
from mas_lab.env import with_max_turns
from mas_lab.policy import SAMPLED
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import RunError
from mas_lab.runs.scores import keep_scores, mean_scores, scored_steps
from mas_lab.train.evaluate import evaluate
from mas_lab.train.progress import Progress, tasks_of
from mas_lab.train.report import Report
from mas_lab.train.verdict import MOST, has_advantage, verdict, verdict_of_table, why_silent

SPLIT = "test"
DEAD = 3
"""Steps without an advantage after which a training warns."""
Hears = Callable[[int, pd.DataFrame | None], None]
"""Callback with the number of completed steps. It gets None when their score begins. It gets the table of scores if no
report is about to bring it: before a training's first step, and after its last."""
_hears: ContextVar[Hears | None] = ContextVar("who hears of scores as they are made", default=None)


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


class Showing(Hook):
    """The hook that shows steps, tokens and scores, and prints the verdict: of the run, or of the first and last steps.

    Scores are those of held-out tasks, or else of training episodes if these are played as the team plays. Under
    `tree()` the best of K candidates moves the state on, so the success of training episodes says little.
    """

    def __init__(self, recorder: Recorder | None):
        self.recorder, self.silent = recorder, 0
        self.recent: list[pd.DataFrame] = []
        self.tokens, self.training, self.held_out = 0, [], []

    def begin(self, now: Progress) -> None:
        with nullcontext() if in_notebook() else no_bars():
            self.bar = progress_bar(now.steps, now.recipe.name, "step", even=True)

    def before(self, now: Progress) -> None:
        self.bar.refresh()  # draws the bar in the cell that asks for this step

    def after(self, now: Progress, report: Report) -> Report:
        """Warn once, when no row of `DEAD` steps in a row had an advantage, unless every episode succeeds."""
        self.silent = 0 if has_advantage(report.turns) or report.success == 1 else self.silent + 1
        if self.silent == DEAD:
            reason = why_silent(report.turns)
            warnings.warn(
                f"train: no row had an advantage in the last {DEAD} steps, nothing is learned: {reason}. "
                "docs/my_reward_does_not_move.md lists the causes", stacklevel=3,
            )  # fmt: skip
        if not self.recorder:
            self.recent.append(report.turns.drop(columns=SAMPLED))
            del self.recent[2:-MOST]  # the first two steps stay, and the last ones
        self.tokens += report.tokens
        if isinstance(now.recipe.plan, episodes):
            self.training.append(report.success)
        if report.held_out is not None:
            self.held_out += mean_scores(report.held_out)["success"].tolist()
        scores, source = (self.held_out, "held-out tasks") if self.held_out else (self.training, "training episodes")
        success = f", success {scores[0]:.2f} to {scores[-1]:.2f} ({source})" if scores else ""
        self.bar.n = now.done
        self.bar.set_postfix_str(f"{self.tokens:,} tokens{success}")
        return report

    def end(self, now: Progress) -> None:
        """Print the verdict where somebody reads it: in a terminal or a notebook, and not in a pipe."""
        if now.done and is_watched():
            rates = ", ".join(f"{lr:g}" for lr in sorted({policy.lr for policy in learners(now.team)}))
            name, run = f"{now.recipe.name}, rate {rates}, seed {now.seed}", self.recorder
            try:
                text = verdict(run) if run else verdict_of_table(pd.concat(self.recent), now.team.frozen)
                print(f"{name}: {text}")
            except RunError as error:
                print(f"{name}: no verdict: {error}")

    def finish(self) -> None:
        self.bar.close()
