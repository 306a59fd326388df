"""The result of a training step: its table, its statistics and its scores.

Leaves out: the step itself (`loop`).
"""

from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from mas_lab.runs.scores import episode_success, mean_scores, step_scores
from mas_lab.table import column, selected


@dataclass(frozen=True)
class Report:
    """One training step."""

    step: int
    """Number of the step, from 0."""
    turns: pd.DataFrame
    """The full table of the step, one row per model call."""
    stats: pd.DataFrame
    """Statistics of the optimizer steps, see `update`."""
    profile: dict[str, float] = field(default_factory=dict)
    """Seconds by part of the step."""
    notes: tuple[str, ...] = ()
    """Remarks about the step, such as that no row has an advantage."""
    held_out: pd.DataFrame | None = None
    """Scores on held-out tasks since the report before, if `score_every` or `score_at` asks for them: rows of
    `evaluate` with `step`, the number of training steps made until then (0 in the first report: before training).
    `None`: no scores."""

    @cached_property
    def scored(self) -> dict[str, float]:
        """Return `tokens`, `success` and `return` of this step's episodes, see `scores.training_curve`."""
        return step_scores(self.turns)

    @property
    def success(self) -> float:
        """Return the share of episodes that ended with their goal reached."""
        return float(episode_success(self.turns).mean())

    @property
    def tokens(self) -> int:
        """Return the number of tokens sampled in this step."""
        return int(self.turns["completion_ids"].map(len).sum())

    def __repr__(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        picked = "" if column(self.turns, "kept").all() else " with the pick"
        held_out = "" if self.held_out is None else f", held out {mean_scores(self.held_out)['success'].iloc[-1]:.2f}"
        played = f"{len(self.turns)} turns, {self.tokens} tokens"
        return f"Report(step {self.step}: success {self.success:.2f}{picked}{held_out}, {played}{notes})"


def tasks_learned(turns: pd.DataFrame) -> int:
    """Return the number of tasks that have a row to learn from."""
    return turns.loc[selected(turns), "task"].nunique()
