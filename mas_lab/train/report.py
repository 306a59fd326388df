"""What a training step gives: its table, its statistics, and what it scored.

Leaves out: the step itself (`loop`) and how reports are sent elsewhere (`tracking`).
"""

from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from mas_lab.runs.scores import episode_success, step_scores


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
