"""Between cells 3 and 4, `select`: the rows on which `update` trains.

No row is dropped; the others stay in the table. A selector is a frozen dataclass, or any callable, `table -> Series` of
True and False. Leaves out: drawing more tasks in place of those that teach nothing (`mas_lab.train`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.normalization import is_flat
from mas_lab.table import TableError, forbid, in_batch, refuse_copies, require

Selector = Callable[[pd.DataFrame], pd.Series]


def select(turns: pd.DataFrame, selector: Selector) -> pd.DataFrame:
    """Add the column `selected` to the table.

    Args:
        turns: Table of turns with advantages.
        selector: Callable `table -> Series` that says True or False for each row, such as `not_flat()`.

    Returns:
        The table with `selected`: the selector's answer, and False for continuations (`probe`).

    Raises:
        TableError: `selected` exists already, or the selector does not give True or False for each row.

    `update` trains on the selected rows only, and only they count in its denominators. Statistics of groups still count
    all rows.
    """
    check_arguments(select, locals())
    forbid(turns, ["selected"], "select")
    refuse_copies(turns, "select")
    chosen = selector(turns)
    if not isinstance(chosen, pd.Series) or not chosen.index.equals(turns.index):
        raise TableError(
            f"select: {selector!r} gave {type(chosen).__name__}; "
            "it must give a Series of True and False on the table's index"
        )
    marked = turns.assign(selected=chosen)
    require(marked, ["selected"], "select")
    return marked.assign(selected=marked["selected"].astype(bool) & in_batch(turns))


@dataclass(frozen=True)
class not_flat:
    """Selector of DAPO: rows of a comparison group whose credits are not all equal.

    DAPO, arXiv 2503.14476, section 3.2. As there, a row of such a group is selected even if its own advantage is 0.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return whether each row's group has different credits.

        Args:
            turns: Table with `credit` and `group`.

        Returns:
            Booleans on the index of `turns`.

        Raises:
            TableError: A column is missing, or a credit is not a finite number.
        """
        require(turns, ["credit", "group"], "not_flat")
        credits = turns["credit"].where(in_batch(turns)).groupby(turns["group"], sort=False, observed=True)
        return ~is_flat(credits.transform("min"), credits.transform("max"))
