"""Answer the questions that the page of a RolloutViewer sends to the kernel.

A page asks for windows of the index, for episodes and for comparison groups. It also sends its marks. Models wrote the
content of the page, so a question is untrusted: every field is checked before it is used. An invisible widget relays
the questions; the page also works without it. This module leaves out reading an episode (`episodes`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import compute
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mas_lab.display.escape import escape_control_chars
from mas_lab.explain.index import MEANINGS
from mas_lab.runs.disk import RunError
from mas_lab.table import TableError
from mas_lab.widgets.document import STATIC
from mas_lab.widgets.episodes import Reading, plain, ranks
from mas_lab.widgets.live import with_fallback

MOST = 500
"""Maximum number of index rows, or of group members, in one answer."""
AT_ONCE, CACHED = 100, 4
"""Steps whose texts are read at once, and how many such parts are kept for the next search."""
MARKED = ["run", "step", "episode", "task", "node", "note"]
Count = Annotated[int, Field(ge=0, le=10**9)]
Text = Annotated[str, Field(max_length=20_000)]
FLAGS = ("failed", "succeeded", "invalid", "truncated", "lone", "reinforced", "marked")


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True)


class Term(Strict):
    """A term that a page makes of its filter line (`parse` in `static/rollouts_source.js`)."""

    kind: Literal[*FLAGS, "agent", "task", "step", "run", "text"]
    value: Text = ""
    low: Count = Field(0, alias="from")
    high: Count = Field(0, alias="to")
    negated: bool = False


class Mark(Strict):
    run: Count = 0
    step: Count
    episode: Text
    node: Text | None = None
    note: Text = ""


class Question(Strict):
    ask: Literal["hello", "index", "episode", "group", "marks"]
    low: Count = Field(0, alias="from")
    count: Annotated[int, Field(ge=1, le=MOST)] = MOST
    sort: Literal[*MEANINGS] = "telling"
    descending: bool = True
    filter: Annotated[list[Term], Field(max_length=100)] = []
    run: Count = 0
    step: Count = 0
    episode: Text = ""
    group: Text = ""
    marks: Annotated[list[Mark], Field(max_length=10_000)] = []


class Answers:
    """Answer questions about the index of one or two runs; `.marks` holds the marks that the page sent last."""

    def __init__(self, index: pd.DataFrame, readings: Sequence[Reading]):
        self.index, self._readings = index, readings
        self.marks = pd.DataFrame(columns=MARKED)
        self._texts, self._order = lru_cache(CACHED)(self._read_texts), lru_cache(1)(self._sorted)
        where = zip(index["run"], index["step"], index["episode"].map(escape_control_chars), strict=True)
        self._places = {key: place for place, key in enumerate(where)}

    def answer(self, question: Any) -> dict[str, Any]:
        """Return the answer, or `{"error": a sentence}`, together with the id of the question if that is valid."""
        number = question.get("id") if isinstance(question, dict) else None
        named = {"id": number} if type(number) is int else {}
        try:
            query = Question.model_validate(question)
            return {**named, **getattr(self, f"_{query.ask}")(query)}
        except ValidationError as error:
            wrong = error.errors(include_input=False)[0]
            return {**named, "error": f"question: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"[:300]}
        except (RunError, TableError) as error:
            return {**named, "error": str(error)}

    def _hello(self, query: Question) -> dict[str, Any]:
        return {"hello": True, "total": len(self.index)}

    def _index(self, query: Question) -> dict[str, Any]:
        order = self._order(query.sort, query.descending, tuple(query.filter))
        rows = self.index.iloc[order[query.low : query.low + query.count]]
        return {"rows": plain(rows), "found": len(order), "total": len(self.index)}

    def _sorted(self, sort: str, descending: bool, terms: tuple[Term, ...]) -> np.ndarray:
        found = np.flatnonzero(self.matching(terms))
        values = ranks(self.index, sort)[found]
        return found[np.argsort(-values if descending else values, kind="stable")]

    def _episode(self, query: Question) -> dict[str, Any]:
        row = self._row(query)
        episode, groups = self._readings[row["run"]].with_groups(int(row["step"]), row["episode"], MOST)
        return {"episode": episode, "groups": groups}

    def _row(self, query: Question | Mark) -> pd.Series:
        """Return the row of the index that a question names."""
        place = self._places.get((query.run, query.step, query.episode))
        if place is None:
            raise TableError(f"there is no episode {query.episode!r:.200} at step {query.step} of this run")
        return self.index.iloc[place]

    def _group(self, query: Question) -> dict[str, Any]:
        if query.run >= len(self._readings) or query.step not in self._readings[query.run].source.steps:
            raise TableError(f"there is no step {query.step} in this run")
        return {"members": self._readings[query.run].group(query.step, query.group, MOST)}

    def _marks(self, query: Question) -> dict[str, Any]:
        rows = [(one.run, one.step, one.episode, self._row(one)["task"], one.node or "", one.note)
                for one in query.marks]  # fmt: skip
        self.marks = pd.DataFrame(rows, columns=MARKED)
        self._order.cache_clear()
        return {"marked": len(rows)}

    # The filter

    def matching(self, terms: Iterable[Term]) -> np.ndarray:
        """Return a mask of the index rows that meet all terms; texts are searched last, in the rows that are left."""
        index, found = self.index, np.ones(len(self.index), bool)
        for term in sorted(terms, key=lambda term: term.kind == "text"):
            kind, value = term.kind, term.value
            if kind == "text":
                places = np.flatnonzero(found)
                found[places] = self.have(places, value) ^ term.negated
                continue
            if kind in ("failed", "succeeded"):
                has = (index["success"] == (kind == "succeeded")).fillna(False)
            elif kind == "marked":
                has = index.index.isin([self._places[key] for key in self.marks[MARKED[:3]].itertuples(False, None)])
            elif kind in FLAGS:
                has = index[kind] > 0
            elif kind in ("step", "run"):
                has = index[kind].between(term.low, term.high)
            elif kind == "agent":
                has = [value in escape_control_chars(agents).lower().split(", ") for agents in index["agents"]]
            else:
                has = [value in escape_control_chars(task).lower() for task in index["task"]]
            found &= np.asarray(has, bool) ^ term.negated
        return found

    def have(self, places: np.ndarray, word: str) -> np.ndarray:
        """Return which of these rows of the index have a word (in lower case) in task, name, prompts or completions."""
        rows, found = self.index.iloc[places], set()
        for run, own in rows.groupby("run"):
            steps = sorted(own["step"].unique())
            for start in range(0, len(steps), AT_ONCE):
                for step, episode, texts in self._texts(run, tuple(steps[start : start + AT_ONCE])):
                    for text in texts:
                        at = np.flatnonzero(compute.match_substring(text, word).fill_null(False))
                        found |= {(run, step[place], escape_control_chars(episode[place].as_py())) for place in at}
        tasks, names = (rows[name].map(escape_control_chars) for name in ("task", "episode"))
        keys = zip(rows["run"], rows["step"], names, strict=True)
        in_names = (tasks + "\n" + names).str.lower().str.contains(word, regex=False)
        return in_names.to_numpy(bool) | np.array([key in found for key in keys], bool)

    def _read_texts(self, run: int, steps: tuple[int, ...]) -> list[tuple[np.ndarray, pyarrow.Array, list]]:
        """Return steps, episodes and the texts of some steps in lower case; they stay in Arrow, which is faster."""
        tables = self._readings[run].source.arrow(["step", "episode", "probe", "prompt", "completion"], steps)
        return [
            (table["step"].to_numpy(), table["episode"],
             [compute.utf8_lower(table[name].cast(pyarrow.large_string()).combine_chunks())
              for name in ("prompt", "completion") if name in table.column_names])
            for table in tables
        ]  # fmt: skip


# The widget


def connect(frame: str, answer: Callable[[Any], dict[str, Any]]) -> Any:
    """Return a widget that answers the questions of the frame named `frame` by calling `answer`.

    The widget is displayed, because this makes the notebook start its widgets. The notebook stores nothing of it.
    """
    from IPython.display import display

    widget = _kind()(_dom_classes=[frame])  # every widget has this trait, so the name needs no new one
    output = display(with_fallback(widget, "") | {"text/plain": ""}, raw=True, display_id=True)

    def heard(_: Any, question: Any, buffers: Any) -> None:
        nonlocal output
        if output is not None:  # it runs in the browser now and no longer needs its output
            output.update({"text/plain": "", "text/html": ""}, raw=True)
            output = None
        widget.send(answer(question))

    widget.on_msg(heard)
    return widget


@cache
def _kind() -> type:
    import anywidget

    class Bridge(anywidget.AnyWidget):
        _esm = (STATIC / "bridge.js").read_text(encoding="utf-8")

    return Bridge
