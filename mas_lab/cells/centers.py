"""Centers and scales that are more than a group's mean and deviation: `table -> Series`, one number per row.

Pass them to `normalize(center=..., scale=...)`. A center or a credit may remember something from step to step. It then
has `state()` and `load_state(state)`, and the state is plain data (JSON types). `train` saves the state with each
checkpoint. In your own loop the object itself remembers from call to call. Leaves out: centers and scales of groups
(`normalization`).
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
    """Baseline of SPIRAL: the running mean of the credits over steps, one mean for each value of `by`.

    Raises:
        ValueError: `decay` is outside [0, 1), or `by` is not a tuple of columns.

    With b the baseline and m the mean credit of the batch:

        b <- decay * b + (1 - decay) * m

    SPIRAL, arXiv 2506.24119, role-conditioned advantage estimation: by role, decay 0.95, no division.

    A row is compared with b from before its batch, as in the authors' code, because a baseline that contains the row's
    own credit is biased. Before the first batch there is no b: it starts at m of that batch, and the rows of that batch
    are compared with m. SPIRAL moves b with every game, so one batch moves it further. Here one batch moves b once.
    Rows that only value a candidate (`probe`) do not move b.
    """

    by: tuple[str, ...] = ("agent",)
    """Columns whose values have a baseline each. The default is one baseline per agent."""
    decay: float = 0.95
    """Weight of the old baseline, from 0 (no memory) to below 1."""
    once_per: str | None = "episode"
    """Column whose values each count once in m, with their mean credit. `None`: every row counts."""
    _means: dict[tuple, float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self):
        if not 0 <= self.decay < 1:
            raise ValueError(f"running_mean: decay={self.decay!r} must be from 0, no memory, to below 1, never moved")
        if isinstance(self.by, str) or not self.by:
            raise ValueError(f"running_mean: by={self.by!r} must be a tuple of columns, such as ('agent',)")

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the baseline of each row, then move the running means.

        Args:
            turns: Table with `credit`, the columns `by` and the column `once_per`.

        Returns:
            One baseline per row, on the index of `turns`.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
        """
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
        """Return the running means as plain data."""
        return {"means": [[list(key), mean] for key, mean in sorted(self._means.items(), key=repr)]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Replace the running means.

        Args:
            state: The return value of `state()`.
        """
        self._means.clear()
        self._means.update({tuple(key): mean for key, mean in state["means"]})


@dataclass(frozen=True)
class pooled_deviation:
    """Scale: the pooled standard deviation within groups, one for all groups of each value of `by`.

        sqrt(sum over groups g of sum over rows i of (credit_i - mean_g)^2 / (rows - groups))

    This is the square root of the mean square within groups of an analysis of variance. Cell 2, `group`, defines the
    groups. A group with a single row adds nothing. `scale=("agent",)` is the total deviation instead, which also
    contains the differences between the groups of an agent.
    """

    by: tuple[str, ...] = ("agent",)
    """Columns whose values have a deviation each. The default is one deviation per agent."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the deviation of each row's agent (or other value of `by`).

        Args:
            turns: Table with `credit`, `group` and the columns `by`.

        Returns:
            One deviation per row, on the index of `turns`; 0 if the credits never differ within a group.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
        """
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
    """Return the sum of squared deviations from the mean, with the same bits in any order of the rows."""
    mean = fsum(credits) / len(credits)
    return 0.0 if is_flat(credits.min(), credits.max()) else fsum((credits - mean) ** 2)
