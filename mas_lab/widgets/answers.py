"""Answer the questions that the page of a RolloutViewer sends to the kernel.

A page asks for windows of the index, for episodes and for comparison groups. It also sends its marks. Models wrote the
content of the page, so a question is untrusted: every field is checked before it is used. An invisible widget relays
the questions; the page also works without it. This module leaves out reading an episode (`episodes`).
"""

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import compute

from mas_lab.display.escape import escape_control_chars
from mas_lab.explain.index import TOLD
from mas_lab.runs.disk import RunError
from mas_lab.table import TableError
from mas_lab.widgets.document import STATIC
from mas_lab.widgets.episodes import Reading, plain, ranks
from mas_lab.widgets.live import with_fallback
from mas_lab.widgets.source import Source

MOST = 500
"""Maximum number of index rows, or of group members, in one answer."""
LONG, TERMS = 20_000, 100
"""Maximum number of characters of a name or a note, and of terms in a filter."""
MARKS = 10_000
MARKED = ["run", "step", "episode", "task", "node", "note"]
COUNTED = ("invalid", "truncated", "lone")
KINDS = ("failed", "succeeded", *COUNTED, "marked", "agent", "task", "step", "run", "text")
"""Kinds of the terms that a page makes of its filter line (`parse` in `static/rollouts_source.js`)."""
EMPTY = {"text/plain": "", "text/html": ""}


class Unanswerable(ValueError):
    """Error for an invalid question; its message is a sentence."""


class Answers:
    """Answer questions about the index of one or two runs; `.marks` holds the marks that the page sent last."""

    def __init__(self, index: pd.DataFrame, readings: Sequence[Reading]):
        self.index, self._readings = index, readings
        self.marks = pd.DataFrame(columns=MARKED)
        self._texts = Texts(index, [reading.source for reading in readings])
        self._found: tuple[Any, np.ndarray] = (None, np.array([], int))
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
        start, count = _whole(told, "from"), _whole(told, "count", 1, MOST)
        sort, descending, terms = told.get("sort", "telling"), told.get("descending", True) is True, checked_terms(told)
        if not isinstance(sort, str) or sort not in TOLD:
            raise Unanswerable(f"the index is sorted by one of {', '.join(TOLD)}, not by {sort!r:.60}")
        query = (sort, descending, terms, len(self.marks))
        if self._found[0] != query:
            found = np.flatnonzero(matching(self.index, terms, self._texts.have, self._is_marked))
            values = ranks(self.index, sort)[found]
            self._found = query, found[np.argsort(-values if descending else values, kind="stable")]
        order = self._found[1]
        return {"rows": plain(self.index.iloc[order[start : start + count]]), "found": len(order),
                "total": len(self.index)}  # fmt: skip

    def _is_marked(self) -> np.ndarray:
        marked = np.zeros(len(self.index), bool)
        marked[[self._places[key] for key in self.marks[MARKED[:3]].itertuples(index=False, name=None)]] = True
        return marked

    def _episode(self, told: dict) -> dict[str, Any]:
        row = self._row(told)
        episode, groups = self._readings[row["run"]].with_groups(int(row["step"]), row["episode"], MOST)
        return {"episode": episode, "groups": groups}

    def _row(self, told: dict) -> pd.Series:
        """Return the row of the index that a question names."""
        run, step = _whole({"run": 0, **told}, "run"), _whole(told, "step")
        place = self._places.get((run, step, _text(told, "episode")))
        if place is None:
            raise Unanswerable(f"there is no episode {told['episode']!r:.200} at step {step} of this run")
        return self.index.iloc[place]

    def _group(self, told: dict) -> dict[str, Any]:
        run, step = _whole({"run": 0, **told}, "run", 0, len(self._readings) - 1), _whole(told, "step")
        if step not in self._readings[run].source.steps:
            raise Unanswerable(f"there is no step {step} in this run")
        return {"members": self._readings[run].group(step, _text(told, "group"), MOST)}

    def _mark(self, told: dict) -> dict[str, Any]:
        marks = told.get("marks")
        if not isinstance(marks, list) or len(marks) > MARKS or not all(isinstance(one, dict) for one in marks):
            raise Unanswerable(f"marks is a list of at most {MARKS:,} marks")
        rows = []
        for one in marks:
            row, node = self._row(one), one.get("node")
            node = "" if node is None else _text(one, "node")
            rows.append(
                (*row[["run", "step"]], _text(one, "episode"), row["task"], node, _text({"note": ""} | one, "note"))
            )
        self.marks = pd.DataFrame(rows, columns=MARKED)
        self._found = (None, self._found[1])
        return {"marked": len(rows)}


def _whole(told: dict, name: str, low: int = 0, high: int = 10**9) -> int:
    value = told.get(name)
    if type(value) is not int or not low <= value <= high:
        raise Unanswerable(f"{name} is a whole number from {low} to {high:,}, not {value!r:.60}")
    return value


def _text(told: dict, name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str) or len(value) > LONG:
        raise Unanswerable(f"{name} is a text of at most {LONG:,} characters")
    return value


# The filter

Term = tuple[str, str, int, int, bool]
"""Kind, value, from, to, and whether it is negated."""


def checked_terms(told: dict) -> tuple[Term, ...]:
    """Return the checked terms of a question's filter."""
    given = told.get("filter", [])
    if not isinstance(given, list) or len(given) > TERMS or not all(isinstance(one, dict) for one in given):
        raise Unanswerable(f"filter is a list of at most {TERMS} terms")
    if unknown := [one.get("kind") for one in given if one.get("kind") not in KINDS]:
        raise Unanswerable(f"a term of the filter is one of {', '.join(KINDS)}, not {unknown[0]!r:.60}")
    usual = {"value": "", "from": 0, "to": 0}
    checked = [(usual | one, one.get("negated") is True) for one in given]
    return tuple((one["kind"], _text(one, "value"), _whole(one, "from"), _whole(one, "to"), no) for one, no in checked)


def matching(
    index: pd.DataFrame,
    terms: Iterable[Term],
    have: Callable[[np.ndarray, str], np.ndarray],
    marked: Callable[[], np.ndarray],
) -> np.ndarray:
    """Return a mask of the index rows that meet all terms.

    `have(places, word)` returns which of these rows have a word in their texts. It is called last, and only for the
    rows that are left. `marked()` returns which rows have a mark.
    """
    found = np.ones(len(index), bool)
    for kind, value, low, high, negated in sorted(terms, key=lambda term: term[0] == "text"):
        if kind == "text":
            places = np.flatnonzero(found)
            found[places] = have(places, value) ^ negated
            continue
        if kind in ("failed", "succeeded"):
            has = (index["success"] == (kind == "succeeded")).fillna(False)
        elif kind == "marked":
            has = marked()
        elif kind in COUNTED:
            has = index[kind] > 0
        elif kind in ("step", "run"):
            has = index[kind].between(low, high)
        elif kind == "agent":
            has = [value in escape_control_chars(agents).lower().split(", ") for agents in index["agents"]]
        else:
            has = [value in escape_control_chars(task).lower() for task in index["task"]]
        found &= np.asarray(has, bool) ^ negated
    return found


class Texts:
    """Search rows of an index: `.have(places, word)` says which have a word in task, name, prompts or completions.

    A run may hold more text than memory, so that texts are read a hundred steps at a time and kept only up to a limit.
    They stay in Arrow, because making a Python string for each row takes most of the time.
    """

    KEPT, AT_ONCE = 250_000_000, 100

    def __init__(self, index: pd.DataFrame, sources: Sequence[Source]):
        self._index, self._sources, self._kept, self._size = index, sources, {}, 0

    def have(self, places: np.ndarray, word: str) -> np.ndarray:
        """Return which of these rows have a word, which is in lower case."""
        word = word.encode(errors="surrogatepass").decode(errors="replace")  # a browser may send half of a pair
        rows = self._index.iloc[places]
        found = np.zeros(len(rows), bool)
        for name in ("task", "episode"):
            found |= np.array([word in escape_control_chars(text).lower() for text in rows[name]], bool)
        held = set()
        for run, own in rows.groupby("run"):
            steps = sorted(own["step"].unique())
            for start in range(0, len(steps), self.AT_ONCE):
                for table in self._texts(run, tuple(steps[start : start + self.AT_ONCE])):
                    masks = [
                        compute.match_substring(table[name], word) for name in ("prompt", "completion") if name in table
                    ]
                    has = [mask.to_numpy(zero_copy_only=False).astype(bool) for mask in masks]
                    at = np.flatnonzero(np.logical_or.reduce(has)) if has else []
                    held |= {
                        (run, table["step"][place], escape_control_chars(table["episode"][place].as_py()))
                        for place in at
                    }
        keys = zip(rows["run"], rows["step"], rows["episode"].map(escape_control_chars), strict=True)
        return found | np.array([key in held for key in keys], bool)

    def _texts(self, run: int, steps: tuple[int, ...]) -> list[dict[str, Any]]:
        """Return the texts of some steps in lower case, a table for each part."""
        if (run, steps) in self._kept:
            return self._kept[run, steps]
        tables = self._sources[run].arrow(["step", "episode", "probe", "prompt", "completion"], steps)
        found = [{
            "step": table["step"].to_numpy(), "episode": table["episode"],
            **{name: compute.utf8_lower(table[name].cast(pyarrow.large_string()).combine_chunks())
               for name in ("prompt", "completion") if name in table.column_names},
        } for table in tables]  # fmt: skip
        size = sum(table[name].nbytes for table in tables for name in table.column_names)
        if self._size + size <= self.KEPT:
            self._kept[run, steps] = found
            self._size += size
        return found


# The widget


def new_name() -> str:
    """Return a new, unique name for a frame."""
    return f"mas-lab-{uuid.uuid4().hex[:12]}"


def connect(frame: str, answer: Callable[[Any], dict[str, Any]], is_first: bool = True) -> Any:
    """Return a widget that answers the questions of the frame named `frame` by calling `answer`.

    The widget is displayed, because this makes the notebook start its widgets. With `is_first=False` it is not
    displayed, because another live widget already is. The notebook stores nothing of it.
    """
    from IPython.display import display

    widget = _kind()(_dom_classes=[frame])  # every widget has this trait, so the name needs no new one
    shown = None
    if is_first:
        shown = display(with_fallback(widget, "") | {"text/plain": ""}, raw=True, display_id=True)

    def heard(_: Any, question: Any, buffers: Any) -> None:
        nonlocal shown
        if shown is not None:  # it runs in the browser now and no longer needs its output
            shown.update(EMPTY, raw=True)
            shown = None
        widget.send(answer(question))

    widget.on_msg(heard)
    return widget


@cache
def _kind() -> type:
    import anywidget

    class Bridge(anywidget.AnyWidget):
        _esm = (STATIC / "bridge.js").read_text(encoding="utf-8")

    return Bridge
