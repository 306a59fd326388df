"""A row's advantage: one number for all tokens of its completion, or a list (or array) with one number per token.

`normalize` gives every row one number. Before `update`, anybody may put a list in its place, in some rows or in all
(process rewards, a critic's estimates); a column that holds both is pandas' `object`. One number stands for a list of
equal ones everywhere: in losses, statistics and shares. Leaves out: what a token's loss is (`losses`).
"""

from numbers import Real

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.table import TableError, place


def per_token(advantage: object, length: int) -> np.ndarray:
    """(length,) the advantage of each token."""
    return np.broadcast_to(np.asarray(advantage, float), length)


def live(advantages: pd.Series) -> pd.Series:
    """Which rows have an advantage other than 0, at any token."""
    return advantages != 0 if is_numeric_dtype(advantages) else advantages.map(np.any).astype(bool)


def mean_squares(advantages: pd.Series) -> pd.Series:
    """Per row, the mean over its tokens of the squared advantage."""
    if is_numeric_dtype(advantages):
        return advantages**2
    return advantages.map(lambda advantage: float(np.mean(np.square(np.asarray(advantage, float)))))


def require_one_per_token(rows: pd.DataFrame, cell: str) -> None:
    """Raises TableError, naming the place, where a list has not one number for each token of its completion."""
    if is_numeric_dtype(rows["advantage"]):
        return
    for at, (advantage, ids) in enumerate(zip(rows["advantage"], rows["completion_ids"], strict=True)):
        if not isinstance(advantage, Real) and len(advantage) != len(ids):
            raise TableError(
                f"{cell}: the advantage of {place(rows.iloc[at])} is a list of {len(advantage)}, and its completion "
                f"has {len(ids)} tokens; give one number for the row, or one for each token, EOS included"
            )


def in_lists(turns: pd.DataFrame) -> pd.DataFrame:
    """The table with a list in every row's `advantage`, if any row has one: a column of a file holds one kind."""
    if "advantage" not in turns.columns or is_numeric_dtype(turns["advantage"]):
        return turns
    pairs = zip(turns["advantage"], turns["completion_ids"], strict=True)
    lists = [per_token(advantage, len(ids)).tolist() for advantage, ids in pairs]
    return turns.assign(advantage=pd.Series(lists, turns.index, dtype=object))


def in_words(advantage: object) -> float | str:
    """For people: the number to four decimals, or from where to where a list goes."""
    if isinstance(advantage, Real):
        return round(float(advantage), 4)
    low, high = np.min(advantage, initial=np.inf), np.max(advantage, initial=-np.inf)
    return f"per token, {low:.4g} to {high:.4g}" if low <= high else "per token, of none"


def listed(advantage: object) -> list[float]:
    """For pages: the numbers of a list to four decimals; none of a row with one number for all tokens."""
    return [round(float(one), 4) for one in advantage] if isinstance(advantage, list | tuple | np.ndarray) else []


def importance_weighted(rows: pd.DataFrame, bound: float) -> pd.DataFrame:
    """Ratios are taken to `before`, and each token's advantage is weighted by min(p_before / p_sampled, bound)."""
    ratios = [np.exp(np.subtract(*pair)) for pair in zip(rows["before"], rows["logprobs"], strict=True)]
    pairs = zip(rows["advantage"], ratios, strict=True)
    advantages = [np.asarray(advantage, float) * np.minimum(ratio_T, bound) for advantage, ratio_T in pairs]
    return rows.assign(logprobs=rows["before"], advantage=pd.Series(advantages, rows.index, dtype=object))
