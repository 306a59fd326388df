"""Measure how much of a recipe's advantages goes the wrong way: answers that are reinforced although they are wrong.

It needs the agents' own rewards (`local_reward`) alone, no gradient. Leaves out: how far a row moves the weights
(`uphill` measures that).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.cells.normalization import is_flat
from mas_lab.display.documented_frame import documented
from mas_lab.recipes import Recipe, by_name
from mas_lab.table import in_batch, require


def wrong_way(turns: pd.DataFrame, recipes: str | Recipe | Sequence[str | Recipe] = ()) -> pd.DataFrame:
    """Return for each agent the share of advantage that goes the wrong way, in the table and under other recipes.

    >>> lab.wrong_way(report.turns, recipes=["grpo", "dr_mas"])

    Args:
        turns: Table with the columns of a rollout, and with `advantage` if it was compared already. With a column
            `step`, agents are judged step by step.
        recipes: Names or recipes that compare the same rows again. Default: none.

    Returns:
        A table with a row per `step` (if the table has it), `agent` and recipe, described by `lab.schema("wrong_way")`:
        `recipe` ("trained" for the table's own advantages), `wrong_way`, `reinforced` and `wrong`, the number of wrong
        answers. Shares are NaN for an agent without advantages, or without wrong answers.

    Raises:
        TableError: A column is missing.
        ValueError: Two recipes have one name.

    With R_i the own reward of row i, R the mean of the agent's rows in the step, and A_i the advantage:

        wrong_way = sum of |A_i| where A_i (R_i - R) < 0, over the sum of |A_i|
        reinforced = share of the rows with R_i < R for which A_i > 0
    """
    require(turns, ["task", "episode", "agent", "local_reward"], "wrong_way")
    turns = turns.reset_index(drop=True)  # tables of several steps may be joined without it
    by = [*(["step"] if "step" in turns.columns else []), "agent"]
    named = by_name(recipes, "wrong_way")
    compared = {name: recipe.advantages(turns)["advantage"] for name, recipe in named.items()}
    if "advantage" in turns.columns:
        trained = turns["advantage"] if is_numeric_dtype(turns["advantage"]) else turns["advantage"].map(np.mean)
        compared = {"trained": trained, **compared}
    rows = turns[in_batch(turns)]
    keys, wrong, tables = [rows[name] for name in by], centered_own_reward(rows) < 0, []
    for name, advantage in compared.items():
        parts = pd.DataFrame({"wrong": wrong, "reinforced": wrong & (advantage[rows.index] > 0)})
        table = parts.groupby(keys, sort=False, observed=True).sum()
        table = table.assign(wrong_way=wrong_way_share(rows, advantage, by)).reset_index()
        table["reinforced"] /= table["wrong"].where(table["wrong"] > 0)
        tables.append(table.assign(recipe=name)[[*by, "recipe", "wrong_way", "reinforced", "wrong"]])
    return documented(pd.concat(tables, ignore_index=True), "wrong_way")


def wrong_way_share(rows: pd.DataFrame, advantage: pd.Series, by: Sequence[str]) -> pd.Series:
    """Return the share of each group's |advantage| whose sign is not that of the own reward minus the agent's mean."""
    size = advantage[rows.index].abs()
    wrong = size.where(advantage[rows.index] * centered_own_reward(rows) < 0, 0.0)
    total, wrong = (one.groupby([rows[name] for name in by], sort=False, observed=True).sum() for one in (size, wrong))
    return wrong / total.where(total > 0)


def centered_own_reward(rows: pd.DataFrame) -> pd.Series:
    """Return the own reward of each row minus the mean of its agent's rows in the step."""
    by = [rows[name] for name in ("step", "agent") if name in rows.columns]
    mean = rows["local_reward"].groupby(by, sort=False, observed=True).transform("mean")
    return difference(rows["local_reward"], mean)


def difference(values: pd.Series, center: pd.Series) -> pd.Series:
    """Return values minus their center, and 0 where they differ by rounding alone."""
    return (values - center).mask(is_flat(values, center), 0.0)
