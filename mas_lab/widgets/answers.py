"""Answer the questions that the page of a RolloutViewer sends to the kernel.

A page asks for windows of the index, for episodes and for comparison groups. It also sends its marks. Models wrote the
content of the page, so a question is untrusted: every field is checked before it is used. This module leaves out how
questions arrive (`bridge`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.display.escape import escape_control_chars
from mas_lab.explain.index import TOLD
from mas_lab.runs.disk import RunError
from mas_lab.table import TableError
from mas_lab.widgets.filters import matching
from mas_lab.widgets.index import plain, ranks
from mas_lab.widgets.reading import Reading
from mas_lab.widgets.texts import Texts

MOST = 500
"""Maximum number of index rows, or of group members, in one answer."""
LONG = 2_000
"""Maximum number of characters of a filter. A name of an episode or a group may have 10 times as many."""
MARKS, NOTE = 10_000, 10_000
"""Maximum number of marks, and of characters in a note."""
MARKED = ["run", "step", "episode", "task", "node", "note"]


class Unanswerable(ValueError):
    """Error for an invalid question; its message is a sentence."""


class Answers:
    """Answer questions about the index of one or two runs; `.marks` holds the marks that the page sent last."""

    def __init__(self, index: pd.DataFrame, readings: Sequence[Reading]):
        self.index, self._readings = index, readings
        self.marks = pd.DataFrame(columns=MARKED)
        self._texts = Texts(index, [reading.source for reading in readings])
        self._ranks: dict[str, np.ndarray] = {}
        self._orders: dict[tuple, np.ndarray] = {}
        where = zip(index["run"], index["step"], index["episode"].map(escape_control_chars), strict=True)
        self._places = {key: place for place, key in enumerate(where)}

    def answer(self, question: Any) -> dict[str, Any]:
        """Return the answer, or `{"error": a sentence}`, together with the id of the question if that is valid."""
        told = question if isinstance(question, dict) else {}
        number = told.get("id")
        named = {"id": number} if type(number) in (int, str) and len(str(number)) < 100 else {}
        known: dict[Any, Callable] = {"hello": self._hello, "index": self._window, "episode": self._episode,
                                      "group": self._group, "marks": self._mark}  # fmt: skip
        try:
            asked = told.get("ask")
            if not isinstance(asked, str) or asked not in known:
                raise Unanswerable(f"the kernel answers {', '.join(known)}, not {asked!r:.60}")
            return {**named, **known[asked](told)}
        except (Unanswerable, RunError, TableError) as error:
            return {**named, "error": str(error)}

    def _hello(self, told: dict) -> dict[str, Any]:
        return {"hello": True, "total": len(self.index)}

    def _window(self, told: dict) -> dict[str, Any]:
        start, count = _whole(told, "from", 0, 10**9), _whole(told, "count", 1, MOST)
        sort, descending = told.get("sort", "telling"), told.get("descending", True)
        if not isinstance(sort, str) or sort not in TOLD:
            raise Unanswerable(f"the index is sorted by one of {', '.join(TOLD)}, not by {sort!r:.60}")
        if not isinstance(descending, bool):
            raise Unanswerable("descending is true or false")
        order = self._order(sort, descending, _text(told, "filter", LONG))
        rows = self.index.iloc[order[start : start + count]]
        return {"rows": plain(rows), "found": len(order), "total": len(self.index)}

    def _order(self, sort: str, descending: bool, line: str) -> np.ndarray:
        """Return the sorted index rows that a filter finds; the newest 16 results are cached."""
        key = (sort, descending, line)
        if key not in self._orders:
            if sort not in self._ranks:
                self._ranks[sort] = ranks(self.index, sort)
            found = np.flatnonzero(matching(self.index, line, self._texts.have, self._is_marked))
            values = self._ranks[sort][found]
            if len(self._orders) >= 16:
                self._orders.pop(next(iter(self._orders)))
            self._orders[key] = found[np.argsort(-values if descending else values, kind="stable")]
        return self._orders[key]

    def _is_marked(self) -> np.ndarray:
        marked = np.zeros(len(self.index), bool)
        marked[[self._places[key] for key in self.marks[MARKED[:3]].itertuples(index=False, name=None)]] = True
        return marked

    def _episode(self, told: dict) -> dict[str, Any]:
        run, step, name = self._named(told)
        episode, groups = self._readings[run].with_groups(step, name, MOST)
        return {"episode": episode, "groups": groups}

    def _named(self, told: dict) -> tuple[int, int, str]:
        """Return (run, step, name) of the episode that a question names."""
        place = self._places.get(self._where(told, "episode"))
        if place is None:
            raise Unanswerable(f"there is no episode {told['episode']!r:.200} at step {told['step']} of this run")
        return int(self.index["run"].iat[place]), int(self.index["step"].iat[place]), self.index["episode"].iat[place]

    def _where(self, told: dict, name: str) -> tuple[int, int, str]:
        run = _whole({"run": 0, **told}, "run", 0, len(self._readings) - 1)
        return run, _whole(told, "step", 0, 10**9), _text(told, name, 10 * LONG)

    def _group(self, told: dict) -> dict[str, Any]:
        run, step, group = self._where(told, "group")
        if step not in self._readings[run].source.steps:
            raise Unanswerable(f"there is no step {step} in this run")
        return {"members": self._readings[run].group(step, group, MOST)}

    def _mark(self, told: dict) -> dict[str, Any]:
        marks = told.get("marks")
        if not isinstance(marks, list) or len(marks) > MARKS:
            raise Unanswerable(f"marks is a list of at most {MARKS:,}")
        rows = []
        for one in marks:
            one = one if isinstance(one, dict) else {}
            run, step, name = self._named(one)
            node = "" if one.get("node") is None else _text(one, "node", LONG)
            task = self.index["task"].iat[self._places[self._where(one, "episode")]]
            rows.append((run, step, name, task, node, _text({"note": "", **one}, "note", NOTE)))
        self.marks = pd.DataFrame(rows, columns=MARKED)
        self._orders.clear()
        return {"marked": len(rows)}


def _whole(told: dict, name: str, low: int, high: int) -> int:
    value = told.get(name)
    if type(value) is not int or not low <= value <= high:
        raise Unanswerable(f"{name} is a whole number from {low} to {high:,}, not {value!r:.60}")
    return value


def _text(told: dict, name: str, longest: int) -> str:
    value = told.get(name)
    if not isinstance(value, str) or len(value) > longest:
        raise Unanswerable(f"{name} is a text of at most {longest:,} characters")
    return value
