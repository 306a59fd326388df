"""Between cells 3 and 4, `select`: which rows `update` trains on. Nothing is dropped: the others stay to be seen.

A selector is a frozen dataclass, or any callable, `table -> Series` of True and False.
Leaves out: drawing more tasks for those that teach nothing (`mas_lab.train`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from mas_lab.cells.normalization import is_flat
from mas_lab.table import TableError, forbid, require, trained

Selector = Callable[[pd.DataFrame], pd.Series]


def select(turns: pd.DataFrame, selector: Selector) -> pd.DataFrame:
    """The table with `selected` added: what `selector` says of each row, and False for continuations (`probe`).

    `update` trains on the selected rows alone, and its denominators count them alone. Statistics of groups still count
    all. Raises `TableError` where the selector answers anything but True or False for each row.
    """
    forbid(turns, ["selected"], "select")
    said = selector(turns)
    if not isinstance(said, pd.Series) or not said.index.equals(turns.index):
        raise TableError(
            f"select: {selector!r} gave {type(said).__name__}; "
            "it must give a Series of True and False on the table's index"
        )
    marked = turns.assign(selected=said)
    require(marked, ["selected"], "select")
    return marked.assign(selected=marked["selected"].astype(bool) & trained(turns))


@dataclass(frozen=True)
class not_flat:
    """Rows of a comparison group whose credits are not all alike: DAPO, arXiv 2503.14476, section 3.2.

    A row of such a group whose own advantage is 0 is selected too, as there.
    """

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        require(turns, ["credit", "group"], "not_flat")
        credits = turns["credit"].where(trained(turns)).groupby(turns["group"], sort=False, observed=True)
        return ~is_flat(credits.transform("min"), credits.transform("max"))
