"""Cell 2, `group`: which rows are compared with each other, and on which number.

It adds the columns `credit` and `group`. The values of the `by` columns alone identify a group. The position of a row,
a stride, the prompt's text and nesting play no role, so shuffling the rows changes nothing. Leaves out: the comparison
itself (`normalize`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import Credit
from mas_lab.table import (
    TableError,
    forbid,
    has_several_steps,
    in_float64,
    keys,
    place,
    plain,
    refuse_copies,
    require,
    step_by_step,
)
from mas_lab.team import Team, arguments_of


def group(
    turns: pd.DataFrame, by: Sequence[str] | str, credit: Credit, same_prompt: bool = False, team: Team | None = None
) -> pd.DataFrame:
    """Add the columns `credit` and `group` to the table.

    Args:
        turns: Table of turns, one row per model call.
        by: Columns whose values identify a group, or the name of one column. GRPO groups by task, Dr. MAS by (task,
            agent), AT-GRPO by (episode, agent, turn) (equation 3 of arXiv 2510.11062), and MAGRPO by (node, agent).
        credit: The number that is compared, such as `episode_return()`.
        same_prompt: Refuse a group whose rows answer different prompts. AT-GRPO's groups must share one prompt.
            Default: such groups are allowed.
        team: The team that played `turns`, for a credit that needs it. `None`: there is none.

    Returns:
        The table with `credit`, a float per row, and `group`, one string per group.

    Raises:
        TableError: A column is missing or would be overwritten, the credit fails, a reward or credit is NaN or
            infinite, a (node, candidate, agent) occurs twice, or prompts differ under `same_prompt`.
    """
    check_arguments(group, {"by": by, "credit": credit, "same_prompt": same_prompt})
    by = (by,) if isinstance(by, str) else tuple(by)
    require(turns, by, "group")
    forbid(turns, ["credit", "group"], "group")
    refuse_copies(turns, "group")
    scored = turns.assign(credit=_credited(turns, credit, team), group=_labels(turns, by))
    if same_prompt:
        _refuse_mixed_prompts(scored)
    return scored


def _credited(turns: pd.DataFrame, credit: Credit, team: Team | None) -> pd.Series:
    """Return the credit of each row, step by step; an error of the credit names it and the step."""
    if has_several_steps(turns):  # episodes and nodes of different steps may share a name
        return step_by_step(turns, lambda rows: _credited(rows, credit, team))
    return numbers_of("credit", credit, in_float64(turns), team, "group")


def numbers_of(part: str, function: Any, turns: pd.DataFrame, team: Team | None, cell: str) -> pd.Series:
    """Return the numbers of a callable credit, center or scale (`part`), one finite number per row."""
    arguments = arguments_of(function, turns, team, cell)
    try:
        values = function(*arguments)
        values = pd.Series(values, turns.index) if isinstance(values, np.ndarray) else values
    except TableError:
        raise
    except Exception as error:
        at = f" in step {plain(turns['step'].iloc[0])}" if "step" in turns and len(turns) else ""
        told = f"{cell}: {part} {function!r} failed{at}: {type(error).__name__}: {error}"
        raise TableError(f"{told}. It gets the whole table, and gives a number per row") from error
    if not isinstance(values, pd.Series) or not values.index.equals(turns.index):
        gave = f"{len(values)} numbers on another index" if isinstance(values, pd.Series) else type(values).__name__
        raise TableError(
            f"{cell}: {part} {function!r} gave {gave} for {len(turns)} rows; give a Series on the table's index, "
            "such as turns.groupby('task')['team_reward'].transform('mean')"
        )
    require(turns.assign(**{part: values}), [part], f"{cell}, {part}={function!r}")
    return values.astype(float)


def _labels(turns: pd.DataFrame, by: tuple[str, ...]) -> pd.Series:
    """Return one readable string per distinct key.

    Values are quoted if plain text would give two keys the same string.
    """
    rows = list(keys(turns, by).astype(object).itertuples(index=False, name=None))
    distinct = list(dict.fromkeys(rows))
    for write in (str, repr):
        labels = [" · ".join(write(value) for value in key) for key in distinct]
        if len(set(labels)) == len(labels):
            break
    by_key = dict(zip(distinct, labels, strict=True))
    return pd.Series([by_key[row] for row in rows], index=turns.index, name="group", dtype=object)


def _refuse_mixed_prompts(turns: pd.DataFrame) -> None:
    prompt = "prompt_ids" if "prompt_ids" in turns.columns else "prompt"
    require(turns, [prompt], "group(same_prompt=True)")
    prompts = turns[prompt].map(tuple) if prompt == "prompt_ids" else turns[prompt]
    mixed = prompts.groupby(turns["group"]).transform("nunique") > 1
    if mixed.any():
        row = turns[mixed].iloc[0]
        raise TableError(
            f"group: the rows of group {row['group']!r} answer different prompts, first at {place(row)}; "
            "group by more columns, or pass same_prompt=False if you mean to compare across prompts"
        )
