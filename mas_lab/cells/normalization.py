"""Cell 3, `normalize`: the comparison, advantage = (credit - center) / scale.

The center and the scale may come from different groups. The ablation of Dr. MAS varies exactly this. Each unit of
`once_per` enters the statistics once. Leaves out: the definition of a group (`group`) and the use of the advantage
(`update`).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from math import fsum
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.arguments import check_arguments
from mas_lab.display.documented_frame import documented
from mas_lab.table import TableError, forbid, keys, place, plain, refuse_copies, require, selected, trained
from mas_lab.team import Team, takes_team

Center = Sequence[str] | str | Callable[..., pd.Series] | None
Scale = Sequence[str] | str | Callable[..., pd.Series] | None
TALLEST = 1e150
"""Credits must stay below this number; the squares of larger ones overflow."""
ROUNDING = 2.0**-21
"""Credits that differ by no more than this share of the larger are equal: four units in the last place of float32."""
FLAT = ("zero", "center")
"""The rules that `normalize` knows for scale groups that do not vary."""
AMONG = ("all", "selected")
"""The rows that may enter centers and scales."""
Statistics = Callable[[tuple[str, ...]], pd.DataFrame]


def normalize(
    turns: pd.DataFrame,
    center: Center = None,
    scale: Scale = None,
    once_per: str | Mapping[str, str | None] | None = None,
    ddof: int = 0,
    eps: float = 1e-6,
    flat: str = "zero",
    peers: Sequence[str] | None = None,
    among: str = "all",
    team: Team | None = None,
) -> pd.DataFrame:
    """Add the columns `center`, `scale` and `advantage` to the table.

    Args:
        turns: Table with `credit` and `group`.
        center: The baseline. `None`: the mean credit over the row's `group`. A tuple of columns: the mean over the rows
            that are equal in them. "loo": the mean of the others in the group (leave one out). "max": the group's
            maximum. "none": 0. Or any callable `table -> Series`, such as `running_mean`. A callable with a parameter
            `team` also gets the team, such as `optimal_mean`.
        scale: The divisor. `None`: the standard deviation over the row's `group`, plus `eps`. A tuple of columns: the
            standard deviation over the rows that are equal in them, plus `eps`. "none": 1. Or any callable `table ->
            Series`, see `pooled_deviation`, plus `eps`.
        once_per: A column whose values each enter the statistics of a group once, with their mean credit. "episode"
            makes GRPO count a trajectory once, however many turns it has. {"center": column, "scale": column} sets both
            apart. `None`: every row counts.
        ddof: 0 divides by n (population), 1 divides by n - 1 (sample).
        eps: Number of 0 or more that is added to the scale.
        flat: Rule for a row whose scale group is lone or flat. "zero": advantage 0. "center": the row uses the
            deviation of its center group instead, unless that group is lone or flat too.
        peers: Columns of a peer group, such as ("task", "agent"). A row gets advantage 0 if its peer group is lone or
            flat, whatever center and scale say. `None`: such rows are trained on.
        among: Rows that enter centers and scales. "all": every row of the batch, also those that `select` left out.
            "selected": only the rows that `select` marked before; the others get advantage 0.
        team: The team that played `turns`, for a center or scale that looks at it. `None`: there is none.

    Returns:
        The table with `center`, `scale` and `advantage`, a float per row each.

    Raises:
        TableError: A column is missing or would be overwritten, a credit is not finite or its square overflows, or a
            callable returns no Series on the table's index.
        ValueError: An argument or a combination of arguments has no meaning.

    The equation of GRPO (arXiv 2402.03300, equation 3), of Dr. MAS (arXiv 2602.08847, equations 4-6), and, without the
    scale, of RLOO (arXiv 2402.14740):

        advantage = (credit - center) / scale

    A group is lone if it has a single unit, and flat if all its credits are equal (max == min, to rounding). A unit is
    one value of `once_per`, or one row. A row gets advantage 0 if its center group is lone, or if its scale group is
    lone or flat. It does not get its raw reward in these cases.

    This rule is biased if the center comes from another group than the scale. Example: an agent is called in four of a
    task's eight episodes. These four earn 0.2, 0, 0, 0, and the other four earn 1. Under `dr_mas_std` (center over the
    task's episodes, scale over the agent's own rows) its advantages are -3.75, -6.06, -6.06, -6.06. In a task where its
    four episodes earn nothing at all, its advantages are 0, 0, 0, 0. So the agent only learns from groups that hold one
    of its successes, and there all its rows are discouraged. `flat="center"` gives the second task -1, -1, -1, -1. Only
    the agent's own center removes the bias.

    If center and scale are both the agent's own, they imply the rule of `peers`. A comparison of centers only therefore
    needs `peers` in both arms (`grpo_masked` is `grpo` with it).
    """
    require(turns, ["credit", "group"], "normalize")
    refuse_copies(turns, "normalize")
    forbid(turns, ["center", "scale", "advantage"], "normalize")
    refuse_nonsense(center, scale, once_per, ddof, eps, flat, peers, among)
    if among == "selected":
        require(turns, ["selected"], "normalize(among='selected')")
    rows = turns if among == "all" else turns.assign(probe=~selected(turns))  # no statistic counts a probe
    _warn_if_unlike_its_name(center, scale)
    units = once_per if isinstance(once_per, Mapping) else {"center": once_per, "scale": once_per}

    statistics = cache(lambda by, once: statistics_of(rows, by, once))
    center, scale = (_given(part, team) for part in (center, scale))
    divisor, still = _scale(rows, scale, lambda by: statistics(by, units.get("scale")), ddof, eps)
    if flat == "center":
        of_center = statistics(_columns(center, ("loo", "max"), "center"), units.get("center"))
        divisor, still = _lent(divisor, still, of_center, ddof, eps)
    baseline, lone = _center(rows, center, lambda by: statistics(by, units.get("center")))
    dead = lone | still | ~trained(rows) | _without_peer(statistics, peers)
    advantage = ((turns["credit"] - baseline) / divisor).mask(dead, 0.0)
    return turns.assign(center=baseline, scale=divisor, advantage=advantage)


def refuse_nonsense(
    center: Center,
    scale: Scale,
    once_per: str | Mapping[str, str | None] | None,
    ddof: int,
    eps: float,
    flat: str,
    peers: Sequence[str] | None = None,
    among: str = "all",
) -> None:
    """Raise `ValueError` if an argument of `normalize` has no meaning; this needs no table."""
    check_arguments(refuse_nonsense, {"center": center, "scale": scale}, "normalize")
    if ddof not in (0, 1):
        raise ValueError(f"normalize: ddof is 0 (population) or 1 (sample), not {ddof!r}")
    if not (isinstance(eps, Real) and 0 <= eps < float("inf")):
        raise ValueError(f"normalize: eps={eps!r} must be a number of 0 or more; it is added to the scale")
    if flat not in FLAT:
        raise ValueError(f"normalize: flat={flat!r}; known are {', '.join(FLAT)}")
    if among not in AMONG:
        raise ValueError(f"normalize: among={among!r}; known are {', '.join(AMONG)}")
    if isinstance(once_per, Mapping) and set(once_per) - {"center", "scale"}:
        unknown = sorted(set(once_per) - {"center", "scale"})
        raise ValueError(f"normalize: once_per has keys {unknown}; known are 'center' and 'scale'")
    if center != "none" and not callable(center):
        _columns(center, ("loo", "max"), "center")
    if scale != "none" and not callable(scale):
        _columns(scale, (), "scale")
    if isinstance(peers, str):
        raise ValueError(f"normalize: peers={peers!r}; pass a tuple of columns such as ('task', 'agent'), or None")
    units = once_per if isinstance(once_per, Mapping) else {"center": once_per, "scale": once_per}
    for part, other, told in (("center", "scale", center), ("scale", "center", scale)):
        if callable(told) and units.get(part) is not None:
            raise ValueError(
                f"normalize: once_per={units[part]!r} counts units of a {part} group, and {told!r} has none; say "
                f'once_per={{"{other}": ...}} for the {other} alone, and let the {part} count as it will'
            )
    if flat == "center" and (center == "none" or callable(center) or scale == "none" or callable(scale)):
        raise ValueError(
            f"normalize: flat='center' takes a center group's scale, which center={center!r}, scale={scale!r} leaves "
            "without one; name columns for both, or pass flat='zero'"
        )


def _center(turns: pd.DataFrame, center: Center, statistics: Statistics) -> tuple[pd.Series, pd.Series]:
    """Return the baseline of each row, and whether its group is lone."""
    if callable(center):
        return _asked(center, turns, "center"), pd.Series(False, turns.index)
    if center == "none":
        return pd.Series(0.0, turns.index), pd.Series(False, turns.index)
    stats = statistics(_columns(center, ("loo", "max"), "center"))
    lone = stats["n"] < 2
    if center == "max":
        return stats["max"], lone
    if center == "loo":
        own = stats["own"]
        others = stats["mean"] + (stats["mean"] - own) / (stats["n"] - 1).clip(lower=1)
        return others.mask(lone, own), lone
    return stats["mean"], lone


def _given(part: Any, team: Team | None) -> Any:
    """Return a center or scale; a callable with a parameter `team` gets the team beside the table."""
    return partial(part, team=team) if callable(part) and takes_team(part) else part


def _asked(function: Callable[[pd.DataFrame], pd.Series], turns: pd.DataFrame, part: str) -> pd.Series:
    """Return the numbers of a callable center or scale (`part`), one finite number per row."""
    values = function(turns)
    if not isinstance(values, pd.Series) or not values.index.equals(turns.index):
        raise TableError(
            f"normalize: {part} {function!r} gave {type(values).__name__}; it must give a Series on the table's index"
        )
    require(turns.assign(**{part: values}), [part], f"normalize, {part}={function!r}")
    return values.astype(float)


def _scale(
    turns: pd.DataFrame, scale: Scale, statistics: Statistics, ddof: int, eps: float
) -> tuple[pd.Series, pd.Series]:
    """Return the divisor of each row, and whether its group is lone or flat."""
    if scale == "none":
        return pd.Series(1.0, turns.index), pd.Series(False, turns.index)
    if callable(scale):
        divisor = _asked(scale, turns, "scale")
        return divisor + eps, divisor <= 0
    stats = statistics(_columns(scale, (), "scale"))
    still = _is_still(stats)
    return _deviation(stats, ddof).mask(still, 0.0) + eps, still


def _without_peer(statistics: Callable[..., pd.DataFrame], peers: Sequence[str] | None) -> pd.Series | bool:
    """Return whether each row's peer group is lone or flat; False for all rows if there are no peer groups."""
    return False if peers is None else _is_still(statistics(tuple(peers), None))


def _is_still(stats: pd.DataFrame) -> pd.Series:
    """Return whether each row's group is lone or flat."""
    return (stats["n"] < 2) | is_flat(stats["min"], stats["max"])


def _deviation(stats: pd.DataFrame, ddof: int) -> pd.Series:
    return np.sqrt(stats["squares"] / (stats["n"] - ddof).clip(lower=1))


def _lent(
    divisor: pd.Series, still: pd.Series, of_center: pd.DataFrame, ddof: int, eps: float
) -> tuple[pd.Series, pd.Series]:
    """Return what `_scale` returns, with the center group's deviation where the scale group has none."""
    lends = still & ~_is_still(of_center)
    return divisor.mask(lends, _deviation(of_center, ddof) + eps), still & ~lends


def is_flat(low: pd.Series | float, high: pd.Series | float) -> pd.Series | bool:
    """Return whether a group's smallest and largest credit are equal, up to the rounding of float32 rewards."""
    return np.abs(high - low) <= np.maximum(1e-12, ROUNDING * np.maximum(np.abs(low), np.abs(high)))


def _columns(choice: Center, words: tuple[str, ...], what: str) -> tuple[str, ...]:
    if choice is None or choice in words:
        return ("group",)
    if isinstance(choice, str):
        known = ", ".join(repr(word) for word in (*words, "none"))
        raise ValueError(f"normalize: {what}={choice!r}: known are {known}, or a tuple of columns such as ('task',)")
    return tuple(choice)


def statistics_of(turns: pd.DataFrame, by: tuple[str, ...], once_per: str | None) -> pd.DataFrame:
    """Return n, mean, min, max, squares and own for each row: the statistics of its group's units.

    `squares` is the sum of squared deviations, and `own` is the mean of the row's own unit. A unit is one value of
    `once_per`, or one row if that is `None`. Values are sorted first, so that the order of the rows cannot change a bit
    of the result. A group without a row of the batch has n = 0. Suffixes: R rows, U units, G groups.
    """
    require(turns, [*by, *([once_per] if once_per else [])], "normalize")
    group_R = _numbers(turns, by)
    each_R = _numbers(turns, [once_per]) if once_per else np.arange(len(turns))
    _refuse_unmeasurable(turns, group_R)
    pairs, unit_R = np.unique(np.stack([group_R, each_R], 1), axis=0, return_inverse=True)
    group_U, unit_R = pairs[:, 0], unit_R.reshape(-1)

    order = np.argsort(turns["credit"].to_numpy(float), kind="stable")
    order = order[trained(turns).to_numpy()[order]]
    own_U = _describe(turns["credit"].to_numpy(float)[order], unit_R[order], len(group_U))["mean"]
    played = np.flatnonzero(np.bincount(unit_R[order], minlength=len(group_U)))
    played = played[np.argsort(own_U[played], kind="stable")]
    groups = _describe(own_U[played], group_U[played], group_U.max(initial=-1) + 1)
    per_row = {name: values_G[group_R] for name, values_G in groups.items()}
    return pd.DataFrame({**per_row, "own": own_U[unit_R]}, index=turns.index)


def _numbers(turns: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Return the number of each row's group."""
    return keys(turns, by).groupby(list(by), sort=False, observed=True).ngroup().to_numpy()


def _refuse_unmeasurable(turns: pd.DataFrame, group_R: np.ndarray) -> None:
    """Raise `TableError` if the square of a credit overflows: deviations would be infinite and advantages NaN."""
    credit_R = turns["credit"].to_numpy(float)
    if not len(credit_R) or np.abs(credit_R).max() < TALLEST:
        return
    far = int(np.abs(credit_R).argmax())
    group = turns[group_R == group_R[far]]["credit"]
    raise TableError(
        f"normalize: the credit {credit_R[far]:g} at {place(turns.iloc[far])} is too large to be compared (its group "
        f"reaches from {group.min():g} to {group.max():g}); credits stay below {TALLEST:g}: scale the rewards"
    )


def _describe(value_N: np.ndarray, owner_N: np.ndarray, owners: int) -> dict[str, np.ndarray]:
    """Return n, mean, min, max and sum of squared deviations of each owner's values; 0 for an owner without values.

    Means are measured from the minimum, so that equal values have exactly their value as mean.
    """
    n = np.bincount(owner_N, minlength=owners)
    low, high = np.full(owners, np.inf), np.full(owners, -np.inf)
    np.minimum.at(low, owner_N, value_N)
    np.maximum.at(high, owner_N, value_N)
    low, high = np.where(n, low, 0.0), np.where(n, high, 0.0)
    mean = low + np.bincount(owner_N, value_N - low[owner_N], owners) / n.clip(1)
    squares = np.bincount(owner_N, (value_N - mean[owner_N]) ** 2, owners)
    return {"n": n, "mean": mean, "min": low, "max": high, "squares": squares}


def _warn_if_unlike_its_name(center: Center, scale: Scale) -> None:
    if isinstance(center, str) and center in ("loo", "max", "none") and scale is None:
        warnings.warn(
            f"normalize: center={center!r} divided by the group's standard deviation is neither MARLOO, MAREMAX nor "
            "MAREINFORCE, which do not scale; pass scale='none', or name the scale's columns if you mean it",
            stacklevel=3,
        )


def group_stats(turns: pd.DataFrame) -> pd.DataFrame:
    """Return one row per (group, agent) with statistics of its credits.

    Args:
        turns: Table with `credit` and `group`. Without an `agent` column, a row per group is returned.

    Returns:
        A table with `size`, `mean`, `std` (population), `lone` and `flat`. If `turns` has a column `step`, there is a
        row per (`step`, group, agent), because a task that is drawn again is compared anew. After `normalize` there is
        also `dropped`, the number of rows with advantage 0 though their credit is not their center.

    Raises:
        TableError: A column is missing, or a credit is not a finite number.

    `lone` means a single row, and `flat` means equal credits. If a group holds one agent, a lone or flat group has
    advantage 0 in all its rows and teaches nothing in this step.
    """
    require(turns, ["credit", "group"], "group_stats")
    by = [*(["step"] if "step" in turns.columns else []), "group", *(["agent"] if "agent" in turns.columns else [])]
    credits = turns[trained(turns)].groupby(by, sort=False, observed=True)["credit"]
    stats = credits.agg(size="size", mean="mean", std=lambda values: values.std(ddof=0), low="min", high="max")
    stats["lone"] = stats["size"] == 1
    stats["flat"] = is_flat(stats["low"], stats["high"])
    if {"center", "advantage"} <= set(turns.columns) and is_numeric_dtype(turns["advantage"]):
        low, high = turns[["credit", "center"]].min(axis=1), turns[["credit", "center"]].max(axis=1)
        dropped = (turns["advantage"] == 0) & ~is_flat(low, high)
        stats["dropped"] = dropped.groupby([turns[name] for name in by], sort=False, observed=True).sum()
    return documented(stats.drop(columns=["low", "high"]).reset_index(), "group_stats")


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
        if isinstance(self.by, str) or not self.by:
            raise ValueError(f"running_mean: by={self.by!r} must be a tuple of columns, such as ('agent',)")
        check_arguments(running_mean, {"by": self.by, "decay": self.decay, "once_per": self.once_per})
        if not 0 <= self.decay < 1:
            raise ValueError(f"running_mean: decay={self.decay!r} must be from 0, no memory, to below 1, never moved")

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


@dataclass(frozen=True)
class group_mean:
    """Scale: the mean credit of the row's group, so that advantages are relative: (credit - mean) / mean.

    `max_rl` of prime-rl has it. A group whose mean is 0 or less gets advantage 0.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the mean credit of each row's group.

        Args:
            turns: Table with `credit` and `group`.

        Returns:
            One mean per row, on the index of `turns`.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
        """
        require(turns, ["credit", "group"], "group_mean")
        return statistics_of(turns, ("group",), None)["mean"]


def _squared_deviations(credits: pd.Series) -> float:
    """Return the sum of squared deviations from the mean, with the same bits in any order of the rows."""
    mean = fsum(credits) / len(credits)
    return 0.0 if is_flat(credits.min(), credits.max()) else fsum((credits - mean) ** 2)
