"""Show how a training goes: a bar in a notebook, a warning if nothing is learned, and the verdict at its end.

Leaves out: what the verdict says (`verdict`), the display in the notebook (`display.progress`), and curves
(`widgets.live`).
"""

import warnings
from collections import deque
from contextlib import nullcontext

import pandas as pd

from mas_lab.cells.plans import episodes
from mas_lab.display.progress import in_notebook, may_print, no_bars, progress_bar
from mas_lab.policy import SAMPLED
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import RunError
from mas_lab.runs.scores import mean_scores
from mas_lab.train.progress import Hook, Progress
from mas_lab.train.report import Report
from mas_lab.train.verdict import MOST, has_advantage, verdict, verdict_of_table, why_silent

DEAD = 3
"""Steps without an advantage after which a training warns."""


class Showing(Hook):
    """The hook that shows steps, tokens and scores, and prints the verdict: of the run, or else of the last steps.

    Scores are those of held-out tasks, or else of training episodes if these are played as the team plays. Under
    `tree()` the best of K candidates moves the state on, so the success of training episodes says little.
    """

    def __init__(self, recorder: Recorder | None):
        self.recorder, self.silent = recorder, 0
        self.recent: deque[pd.DataFrame] = deque(maxlen=MOST)
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
        if now.done and may_print():
            try:
                run = self.recorder
                print(verdict(run) if run else verdict_of_table(pd.concat(self.recent), now.team.frozen))
            except RunError as error:
                print(f"No verdict: {error}")

    def finish(self) -> None:
        self.bar.close()
