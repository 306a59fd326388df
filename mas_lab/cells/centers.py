"""Centers and scales that are more than a group's mean and deviation: `table -> Series`, a number for each row.

`normalize(center=..., scale=...)` takes them.

A center or credit that remembers from step to step has `state()` and `load_state(state)`, plain data: `train` keeps
that with each checkpoint. In a loop of one's own the object itself remembers, from call to call.
Leaves out: centers and scales of groups (`normalization`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.normalization import is_flat, statistics_of
from mas_lab.table import plain, require, trained


@dataclass(frozen=True)
class running_mean:
    """A baseline b for each value of `by`, the running mean of its credits over steps (SPIRAL, arXiv 2506.24119,
    role-conditioned advantage estimation: by role, decay 0.95, no division).

    A row is compared with b as it was before its batch, as in their code, since a baseline that saw the row's own
    credit is biased; then b <- decay * b + (1 - decay) * m, with m the batch's mean, each value of `once_per` counted
    once with its mean credit (None: every row). Before its first batch there is no b: it starts at that batch's m, with
    which those rows are compared. SPIRAL moves b with every game, so that a batch moves it further; here a batch is one
    move. Rows that only value a candidate (`probe`) do not move b.
    """

    by: tuple[str, ...] = ("agent",)
    decay: float = 0.95
    once_per: str | None = "episode"
    _means: dict[tuple, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"running_mean: decay={self.decay!r} must be from 0, no memory, to below 1, never moved")
        if isinstance(self.by, str) or not self.by:
            raise ValueError(f"running_mean: by={self.by!r} must be a tuple of columns, such as ('agent',)")

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        require(turns, [*self.by, "credit"], "running_mean")
        named = turns[list(self.by)].astype(object).itertuples(index=False, name=None)
        keys = [tuple(map(plain, key)) for key in named]
        mean = statistics_of(turns, tuple(self.by), self.once_per)["mean"]
        played = trained(turns)
        batch = {key: float(m) for key, m, counts in zip(keys, mean, played, strict=True) if counts}
        baseline = [self._means.get(key, batch.get(key, 0.0)) for key in keys]
        for key, m in batch.items():
            self._means[key] = self.decay * self._means[key] + (1 - self.decay) * m if key in self._means else m
        return pd.Series(baseline, turns.index, dtype=float)

    def state(self) -> dict[str, Any]:
        return {"means": [[list(key), mean] for key, mean in sorted(self._means.items(), key=repr)]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._means.clear()
        self._means.update({tuple(key): mean for key, mean in state["means"]})


@dataclass(frozen=True)
class pooled_deviation:
    """Scale by the pooled deviation within groups: one standard deviation for all groups of each value of `by`.

    sqrt(sum over groups g of sum over rows i of (credit_i - mean_g)^2 / (rows - groups)), the square root of the mean
    square within groups of an analysis of variance. Groups are those of cell 2, `group`. A lone row adds nothing.
    `scale=("agent",)` is the total deviation instead: the differences between an agent's groups enter it too.
    """

    by: tuple[str, ...] = ("agent",)

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the deviation of each row's agent (or other value of `by`), 0 if its credits never differ."""
        require(turns, [*self.by, "credit", "group"], "pooled_deviation")
        rows = turns[trained(turns)]
        groups = rows.groupby([*self.by, "group"], observed=True)["credit"]
        squares = groups.agg(_squared_deviations)
        freedom = groups.size() - 1
        by = list(range(len(self.by)))
        pooled = np.sqrt(squares.groupby(level=by).sum() / freedom.groupby(level=by).sum().clip(lower=1))
        keys = pd.MultiIndex.from_frame(turns[list(self.by)])
        found = pooled.reindex(keys if len(self.by) > 1 else keys.get_level_values(0)).fillna(0.0)
        return pd.Series(found.to_numpy(), turns.index, dtype=float)


def _squared_deviations(credits: pd.Series) -> float:
    """Return the sum of squared deviations from the mean, the same bits in any order of the rows."""
    mean = fsum(credits) / len(credits)
    return 0.0 if is_flat(credits.min(), credits.max()) else fsum((credits - mean) ** 2)
