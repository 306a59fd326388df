"""Cell 3, `normalize`: the comparison, advantage = (credit - center) / scale.

The center and the scale may come from different groups. The ablation of Dr. MAS varies exactly this. Each unit of
`once_per` enters the statistics once. Leaves out: the definition of a group (`group`) and the use of the advantage
(`update`).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.grouping import numbers_of
from mas_lab.table import forbid, has_several_steps, in_batch, keys, refuse_copies, require, step_by_step
from mas_lab.team import Team

ROUNDING = 2.0**-21
"""Credits that differ by no more than this share of the larger are equal: four units in the last place of float32."""
WORDS = {"center": ("loo", "max", "none"), "scale": ("none",), "lone": ("zero", "reward", "lend")}
"""The words that arguments of `normalize` may be."""
Statistics = Callable[[tuple[str, ...]], pd.DataFrame]


class Center(Protocol):
    """A baseline that no group statistic gives, such as `running_mean`: one number per row, on the index of `turns`.

    `turns` is the table of cell 2, with `credit` and `group`. With a class attribute `needs_team = True`, the call also
    gets the team. A center is pure: the same table has the same baseline in every call. See `Recipe.after` for one that
    learns.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the baseline of each row."""


class Scale(Protocol):
    """A divisor, such as `pooled_deviation`: one number of 0 or more per row, under the rules of `Center`.

    A row with divisor 0 gets advantage 0. `group_stats` counts such rows as `dropped`.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return the divisor of each row."""


def normalize(
    turns: pd.DataFrame,
    center: Sequence[str] | str | Center | None = None,
    scale: Sequence[str] | str | Scale | None = None,
    once_per: str | Mapping[str, str | None] | None = None,
    ddof: int = 0,
    eps: float = 1e-6,
    lone: Sequence[str] | str = "zero",
    team: Team | None = None,
) -> pd.DataFrame:
    """Add the columns `center`, `scale` and `advantage` to the table.

    Args:
        turns: Table with `credit` and `group`. Rows of several steps are compared step by step.
        center: The baseline. `None`: the mean credit over the row's `group`. A tuple of columns: the mean over the rows
            that are equal in them. "loo": the mean of the others in the group (leave one out). "max": the group's
            maximum. "none": 0. Or a `Center`.
        scale: The divisor. `None`: the standard deviation over the row's `group`, plus `eps`. A tuple of columns: the
            standard deviation over the rows that are equal in them, plus `eps`. "none": 1. Or a `Scale`, plus `eps`.
        once_per: A column whose values each enter the statistics of a group once, with their mean credit. "episode"
            makes GRPO count a trajectory once, however many turns it has. {"center": column, "scale": column} sets both
            apart. `None`: every row counts.
        ddof: 0 divides by n (population), 1 divides by n - 1 (sample).
        eps: Number of 0 or more that is added to the scale.
        lone: Rule for a row with nothing to be compared with, see below: "zero", "reward", "lend" or columns.
        team: The team that played `turns`, for a center or scale that needs it. `None`: there is none.

    Returns:
        The table with `center`, `scale` and `advantage`, a float per row each.

    Raises:
        TableError: A column is missing or would be overwritten, a credit is not finite or a
            callable returns no Series on the table's index.
        ValueError: An argument or a combination of arguments has no meaning.

    The equation of GRPO (arXiv 2402.03300, equation 3), of Dr. MAS (arXiv 2602.08847, equations 4-6), and, without the
    scale, of RLOO (arXiv 2402.14740):

        advantage = (credit - center) / scale

    A group is lone if it has a single unit, and flat if all its credits are equal (max == min, to rounding). A unit is
    one value of `once_per`, or one row. The rules of `lone`:

    - "zero": a row gets advantage 0 if its center group is lone, or if its scale group is lone or flat.
    - "reward": the row of a lone center group gets its credit as advantage (center 0, scale 1), as in the released code
      of Dr. MAS and in verl.
    - "lend": a row whose scale group is lone or flat uses the deviation of its center group, unless that group is lone
      or flat too.
    - columns, such as ("task", "agent"): as "zero", and a row also gets advantage 0 if the group of rows that are equal
      in these columns is lone or flat, whatever center and scale say.

    "zero" is biased if the center comes from another group than the scale. Example: an agent is called in four of a
    task's eight episodes. These four earn 0.2, 0, 0, 0, and the other four earn 1. Under `dr_mas_std` (center over the
    task's episodes, scale over the agent's own rows) its advantages are -3.75, -6.06, -6.06, -6.06. In a task where its
    four episodes earn nothing at all, its advantages are 0, 0, 0, 0. So the agent only learns from groups that hold one
    of its successes, and there all its rows are discouraged. "lend" gives the second task -1, -1, -1, -1. Only the
    agent's own center removes the bias.

    If center and scale are both the agent's own, they imply the rule of `lone=("task", "agent")`. A comparison of
    centers only therefore needs it in both arms (`grpo_masked` is `grpo` with it).
    """
    check_normalize(center, scale, once_per, ddof, eps, lone)
    require(turns, ["credit", "group"], "normalize")
    refuse_copies(turns, "normalize")
    forbid(turns, ["center", "scale", "advantage"], "normalize")
    if has_several_steps(turns):
        return step_by_step(turns, lambda rows: normalize(rows, center, scale, once_per, ddof, eps, lone, team))
    counts, statistics = in_batch(turns), cache(partial(statistics_of, turns))
    of_center = partial(statistics, once_per=_unit(once_per, "center"))
    of_scale = partial(statistics, once_per=_unit(once_per, "scale"))

    baseline, alone = _center(turns, center, of_center, team)
    divisor, lone_or_flat = _scale(turns, scale, of_scale, ddof, team)
    if lone == "lend":
        divisor, lone_or_flat = _lent(divisor, lone_or_flat, of_center(_columns(center)), ddof)
    divisor = divisor if scale == "none" else divisor + eps
    zeroed = alone | lone_or_flat
    if lone == "reward":
        baseline, divisor, zeroed = baseline.mask(alone, 0.0), divisor.mask(alone, 1.0), lone_or_flat & ~alone
    elif not isinstance(lone, str):
        zeroed |= _is_lone_or_flat(statistics(tuple(lone), once_per=None))
    advantage = ((turns["credit"] - baseline) / divisor).mask(zeroed | ~counts, 0.0)
    return turns.assign(center=baseline, scale=divisor, advantage=advantage)


def check_normalize(
    center: Sequence[str] | str | Center | None,
    scale: Sequence[str] | str | Scale | None,
    once_per: str | Mapping[str, str | None] | None,
    ddof: int,
    eps: float,
    lone: Sequence[str] | str = "zero",
) -> None:
    """Raise `ValueError` if an argument of `normalize` has no meaning; this needs no table."""
    check_arguments(check_normalize, locals(), "normalize", eps=0)
    parts, choices = {"center": center, "scale": scale}, {"center": center, "scale": scale, "lone": lone}
    grouped = [part for part, choice in parts.items() if choice != "none" and not callable(choice)]
    refused = [
        (ddof not in (0, 1), f"ddof is 0 (population) or 1 (sample), not {ddof!r}"),
        (isinstance(once_per, Mapping) and not set(once_per) <= set(parts),
         f"once_per has the keys {list(once_per or ())}; known are 'center' and 'scale'"),
        *((isinstance(choices[part], str) and choices[part] not in words,
           f"{part}={choices[part]!r}; known are {', '.join(map(repr, words))}, or a tuple such as ('task', 'agent')")
          for part, words in WORDS.items()),
        *((callable(choice) and _unit(once_per, part) is not None,
           f"once_per counts units of a {part} group, and {choice!r} has no groups; pass once_per={{'center': ...}} or "
           "{'scale': ...} for the other part alone") for part, choice in parts.items()),
        ((lone == "reward" and "center" not in grouped) or (lone == "lend" and len(grouped) < 2),
         f"lone={lone!r} is about groups, and center={center!r}, scale={scale!r} have none; name columns for them, or "
         "pass lone='zero'"),
    ]  # fmt: skip
    for is_refused, why in refused:
        if is_refused:
            raise ValueError(f"normalize: {why}")
    if isinstance(center, str) and center in ("loo", "max", "none") and scale is None:
        warnings.warn(
            f"normalize: center={center!r} divided by the group's standard deviation is neither MARLOO, MAREMAX nor "
            "MAREINFORCE, which do not scale; pass scale='none', or name the scale's columns if you mean it",
            stacklevel=3,
        )


def _center(
    turns: pd.DataFrame, center: Sequence[str] | str | Center | None, statistics: Statistics, team: Team | None
) -> tuple[pd.Series, pd.Series]:
    """Return the baseline of each row, and whether its group is lone."""
    if callable(center):
        return numbers_of("center", center, turns, team, "normalize"), pd.Series(False, turns.index)
    if center == "none":
        return pd.Series(0.0, turns.index), pd.Series(False, turns.index)
    stats = statistics(_columns(center))
    lone = stats["n"] < 2
    if center == "max":
        return stats["max"], lone
    if center == "loo":
        own = stats["own"]
        others = stats["mean"] + (stats["mean"] - own) / (stats["n"] - 1).clip(lower=1)
        return others.mask(lone, own), lone
    return stats["mean"], lone


def _scale(
    turns: pd.DataFrame, scale: Sequence[str] | str | Scale | None, statistics: Statistics, ddof: int, team: Team | None
) -> tuple[pd.Series, pd.Series]:
    """Return the divisor of each row without `eps`, and whether its group is lone or flat."""
    if scale == "none":
        return pd.Series(1.0, turns.index), pd.Series(False, turns.index)
    if callable(scale):
        divisor = numbers_of("scale", scale, turns, team, "normalize")
        return divisor, divisor <= 0
    stats = statistics(_columns(scale))
    lone_or_flat = _is_lone_or_flat(stats)
    return _deviation(stats, ddof).mask(lone_or_flat, 0.0), lone_or_flat


def _is_lone_or_flat(stats: pd.DataFrame) -> pd.Series:
    """Return whether each row's group is lone or flat."""
    return (stats["n"] < 2) | is_flat(stats["min"], stats["max"])


def _deviation(stats: pd.DataFrame, ddof: int) -> pd.Series:
    return np.sqrt(stats["squares"] / (stats["n"] - ddof).clip(lower=1))


def _lent(
    divisor: pd.Series, lone_or_flat: pd.Series, of_center: pd.DataFrame, ddof: int
) -> tuple[pd.Series, pd.Series]:
    """Return the result of `_scale` with the center group's deviation in rows whose scale group has none."""
    borrows = lone_or_flat & ~_is_lone_or_flat(of_center)
    return divisor.mask(borrows, _deviation(of_center, ddof)), lone_or_flat & ~borrows


def is_flat(low: pd.Series | float, high: pd.Series | float) -> pd.Series | bool:
    """Return whether a group's smallest and largest credit are equal, up to the rounding of float32 rewards."""
    return np.abs(high - low) <= np.maximum(1e-12, ROUNDING * np.maximum(np.abs(low), np.abs(high)))


def _unit(once_per: str | Mapping[str, str | None] | None, part: str) -> str | None:
    """Return the column whose values each count once in the statistics of "center" or "scale"."""
    return once_per.get(part) if isinstance(once_per, Mapping) else once_per


def _columns(choice: Any) -> tuple[str, ...]:
    """Return the columns that identify the groups of a center or scale."""
    return ("group",) if choice is None or isinstance(choice, str) else tuple(choice)


def statistics_of(turns: pd.DataFrame, by: tuple[str, ...], once_per: str | None) -> pd.DataFrame:
    """Return n, mean, min, max, squares and own for each row: the statistics of its group's units.

    `squares` is the sum of squared deviations, and `own` is the mean of the row's own unit. A unit is one value of
    `once_per`, or one row if that is `None`. Values are sorted first, so that the order of the rows cannot change a bit
    of the result. A group without a row of the batch has n = 0. Suffixes: R rows, U units, G groups.
    """
    require(turns, [*by, *([once_per] if once_per else [])], "normalize")
    group_R = _numbers(turns, by)
    each_R = _numbers(turns, [once_per]) if once_per else np.arange(len(turns))
    pairs, unit_R = np.unique(np.stack([group_R, each_R], 1), axis=0, return_inverse=True)
    group_U, unit_R = pairs[:, 0], unit_R.reshape(-1)

    order = np.argsort(turns["credit"].to_numpy(float), kind="stable")
    order = order[in_batch(turns).to_numpy()[order]]
    own_U = _describe(turns["credit"].to_numpy(float)[order], unit_R[order], len(group_U))["mean"]
    played = np.flatnonzero(np.bincount(unit_R[order], minlength=len(group_U)))
    played = played[np.argsort(own_U[played], kind="stable")]
    groups = _describe(own_U[played], group_U[played], group_U.max(initial=-1) + 1)
    per_row = {name: values_G[group_R] for name, values_G in groups.items()}
    return pd.DataFrame({**per_row, "own": own_U[unit_R]}, index=turns.index)


def _numbers(turns: pd.DataFrame, by: Sequence[str]) -> np.ndarray:
    """Return the number of each row's group."""
    return keys(turns, by).groupby(list(by), sort=False, observed=True).ngroup().to_numpy()


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
