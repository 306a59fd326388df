"""Which episodes of an index a page holds, where it has not room for all, and what it says of them.

Leaves out: what tells much (`index`), and how an episode is read (`reading`).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.explain.index import RULE, TOLD
from mas_lab.widgets.episodes import SHADES
from mas_lab.widgets.index import plain

BEST = 10
"""The most telling of all, which a page takes before any other."""
COMPANIONS = 1 / 4
"""The part of a page that is kept for what its episodes are read beside."""
MISSES = 20
"""Episodes without room, after which no other is tried."""
LINE = 300
"""Bytes of an episode's line in the index."""
Data = dict[str, Any]
Groups = dict[str, list[Data]]


class Choice:
    """The rows of an index by their places, 0 being the most telling."""

    def __init__(self, index: pd.DataFrame):
        self._index = index
        self._run, self._step = index["run"].to_numpy(), index["step"].to_numpy()
        self._success = index["success"].astype(object).to_numpy()
        self._of_task = {key: np.sort(places) for key, places in index.groupby(["run", "task"]).indices.items()}

    def in_rounds(self) -> Iterator[int]:
        """The most telling of all, then each step's most telling, each step's second, ...: steps in an order of which
        every beginning is spread evenly over training."""
        by = self._index.groupby(["run", "step"])
        spread = np.array(spread_out(by.ngroups))[by.ngroup()]
        yield from np.lexsort([spread, by.cumcount(), np.arange(len(self._index)) >= BEST]).tolist()

    def companions(self, place: int) -> list[int]:
        """What an episode is read beside: the same task in the other run, and of a failure, where it was solved. Of
        each the nearest step's, and there the most telling."""
        run, task = self._run[place], self._index["task"].iat[place]
        found = []
        for other in {0, 1} - {run}:
            found += self._nearest(self._of_task.get((other, task), np.array([], int)), place)
        if self._success[place] is False:
            own = self._of_task[run, task]
            solved = np.array([one is True for one in self._success[own]]) & (self._step[own] != self._step[place])
            found += self._nearest(own[solved], place)
        return found

    def _nearest(self, places: np.ndarray, place: int) -> list[int]:
        away = np.abs(self._step[places] - self._step[place])
        return [int(places[away.argmin()])] if len(places) else []


def spread_out(n: int) -> list[int]:
    """When each of n places is visited, if the first comes first, then the middle, then the quarters, the eighths."""
    bits = max(1, (n - 1).bit_length())
    return [int(f"{place:0{bits}b}"[::-1], 2) for place in range(n)]


class Room:
    """What a page holds so far: episodes by their places, comparison groups by their names, and what they take."""

    def __init__(self, make: Callable[[int], tuple[Data, Groups]]):
        self.episodes: dict[int, Data] = {}
        self.groups: Groups = {}
        self.used = 0
        self._make = lru_cache(2 * MISSES)(make)

    def take(self, place: int, limit: float) -> bool:
        """Does an episode, with its groups, still fit? Then it is in."""
        episode, groups = self._make(place)
        new = {name: _others(members, self.groups.get(name, ())) for name, members in groups.items()}
        size = len(json.dumps([episode, new], separators=(",", ":"))) + LINE
        if self.used + size > limit:
            return False
        self.episodes[place], self.used = episode, self.used + size
        for name, members in new.items():
            self.groups.setdefault(name, []).extend(members)
        return True

    def data(self, index: pd.DataFrame) -> Data:
        """What a page says of its episodes, the most telling first, and of those of the index that it leaves out."""
        places = sorted(self.episodes)
        episodes = [self.episodes[place] for place in places]
        known = {
            name for one in episodes for node in one["nodes"] for said in node["candidates"] for name in said["shades"]
        }
        return {
            "index": plain(index.iloc[places]), "told": TOLD, "rule": RULE, "total": len(index),
            "left_out": len(index) - len(places), "episodes": episodes, "groups": self.groups,
            "shades": [name for name in SHADES if name in known],
        }  # fmt: skip

    def take_all(self, places: Iterable[int], limit: float) -> None:
        """Those that fit, until too many did not."""
        misses = 0
        for place in places:
            if place not in self.episodes and not self.take(place, limit):
                misses += 1
                if misses == MISSES:
                    return


def _others(members: Sequence[Data], known: Sequence[Data]) -> list[Data]:
    seen = {(one["node"], one["agent"], one["candidate"]) for one in known}
    return [one for one in members if (one["node"], one["agent"], one["candidate"]) not in seen]


def filled(
    index: pd.DataFrame, make: Callable[[int], tuple[Data, Groups]], limit: float, first: Sequence[int] = ()
) -> Room:
    """A page of at most `limit` bytes: `first`, whatever they take, then in rounds; a quarter is kept for companions.
    `make(place)`: an episode and its groups."""
    room, choice = Room(make), Choice(index)
    room.take_all(first, float("inf"))
    room.take_all(choice.in_rounds(), (1 - COMPANIONS) * limit)
    room.take_all([one for place in sorted(room.episodes) for one in choice.companions(place)], limit)
    room.take_all(choice.in_rounds(), limit)
    if not room.episodes:
        room.take(0, float("inf"))
    return room
