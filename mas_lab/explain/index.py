"""List the episodes of a table, a row each, sorted by a fixed rule with the most informative first.

All rows are processed at once: lists stay flat, as in Arrow. Leaves out: the content of an episode.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.normalization import centered_own_reward
from mas_lab.table import column, require, trained

NEEDED = ["episode", "agent", "completion"]
READ = ("step", "task", "episode", "node", "turn", "depth", "agent", "kept", "probe", "valid", "finish", "team_reward",
        "success", "group", "advantage", "local_reward", "completion_ids", "logprobs")  # fmt: skip
MEANINGS = {
    "run": "0, or 1 for the run beside it",
    "step": "training step, from 0",
    "task": "task id",
    "episode": "one environment instance played to its end",
    "agents": "who spoke, in acting order",
    "return": "what the team earned over the kept steps; empty where the episode branches",
    "success": "did a path that was followed reach the goal",
    "advantage": "the largest in size, with its sign",
    "surprise": "the largest of its rows, each the mean of -log p over its tokens, in nats",
    "tokens": "sampled tokens",
    "rows": "calls of a model",
    "truncated": "rows cut off at the token limit",
    "invalid": "rows that the environment did not understand",
    "lone": "rows that were compared with nobody",
    "reinforced": "rows that were reinforced although wrong: less own reward than their agent's mean in the step",
    "telling": "what the index is sorted by",
}
RULE = (
    "Telling is 2 for a missed goal, plus the largest |advantage| (up to 3), plus 1 each where a row was compared with "
    "nobody, cut off or not understood, plus the largest surprise in nats per token (up to 1)."
)


def index_of_turns(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the index of a table of turns in memory; agents that act at once are ordered by name."""
    require(turns, NEEDED, "index")
    return indexed(reduced(turns[[name for name in READ if name in turns.columns]].reset_index(drop=True)))


def indexed(rows: pd.DataFrame, order: Sequence[str] = (), run: int = 0) -> pd.DataFrame:
    """Return a row per episode and step, the most telling first.

    `rows` is the output of `reduced`, the columns are those of `MEANINGS`, and `order` ranks agents that act at once.
    """
    rows = rows[trained(rows)].reset_index(drop=True)
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
    return index.sort_values(
        ["telling", "run", "step", "episode"], ascending=[False, True, True, True], ignore_index=True
    )


def informative(index: pd.DataFrame) -> pd.Series:
    """Return the value of `RULE` for each row, from 0 to 9."""
    failed = (~index["success"].astype("boolean")).fillna(False).astype(float)
    counted = sum((index[name] > 0).astype(float) for name in ("lone", "truncated", "invalid"))
    large = index["advantage"].abs().fillna(0.0).clip(upper=3.0)
    return 2 * failed + large + counted + index["surprise"].fillna(0.0).clip(0.0, 1.0)


def reduced(table: Any) -> pd.DataFrame:
    """Return a pandas or Arrow table without lists, but with `tokens`, `surprise` and other columns of `MEANINGS`."""
    names = list(table.columns) if isinstance(table, pd.DataFrame) else table.column_names
    lists = {name: _flat(table[name]) for name in ("completion_ids", "logprobs", "advantage") if name in names}
    scalars = [name for name in names if name in READ and name not in lists]
    rows = table[scalars] if isinstance(table, pd.DataFrame) else table.select(scalars).to_pandas()
    rows = rows.assign(step=rows.get("step", 0), task=rows.get("task", ""))
    for name in ("depth", "node", "kept", "probe", "valid"):
        rows[name] = column(rows, name)
    rows["tokens"] = lists["completion_ids"][1] if "completion_ids" in lists else np.nan
    rows["surprise"] = np.nan
    if "logprobs" in lists:
        rows["surprise"] = -_each(np.add, *lists["logprobs"]) / np.maximum(lists["logprobs"][1], 1)
    rows["advantage"] = _extremes(*lists["advantage"]) if "advantage" in lists else np.nan
    rows["truncated"] = rows["finish"] == "length" if "finish" in rows else False
    rows["invalid"] = ~rows["valid"].astype(bool)
    rows["lone"], rows["reinforced"], own = False, False, trained(rows)
    if "local_reward" in rows:
        wrong = (centered_own_reward(rows[own]) < 0).reindex(rows.index, fill_value=False)
        rows["reinforced"] = wrong & (rows["advantage"] > 0)
    if "group" in rows:
        rows["lone"] = own & (own.groupby([rows["step"], rows["group"]]).transform("sum") == 1)
    return rows


def _flat(values: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return all numbers of a column of lists or numbers, and how many belong to each row."""
    if isinstance(values, pd.Series):
        lists = [one if hasattr(one, "__len__") else (one,) for one in values]
        lengths = np.fromiter(map(len, lists), int, len(lists))
        return np.fromiter(chain.from_iterable(lists), float, lengths.sum()), lengths
    from pyarrow import compute, types

    if not (types.is_list(values.type) or types.is_large_list(values.type)):
        return values.to_numpy().astype(float), np.ones(len(values), int)
    flat = compute.list_flatten(values)
    lengths = compute.fill_null(compute.list_value_length(values), 0)
    return flat.to_numpy().astype(float), lengths.to_numpy().astype(int)


def _each(reduce: np.ufunc, flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Reduce the numbers of each row; NaN for a row without numbers."""
    found, starts = np.full(len(lengths), np.nan), np.cumsum(lengths) - lengths
    if len(flat):
        found[lengths > 0] = reduce.reduceat(flat, starts[lengths > 0])
    return found


def _extremes(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the largest number in size of each row, with its sign; the positive one if two are equal."""
    high, low = _each(np.maximum, flat, lengths), _each(np.minimum, flat, lengths)
    return np.where(-low > high, low, high)


def _speakers(rows: pd.DataFrame, key: np.ndarray) -> list[str]:
    """Return the agents that spoke in each episode, in acting order."""
    first = pd.DataFrame({"key": key, "depth": rows["depth"], "seat": rows["seat"], "agent": rows["agent"]})
    first = first.sort_values(["key", "depth", "seat"]).drop_duplicates(["key", "agent"])
    ends = np.cumsum(np.bincount(first["key"]))
    names = first["agent"].astype(str).tolist()
    return [", ".join(names[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


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
