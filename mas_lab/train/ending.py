"""Say when a training learns nothing, and what stands out at its end.

Leaves out: what stands out (`verdict`).
"""

import sys
import warnings
from collections import deque

import pandas as pd

from mas_lab.cells.update import learners
from mas_lab.display.progress import in_notebook, may_print
from mas_lab.policy import SAMPLED
from mas_lab.runs.recorder import Recorder
from mas_lab.runs.run import RunError
from mas_lab.train.progress import Hook, Progress
from mas_lab.train.report import Report
from mas_lab.train.verdict import MOST, has_advantage, verdict, verdict_of_table, why_silent

DEAD = 3
"""Steps without an advantage after which a training warns."""


class Ending(Hook):
    """The hook that prints the verdict, of the run or else of the last steps."""

    def __init__(self, recorder: Recorder | None):
        self.recorder, self.silent = recorder, 0
        self.recent: deque[pd.DataFrame] = deque(maxlen=MOST)

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
        return report

    def end(self, now: Progress) -> None:
        """Print the verdict where somebody reads it: in a terminal or a notebook, and not in a pipe."""
        if now.done and may_print() and (in_notebook() or sys.stdout.isatty()):
            rates = ", ".join(f"{lr:g}" for lr in sorted({policy.lr for policy in learners(now.team)}))
            name, run = f"{now.recipe.name}, rate {rates}, seed {now.seed}", self.recorder
            try:
                said = verdict(run) if run else verdict_of_table(pd.concat(self.recent), now.team.frozen)
                print(f"{name}: {said}")
            except RunError as error:
                print(f"{name}: no verdict: {error}")
