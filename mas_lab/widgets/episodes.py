"""Read episodes and comparison groups as a page's data, one step at a time, and choose those that a page holds.

An episode has its nodes in order, and each node its candidates with their tokens. This module leaves out how episodes
are ranked (`explain.index`) and how they are shown (`static/rollouts_episode.js`).
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.explain.index import MEANINGS, NEEDED, READ, RULE, indexed, reduced
from mas_lab.explain.spike_rule import spike_steps
from mas_lab.runs.disk import INFO, read_info
from mas_lab.table import SCHEMA, require
from mas_lab.tasks.shared.chains import read_answer, values_of
from mas_lab.widgets.source import Source, completed
from mas_lab.widgets.text import escape_control_chars as escaped
from mas_lab.widgets.text import visible_data

NUMBERS = ("team_reward", "local_reward", "credit", "center", "scale", "advantage", "temperature")
SHADES = ("surprise", "entropy", "advantage", "share")
COLUMNS = [name for name in SCHEMA if name != "prompt_ids"]
DATES = ["step", "optimizer_step", "policy"]
MEMBERS, EXCERPT = 32, 80
"""Members of a comparison group that a page lists, and characters of a completion in this list."""
CACHED_STEPS, MISSES = 4, 20
"""Steps kept in memory, and how many episodes may not fit on a page before no other is tried."""
LINE = 300
"""Bytes of an episode's line in the index."""
CHAIN = re.compile(r"(?:solve|check) (\d(?: [-+*] \d)+)$")
"""A chain of digits at the end of a prompt, as the teaching tasks pose it (`tasks.shared.chains`)."""

Row = dict[str, Any]
Data = dict[str, Any]
Groups = dict[str, list[Data]]
Shares = dict[tuple[int, int], list[float]]
"""(step, row of the step's table from 0) -> a number per token of the completion."""


# An episode


def episode_data(rows: Sequence[Row], source: Source) -> Data:
    """Return one episode, given by its rows, as plain data: its nodes in order, each with its prompt and candidates."""
    nodes: dict[tuple[str, str], Data] = {}
    seats = {agent: seat for seat, agent in enumerate(source.agents)}
    most = max((size(row.get("advantage")) for row in rows), default=0.0)
    for row in sorted(rows, key=lambda row: (row["depth"], row["node"], seats.get(row["agent"], len(seats)))):
        node = nodes.setdefault((row["node"], row["agent"]), {
            **{name: escaped(row[name]) for name in ("node", "parent", "agent")}, "depth": int(row["depth"]),
            "turn": int(row.get("turn", 0)), "heard": escaped(row.get("prompt", "")), "candidates": [],
            "worked": worked(row),
        })  # fmt: skip
        node["candidates"].append(_candidate(row, source, most))
    for node in nodes.values():
        node["candidates"].sort(key=lambda one: one["index"])
    reached = any(row["success"] for row in rows if row.get("kept", True)) if "success" in rows[0] else None
    return {"name": escaped(rows[0]["episode"]), "task": escaped(rows[0].get("task", "")), "success": reached,
            "nodes": list(nodes.values())}  # fmt: skip


def worked(row: Row) -> list[int]:
    """Return the running values of the chain of digits that a prompt poses, the right answer last; [] without one."""
    chain = CHAIN.search(row.get("prompt", ""))
    return values_of(chain[1]) if chain else []


def _flaw(row: Row) -> str:
    """Return what is wrong with a tool call, or with the answer to a chain of digits."""
    if (call := row.get("call_status", "none")) not in ("none", "ok"):
        return f"tool call: {escaped(call).replace('_', ' ')}"
    answer, right = read_answer(row["completion"]), worked(row)
    return f"wrong, {right[-1]} is right" if answer and right and int(answer) != right[-1] else ""


def _candidate(row: Row, source: Source, most: float) -> Data:
    ids = [int(number) for number in row.get("completion_ids", ())]
    shades, info = _shades(row, len(ids)), row.get("info")
    is_telling = (most > 0 and size(row.get("advantage")) == most) or row.get("finish") == "length"
    return {
        "index": int(row.get("candidate", 0)), "action": escaped(row["action"]), "kept": bool(row.get("kept", True)),
        "valid": bool(row.get("valid", True)), "finish": escaped(row.get("finish", "")),
        "said": escaped(row["completion"]),
        "flaw": _flaw(row),
        "numbers": {name: in_words(row[name]) for name in NUMBERS if not _is_missing(row.get(name))},
        "group": escaped(row.get("group", "")), "info": escaped(json.dumps(info, ensure_ascii=False)) if info else "",
        "tokens": source.token_texts(row.get("policy", ""), ids), "ids": ids, "shades": shades,
        "tell": bool(is_telling or "share" in shades),
    }  # fmt: skip


def _shades(row: Row, length: int) -> dict[str, list[float]]:
    """Return the known values of each token, with four decimals."""
    advantage, logprobs = row.get("advantage"), row.get("logprobs")
    if isinstance(advantage, Real) and not _is_missing(advantage):
        advantage = [advantage] * length
    known = {
        "surprise": [0.0 - one for one in listed(logprobs)], "entropy": listed(row.get("entropies")),
        "advantage": listed(advantage), "share": listed(row.get("shares")),
    }  # fmt: skip
    return {name: numbers for name, numbers in known.items() if numbers and len(numbers) == length}


def in_words(advantage: object) -> float | str:
    """Return the number to four decimals, or the range of a list."""
    if isinstance(advantage, Real):
        return round(float(advantage), 4)
    low, high = np.min(advantage, initial=np.inf), np.max(advantage, initial=-np.inf)
    return f"per token, {low:.4g} to {high:.4g}" if low <= high else "per token, of none"


def listed(advantage: object) -> list[float]:
    """Return the numbers of a list to four decimals; an empty list for a single number."""
    return [round(float(one), 4) for one in advantage] if isinstance(advantage, list | tuple | np.ndarray) else []


def size(advantage: Any) -> float:
    """Return the largest |advantage| of a row, or 0 if it has none."""
    return 0.0 if _is_missing(advantage) else float(np.max(np.abs(np.asarray(advantage, float)), initial=0.0))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


# Reading


class Reading:
    """Read the episodes and comparison groups of one source, which stands for run number `run`."""

    def __init__(self, source: Source, run: int = 0, shares: Shares | None = None):
        self.source, self.run, self._shares = source, run, shares or {}
        self._step = lru_cache(CACHED_STEPS)(self._read)

    def _read(self, step: int) -> list[Row]:
        """Return the rows of a step that belong to its batch, with their place in the step as `row`."""
        if self.source.run:  # by Arrow, which takes half the time of pandas
            [table] = self.source.arrow(COLUMNS, [step])
            rows = [one | {INFO: read_info(one[INFO])} if INFO in one else one for one in table.to_pylist()]
        else:
            rows = completed(self.source.turns(step, COLUMNS)).to_dict("records")
        return [one | {"row": place} for place, one in enumerate(rows) if not one["probe"]]

    def rows(self, step: int, episode: str) -> list[Row]:
        """Return the rows of an episode as dicts."""
        return [row for row in self._step(step) if row["episode"] == episode]

    def with_groups(self, step: int, name: str) -> tuple[Data, Groups]:
        """Return an episode as a page's data, and the comparison groups of its rows under the names `run|step|group`.

        A group lists at most `MEMBERS` members, or more if the episode itself has more. A candidate's `compared` is the
        full size of its group.
        """
        rows, found = self.rows(step, name), {}
        for row in rows if self._shares else ():
            row["shares"] = self._shares.get((step, row["row"]))
        episode = {"run": self.run, "step": step, **episode_data(rows, self.source)}
        for row in self._step(step):
            found.setdefault(escaped(row.get("group", "")), []).append(row)
        groups = {}
        for one in (one for node in episode["nodes"] for one in node["candidates"]):
            key, members = f"{self.run}|{step}|{one['group']}", found[one["group"]] if one["group"] else []
            one["compared"] = len(members)
            if members and key not in groups:
                groups[key] = _largest(members, name)
        return episode, groups


def _largest(rows: list[Row], own: str) -> list[Data]:
    """Return rows in order as a page lists them: all of the episode `own`, and others of the largest |advantage|."""
    least = sum(row["episode"] == own for row in rows)
    order = sorted(range(len(rows)), key=lambda at: (rows[at]["episode"] != own, -size(rows[at].get("advantage"))))
    return [_member(rows[place]) for place in sorted(order[: max(MEMBERS, least)])]


def _member(row: Row) -> Data:
    numbers = {name: None if _is_missing(row.get(name)) else in_words(row[name]) for name in ("credit", "advantage")}
    return {
        **{name: escaped(row[name]) for name in ("episode", "node", "agent")},
        "candidate": int(row.get("candidate", 0)), **numbers, "said": escaped(row["completion"])[:EXCERPT],
    }  # fmt: skip


def recorded_shares(source: Source) -> Shares:
    """Return the shares that the source's `SpikeWatch` recorded at its spikes, of each row's tokens.

    A row may take part in several optimizer steps: the shares of the highest spike count. Recorded proxies are left
    out, because they are not shares.
    """
    watched = source.watched()
    if not (spikes := watched["spikes"] if watched else []):
        return {}
    stats = source.stats(DATES)
    if source.live:  # the watch may be ahead of the reports
        made = stats.drop_duplicates(DATES)["policy"].value_counts()
        spikes = [spike for spike in spikes if spike["call"] < made.get(spike["policy"], 0)]
    return spike_shares(spike_steps(stats, spikes))


def spike_shares(spikes: Sequence[Mapping[str, Any]]) -> Shares:
    """Return the exact shares of spikes, the highest first: of several spikes of a row, the highest counts."""
    exact = [spike for spike in reversed(spikes) if spike.get("exact", True)]
    return {(spike["step"], int(row)): list(shares) for spike in exact for row, shares in spike["tokens"].items()}


# The index and the choice


def index_of(source: Source, run: int = 0) -> pd.DataFrame:
    """Return a row per episode and step of a source, the most telling first; columns as in `explain.index.MEANINGS`."""
    if source.run is None:
        require(source.memory, NEEDED, "RolloutViewer")
        tables = [completed(source.turns(step)).assign(step=step) for step in source.steps]
        tables = [table[[name for name in READ if name in table.columns]] for table in tables]
    else:
        tables = source.arrow(READ)
    return indexed(pd.concat(list(map(reduced, tables)), ignore_index=True), source.order, run)


def plain(index: pd.DataFrame) -> dict[str, list[Any]]:
    """Return an index as a page's data, with visible texts, four decimals, and null for missing values."""
    found = {}
    for name in MEANINGS:
        values = index[name].astype(object).where(index[name].notna(), None).tolist()
        found[name] = [round(one, 4) if isinstance(one, float) else visible_data(one) for one in values]
    return found


def in_rounds(index: pd.DataFrame) -> Iterator[int]:
    """Yield places of the index: the most telling episode of each step, the second of each step, and so on.

    Behind each comes one to read beside it, of the nearest step: the same task in the other run, or a success beside a
    failure.
    """
    run, step, success = (index[name].astype(object).to_numpy() for name in ("run", "step", "success"))
    same_task = index.groupby("task").indices
    for place in np.argsort(index.groupby(["run", "step"]).cumcount(), kind="stable").tolist():
        yield place
        own = same_task[index["task"].iat[place]]
        solved = [success[place] is False and success[at] is True and run[at] == run[place] for at in own]
        for beside in (own[run[own] != run[place]], own[np.array(solved, bool)]):
            if len(beside):
                yield int(beside[np.abs(step[beside] - step[place]).argmin()])


def page_data(
    index: pd.DataFrame, make: Callable[[int], tuple[Data, Groups]], order: Iterable[int], limit: float,
    first: Sequence[int] = (),
) -> Data:  # fmt: skip
    """Return a page's data of at most `limit` bytes, the most telling episodes first.

    It holds `first` whatever their size (or else one episode), then the episodes in `order` that fit, until `MISSES` of
    them did not fit. `make(place)` returns the episode of an index row, and its comparison groups.
    """
    episodes: dict[int, Data] = {}
    groups: dict[str, dict[tuple, Data]] = {}
    used = misses = 0
    for place in chain(first, order):
        if place in episodes:
            continue
        episode, own = make(place)
        new = [members for name, members in own.items() if name not in groups]
        needed = len(json.dumps([episode, new], separators=(",", ":"))) + LINE
        if used + needed > limit and episodes and place not in first:
            misses += 1
            if misses == MISSES:
                break
            continue
        episodes[place], used = episode, used + needed
        for name, members in own.items():
            groups.setdefault(name, {}).update({(one["node"], one["agent"], one["candidate"]): one for one in members})
    places = sorted(episodes)
    candidates = [one for episode in episodes.values() for node in episode["nodes"] for one in node["candidates"]]
    return {
        "index": plain(index.iloc[places]), "told": MEANINGS, "rule": RULE, "total": len(index),
        "left_out": len(index) - len(places), "episodes": [episodes[place] for place in places],
        "groups": {name: list(members.values()) for name, members in groups.items()},
        "shades": [name for name in SHADES if any(name in one["shades"] for one in candidates)],
    }  # fmt: skip
