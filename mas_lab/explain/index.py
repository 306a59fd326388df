"""List the episodes of a table, a row each, sorted by a fixed rule with the most informative first.

Leaves out: the content of an episode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.display.documented_frame import COLUMN_DOCS
from mas_lab.explain.wrong_way import centered_own_reward
from mas_lab.table import column, in_batch

NEEDED = ["episode", "agent", "completion"]
READ = ("step", "task", "episode", "node", "turn", "depth", "agent", "kept", "probe", "valid", "finish", "team_reward",
        "success", "group", "advantage", "local_reward", "completion_ids", "logprobs")  # fmt: skip
MEANINGS = COLUMN_DOCS["index"]
"""Column -> what it says."""
RULE = (
    "Telling is 2 for a missed goal, plus the largest |advantage| (up to 3), plus 1 each where a row was compared with "
    "nobody, cut off or not understood, plus the largest surprise in nats per token (up to 1)."
)


def indexed(rows: pd.DataFrame, order: Sequence[str] = (), run: int = 0) -> pd.DataFrame:
    """Return a row per episode and step, the most telling first.

    `rows` is the output of `reduced`, the columns are those of `MEANINGS`, and `order` ranks agents that act at once.
    """
    rows = rows[in_batch(rows)].reset_index(drop=True)
    rank = {agent: place for place, agent in enumerate(sorted(rows["agent"].unique()))}
    rank |= {agent: place - len(order) for place, agent in enumerate(order)}
    rows["seat"] = rows["agent"].map(rank)
    key = rows.groupby(["step", "episode"], sort=False).ngroup().to_numpy()
    by = rows.groupby(key)
    index = by[["step", "task", "episode"]].first().assign(run=run, agents=_speakers(rows, key))
    index["return"] = _returns(rows, key)
    index["success"] = _successes(rows, key)
    high, low = by["advantage"].max(), by["advantage"].min()
    index["advantage"] = high.where(~(-low > high), low)
    index["surprise"] = by["surprise"].max()
    index["tokens"], index["rows"] = by["tokens"].sum(min_count=1), by.size()
    for name in ("truncated", "invalid", "lone", "reinforced"):
        index[name] = by[name].sum().astype(int)
    index["telling"] = informative(index)
    return in_order(index)[list(MEANINGS)]


def in_order(index: pd.DataFrame) -> pd.DataFrame:
    """Sort by `telling`, highest first; among equals, the earlier comes first."""
    by = ["telling", "run", "step", "episode"]
    return index.sort_values(by, ascending=[False, True, True, True], ignore_index=True)


def informative(index: pd.DataFrame) -> pd.Series:
    """Return the value of `RULE` for each row, from 0 to 9."""
    failed = (~index["success"].astype("boolean")).fillna(False).astype(float)
    counted = sum((index[name] > 0).astype(float) for name in ("lone", "truncated", "invalid"))
    large = index["advantage"].abs().fillna(0.0).clip(upper=3.0)
    return 2 * failed + large + counted + index["surprise"].fillna(0.0).clip(0.0, 1.0)


def reduced(table: Any) -> pd.DataFrame:
    """Return a pandas or Arrow table without lists, but with `tokens`, `surprise` and other columns of `MEANINGS`."""
    table = table if isinstance(table, pd.DataFrame) else table.to_pandas()
    of_list = {"completion_ids": ("tokens", len), "logprobs": ("surprise", _surprise),
               "advantage": ("advantage", _largest)}  # fmt: skip
    rows = table[[name for name in READ if name in table.columns and name not in of_list]]
    rows = rows.assign(step=rows.get("step", 0), task=rows.get("task", ""))
    for name in ("depth", "node", "kept", "probe", "valid"):
        rows[name] = column(rows, name)
    for source, (name, value) in of_list.items():
        rows[name] = pd.to_numeric(table[source].map(value, na_action="ignore")) if source in table else np.nan
    rows["truncated"] = rows["finish"] == "length" if "finish" in rows else False
    rows["invalid"] = ~rows["valid"].astype(bool)
    rows["lone"], rows["reinforced"], own = False, False, in_batch(rows)
    if "local_reward" in rows:
        wrong = (centered_own_reward(rows[own]) < 0).reindex(rows.index, fill_value=False)
        rows["reinforced"] = wrong & (rows["advantage"] > 0)
    if "group" in rows:
        rows["lone"] = own & (own.groupby([rows["step"], rows["group"]]).transform("sum") == 1)
    return rows


def _surprise(logprobs: Sequence[float]) -> float:
    """Return the mean of -log p over tokens; NaN without tokens."""
    return -float(np.mean(logprobs)) if len(logprobs) else np.nan


def _largest(advantage: float | Sequence[float]) -> float:
    """Return the largest number in size, with its sign; the positive one if two are equal, and NaN if there is none."""
    values = np.atleast_1d(advantage)
    high, low = (values.max(), values.min()) if len(values) else (np.nan, np.nan)
    return low if -low > high else high


def _speakers(rows: pd.DataFrame, key: np.ndarray) -> pd.Series:
    """Return the agents that spoke in each episode, in acting order."""
    first = rows.assign(key=key, agent=rows["agent"].astype(str)).sort_values(["key", "depth", "seat"])
    return first.drop_duplicates(["key", "agent"]).groupby("key")["agent"].agg(", ".join)


def _successes(rows: pd.DataFrame, key: np.ndarray) -> pd.Series:
    """Return whether any path that was followed reached the goal, per episode."""
    if "success" not in rows.columns:
        return pd.Series(pd.NA, index=range(key.max() + 1), dtype="boolean")
    last = rows["seat"] == rows.groupby(["step", "node"])["seat"].transform("max")  # it was played with all choices
    reached = rows["success"].astype(bool) & rows["kept"].astype(bool) & last
    return reached.groupby(key).any().astype("boolean")


def _returns(rows: pd.DataFrame, key: np.ndarray) -> pd.Series:
    """Return `lab.episode_return()` of each episode; NaN if it has none, as in a joint tree."""
    if "team_reward" not in rows.columns:
        return pd.Series(np.nan, index=range(key.max() + 1))
    followed = rows.assign(key=key)[rows["kept"].astype(bool)]
    steps = followed.groupby(["key", "depth"])["team_reward"].agg(["min", "max"])
    returns = steps["min"].groupby("key").sum().reindex(range(key.max() + 1), fill_value=0.0).astype(float)
    unlike = steps.index[steps["min"] != steps["max"]].get_level_values("key")
    branches = followed.loc[followed.duplicated(["key", "depth", "agent"]), "key"]
    returns[[*unlike, *branches]] = np.nan
    return returns
