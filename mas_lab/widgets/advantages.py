"""Write advantages for people and pages: one number per row, or a list with one per token.

Leaves out: what a list means for the loss (`cells.update`).
"""

from numbers import Real

import numpy as np


def in_words(advantage: object) -> float | str:
    """Return the number to four decimals, or the range of a list."""
    if isinstance(advantage, Real):
        return round(float(advantage), 4)
    low, high = np.min(advantage, initial=np.inf), np.max(advantage, initial=-np.inf)
    return f"per token, {low:.4g} to {high:.4g}" if low <= high else "per token, of none"


def listed(advantage: object) -> list[float]:
    """Return the numbers of a list to four decimals; an empty list for a single number."""
    return [round(float(one), 4) for one in advantage] if isinstance(advantage, list | tuple | np.ndarray) else []
