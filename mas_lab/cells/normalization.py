"""Cell 3, `normalize`: the comparison. advantage = (credit - center) / scale.

The center and the scale may come from different groups, which is the whole of the Dr. MAS ablation; each unit of
`once_per` enters their statistics once. Leaves out: what a group is (`group`) and what the advantage is for (`update`).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from numbers import Real

import numpy as np
import pandas as pd

from mas_lab.keyed import keyed
from mas_lab.table import TableError, forbid, place, require, trained

Center = Sequence[str] | str | Callable[[pd.DataFrame], pd.Series] | None
Scale = Sequence[str] | str | Callable[[pd.DataFrame], pd.Series] | None
TALLEST = 1e150
"""Credits from here on have squares that overflow."""
FLAT = ("zero", "center")
"""What `normalize` may do where a scale group does not vary."""
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
) -> pd.DataFrame:
    """The table with `center`, `scale` and `advantage` added.

    `center`: the mean credit over the row's `group` (default) or over another tuple of columns; "loo": the mean of the
    others in the group; "max": the group's maximum; "none": 0; or any callable `table -> Series`, see `centers`.
    `scale`: the standard deviation plus `eps`, over the `group` (default) or another tuple of columns; "none": 1; or
    any callable `table -> Series`, see `pooled_deviation`.
    `once_per`: a column, or {"center": column, "scale": column}: each of its values enters the statistics of a group
    once, with its mean credit ("episode" makes GRPO count a trajectory once, however many turns it has).
    `ddof`: 0 divides by n (population), 1 by n - 1.
    `flat`: what a row gets whose scale group is lone or flat (max == min, to rounding): "zero", advantage 0; "center",
    the deviation of its center group in the place of its own, where that one is neither.
    `peers`: columns of a peer group, such as ("task", "agent"). A row gets advantage 0 if its peer group is lone or
    flat, whatever center and scale say. `None`: such rows are trained on. An agent's own center and scale imply it, so
    a comparison of the center alone needs it in both arms (`grpo_masked` is `grpo` with it).

    A row gets advantage 0 if its center group is lone, or its scale group is lone or flat; never the raw reward.
    Where the center is another group than the scale, this rule is biased. An agent that is called in four of a task's
    eight episodes, which earn 0.2, 0, 0, 0 while the other four earn 1, has under `dr_mas_std` (center over the task's
    episodes, scale over its own rows) the advantages -3.75, -6.06, -6.06, -6.06, and 0, 0, 0, 0 in a task where its
    four earn nothing at all: only groups that hold a success of its are learned from, and there all is discouraged.
    `flat="center"` gives the second task -1, -1, -1, -1. The agent's own center is what removes the bias.

    GRPO: arXiv 2402.03300, equation 3; Dr. MAS: arXiv 2602.08847, equations 4-6;
    RLOO: arXiv 2402.14740.
    """
    require(turns, ["credit", "group"], "normalize")
    forbid(turns, ["center", "scale", "advantage"], "normalize")
    refuse_nonsense(center, scale, once_per, ddof, eps, flat, peers)
    _warn_if_unlike_its_name(center, scale)
    units = once_per if isinstance(once_per, Mapping) else {"center": once_per, "scale": once_per}

    statistics = cache(lambda by, once: statistics_of(turns, by, once))
    divisor, still = _scale(turns, scale, lambda by: statistics(by, units.get("scale")), ddof, eps)
    if flat == "center":
        of_center = statistics(_columns(center, ("loo", "max"), "center"), units.get("center"))
        divisor, still = _lent(divisor, still, of_center, ddof, eps)
    baseline, lone = _center(turns, center, lambda by: statistics(by, units.get("center")))
    dead = lone | still | ~trained(turns) | _without_peer(statistics, peers)
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
) -> None:
    """Raises `ValueError` naming the argument of `normalize` that cannot be meant, before there is a table."""
    if ddof not in (0, 1):
        raise ValueError(f"normalize: ddof is 0 (population) or 1 (sample), not {ddof!r}")
    if not (isinstance(eps, Real) and 0 <= eps < float("inf")):
        raise ValueError(f"normalize: eps={eps!r} must be a number of 0 or more; it is added to the scale")
    if flat not in FLAT:
        raise ValueError(f"normalize: flat={flat!r}; known are {', '.join(FLAT)}")
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
    """The baseline of each row, and whether its group is lone."""
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


def _asked(function: Callable[[pd.DataFrame], pd.Series], turns: pd.DataFrame, part: str) -> pd.Series:
    """Return what a callable center or scale (`part`) gives: a finite number for each row."""
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
    """The divisor of each row, and whether its group is lone or flat."""
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
    """`_scale`, with the center group's deviation where the scale group has none."""
    lends = still & ~_is_still(of_center)
    return divisor.mask(lends, _deviation(of_center, ddof) + eps), still & ~lends


def is_flat(low: pd.Series | float, high: pd.Series | float) -> pd.Series | bool:
    """Whether a group's smallest and largest credit are one number, but for the rounding of sums in another order."""
    return np.abs(high - low) <= 1e-12 * np.maximum(1.0, np.maximum(np.abs(low), np.abs(high)))


def _columns(choice: Center, words: tuple[str, ...], what: str) -> tuple[str, ...]:
    if choice is None or choice in words:
        return ("group",)
    if isinstance(choice, str):
        known = ", ".join(repr(word) for word in (*words, "none"))
        raise ValueError(f"normalize: {what}={choice!r}: known are {known}, or a tuple of columns such as ('task',)")
    return tuple(choice)


def statistics_of(turns: pd.DataFrame, by: tuple[str, ...], once_per: str | None) -> pd.DataFrame:
    """Per row: n, mean, min, max, sum of squared deviations of its group's units, and the mean of its `own` unit.

    Values are sorted first, so that the order of the rows cannot change a bit of the result. A group that holds no row
    of the batch has n = 0.
    """
    require(turns, [*by, *([once_per] if once_per else [])], "normalize")
    group_R = turns.groupby(list(by), sort=False, observed=True).ngroup().to_numpy()
    each_R = (
        turns.groupby(once_per, sort=False, observed=True).ngroup().to_numpy() if once_per else np.arange(len(turns))
    )
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


def _refuse_unmeasurable(turns: pd.DataFrame, group_R: np.ndarray) -> None:
    """Squares beyond the largest number there is would make a deviation infinite, and advantages NaN."""
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
    """n, mean, min, max and sum of squared deviations of each owner's values; 0 where it has none.

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
    """A row per (group, agent): `size`, `mean`, `std` (population) of its credits, and whether it is `lone` or `flat`.

    In a table of several steps, a row per (`step`, group, agent): a task that was drawn again is compared anew. Where a
    group holds one agent, lone or flat means that its rows have advantage 0 and teach nothing in this step. Without an
    `agent` column a row is a group.
    """
    require(turns, ["credit", "group"], "group_stats")
    by = [*(["step"] if "step" in turns.columns else []), "group", *(["agent"] if "agent" in turns.columns else [])]
    credits = turns[trained(turns)].groupby(by, sort=False, observed=True)["credit"]
    stats = credits.agg(size="size", mean="mean", std=lambda values: values.std(ddof=0), low="min", high="max")
    stats["lone"] = stats["size"] == 1
    stats["flat"] = is_flat(stats["low"], stats["high"])
    return keyed(stats.drop(columns=["low", "high"]).reset_index(), "group_stats")


def refuse_lone_groups(turns: pd.DataFrame, what: str) -> None:
    """Raises `TableError` if no group of the table has two rows to compare (K = 1)."""
    if len(turns) and (turns.groupby("group").size() < 2).all():
        raise TableError(f"{what}: every group has a single row (K = 1), so nothing is compared; ask for two or more")
