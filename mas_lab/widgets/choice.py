"""Choose the episodes that a page holds, if it has no room for all episodes of an index.

It also makes the data that the page has on them. This module leaves out how episodes are ranked (`index`) and how an
episode is read (`reading`).
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
"""Number of the most telling episodes, which a page takes before any other."""
COMPANIONS = 1 / 4
"""Share of a page that is kept for episodes to read beside the others."""
MISSES = 20
"""Number of episodes that did not fit, after which no other is tried."""
LINE = 300
"""Bytes of an episode's line in the index."""
Data = dict[str, Any]
Groups = dict[str, list[Data]]


class Choice:
    """Rows of an index by their places; place 0 is the most telling episode."""

    def __init__(self, index: pd.DataFrame):
        self._index = index
        self._run, self._step = index["run"].to_numpy(), index["step"].to_numpy()
        self._success = index["success"].astype(object).to_numpy()
        self._of_task = {key: np.sort(places) for key, places in index.groupby(["run", "task"]).indices.items()}

    def in_rounds(self) -> Iterator[int]:
        """Yield the `BEST` most telling places, then the most telling of each step, the second of each step, and so on.

        In each round, every beginning of the order of steps is spread evenly over training.
        """
        by = self._index.groupby(["run", "step"])
        spread = np.array(spread_out(by.ngroups))[by.ngroup()]
        yield from np.lexsort([spread, by.cumcount(), np.arange(len(self._index)) >= BEST]).tolist()

    def companions(self, place: int) -> list[int]:
        """Return the places of the episodes that are read beside an episode.

        These are the same task in the other run and, for a failure, a step at which the task was solved. The nearest
        step is taken, and its most telling episode.
        """
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
    """Return when each of `n` places is visited: first the first, then the middle, the quarters, the eighths."""
    bits = max(1, (n - 1).bit_length())
    return [int(f"{place:0{bits}b}"[::-1], 2) for place in range(n)]


class Room:
    """Hold the content of a page: episodes by their places, comparison groups by their names, and the bytes used."""

    def __init__(self, make: Callable[[int], tuple[Data, Groups]]):
        self.episodes: dict[int, Data] = {}
        self.groups: Groups = {}
        self.used = 0
        self._make = lru_cache(2 * MISSES)(make)

    def take(self, place: int, limit: float) -> bool:
        """Add an episode with its groups if it fits, and return whether it did."""
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
        """Return the data on the page's episodes, the most telling first, and the number of those left out."""
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
        """Add the episodes that fit, until `MISSES` of them did not fit."""
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
    """Return a page of at most `limit` bytes.

    It takes `first` whatever their size, then episodes in rounds. A quarter is kept for companions. If nothing fits, it
    takes the most telling episode alone. `make(place)` returns an episode and its groups.
    """
    room, choice = Room(make), Choice(index)
    room.take_all(first, float("inf"))
    room.take_all(choice.in_rounds(), (1 - COMPANIONS) * limit)
    room.take_all([one for place in sorted(room.episodes) for one in choice.companions(place)], limit)
    room.take_all(choice.in_rounds(), limit)
    if not room.episodes:
        room.take(0, float("inf"))
    return room
