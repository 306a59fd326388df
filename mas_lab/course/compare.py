"""Comparison of an answer with the kit's own result on random tables.

The message names the first row that differs. Tables come from fixed seeds, so an answer meets the same ones each time.
Leaves out: the questions (`checks/`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.course.exercises import NotYet

PLACE = ("task", "episode", "agent", "turn", "candidate")


def tables(
    count: int = 8, agents: Sequence[str] = ("solver", "verifier", "fixer"), seed: int = 0
) -> Iterator[pd.DataFrame]:
    """Yield random tables as after `rollout`, with the columns that credits and groups read.

    The first agent speaks in every episode. Each later agent speaks more rarely, and mostly where rewards are low. So
    groups differ in size and mean. Some are lone (one row) or flat (equal credits). Rows are shuffled: no answer may
    rely on their order.
    """
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        rows = []
        for task in range(int(rng.integers(2, 4))):
            for episode in range(int(rng.integers(4, 7))):
                reward, depth = float(rng.integers(0, 5)) / 4, 0
                said = [
                    {
                        "task": f"t{task}",
                        "episode": f"t{task}e{episode}",
                        "agent": agent,
                        "turn": turn,
                        "team_reward": 0.0,
                        "local_reward": float(rng.integers(-2, 3)) / 4,
                        "kept": True,
                        "valid": bool(rng.random() > 0.15),
                    }
                    for place, agent in enumerate(agents)
                    if place == 0 or rng.random() < (0.9 - 0.6 * reward) / place
                    for turn in range(int(rng.integers(1, 3)))
                ]
                for row in said:
                    row["depth"], depth = depth, depth + 1
                said[-1]["team_reward"] = reward
                rows += said
        table = pd.DataFrame(rows)
        yield table.sample(frac=1, random_state=number).reset_index(drop=True)


def asked(answer: Callable, *given: Any) -> Any:
    """Call `answer` on copies of `given`, and return its result.

    Raises `NotYet` if `answer` is not a function, raises an exception, or returns nothing.
    """
    if not callable(answer):
        raise NotYet(f"a function is asked for, and this is {type(answer).__name__}")
    name = getattr(answer, "__name__", "it")
    copies = [one.copy() if isinstance(one, pd.DataFrame | pd.Series | np.ndarray) else one for one in given]
    try:
        found = answer(*copies)
    except Exception as error:
        raise NotYet(f"`{name}` raised {type(error).__name__}: {error}") from error
    if found is None or found is ...:
        raise NotYet(f"`{name}` returned nothing; write its body, and return the result")
    return found


def same_rows(
    yours: Any, ours: pd.Series, table: pd.DataFrame, what: str = "advantage", tolerance: float = 1e-4
) -> None:
    """Raise `NotYet` with the first row in which `yours` differs from `ours`; both have a number per row."""
    yours = _numbers(yours, table, what)
    off = ~np.isclose(yours, ours.to_numpy(dtype=float), rtol=tolerance, atol=tolerance)
    if off.any():
        row = int(np.flatnonzero(off)[0])
        raise NotYet(
            f"{where(table, row)}: your {what} is {yours[row]:.4g}, the cell's is {ours.iloc[row]:.4g} "
            f"({int(off.sum())} of {len(table)} rows differ)"
        )


def _numbers(yours: Any, table: pd.DataFrame, what: str) -> np.ndarray:
    if isinstance(yours, pd.DataFrame):
        raise NotYet(f"a table came back; return the column {what!r} of it")
    if isinstance(yours, pd.Series) and set(yours.index) == set(table.index):
        yours = yours.reindex(table.index)
    try:
        numbers = np.asarray(yours, dtype=float)
    except (TypeError, ValueError):
        raise NotYet(f"a number per row is asked for, and this is {type(yours).__name__}") from None
    if numbers.shape != (len(table),):
        raise NotYet(f"{len(table)} rows went in, and what came back has the shape {numbers.shape}")
    return numbers


def close(yours: Any, ours: float, what: str, tolerance: float = 1e-2) -> None:
    """Raise `NotYet` if a number is not within `tolerance` (relative, and absolute near 0) of the right one."""
    try:
        number = float(yours)
    except (TypeError, ValueError):
        raise NotYet(f"{what}: a number is asked for, and this is {type(yours).__name__}") from None
    if not np.isclose(number, ours, rtol=tolerance, atol=tolerance):
        raise NotYet(f"{what}: {number:.4g} is too {'large' if number > ours else 'small'}")


def where(table: pd.DataFrame, row: int) -> str:
    """Describe a row by its number and by the columns that identify it."""
    place = ", ".join(f"{name} {table[name].iloc[row]}" for name in PLACE if name in table)
    return f"row {row} ({place})"
