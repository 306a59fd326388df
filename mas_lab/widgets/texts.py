"""Hold the texts that a search looks through: each episode's task, name, prompts and completions, in lower case.

Texts are read a hundred steps at a time at the first search. They are kept up to a limit, because a run may hold more
text than memory. Each distinct text of these steps is kept and searched once, for all rows that hold it. Texts stay in
Arrow, because making a Python string for each row takes most of the time. A word is searched within each text, not
across texts. This module leaves out the search line (`filters`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
from pyarrow import compute

from mas_lab.runs.disk import RunError, read_arrow
from mas_lab.table import trained
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import escape_control_chars

KEPT = 250_000_000
"""Bytes that are kept; a search beyond them reads its steps again."""
READ, TEXTS = ["step", "episode", "probe", "prompt", "completion"], {"episode", "prompt", "completion"}
AT_ONCE = 100
"""Steps that are read together."""
PLAIN, ODD = b"\n\t" + bytes(range(0x20, 0x7F)), r"[^\n\t -~]"
"""ASCII that `visible` does not change, and a pattern for everything else."""


@dataclass(frozen=True)
class Column:
    """Distinct `texts`, visible and in lower case; `which` text each row holds; and the row's place in the index."""

    texts: pyarrow.Array
    which: np.ndarray
    places: np.ndarray

    def places_of(self, word: bytes) -> np.ndarray:
        """Return the places in the index that have a word (UTF-8), some of them more than once."""
        found = compute.fill_null(compute.match_substring(self.texts, word), False)
        return self.places[found.to_numpy(zero_copy_only=False)[self.which]]

    @property
    def size(self) -> int:
        return self.texts.nbytes + self.which.nbytes + self.places.nbytes


class Texts:
    """Search rows of an index: `.have(places, word)` says which have a word in task, name, prompts or completions."""

    def __init__(self, index: pd.DataFrame, sources: Sequence[Source]):
        self._sources, self._size = sources, 0
        self._kept: dict[tuple[int, frozenset[int]], list[Column]] = {}  # key: run, steps
        self._runs, self._steps = index["run"].to_numpy(), index["step"].to_numpy()
        names = zip(self._runs.tolist(), self._steps.tolist(), index["episode"], strict=True)
        self._places = {key: place for place, key in enumerate(names)}
        self._named = [_column(index[name], np.arange(len(index))) for name in ("task", "episode")]

    def have(self, places: np.ndarray, word: str) -> np.ndarray:
        # As bytes, because a browser may send half of a surrogate pair.
        known, found = word.encode(errors="surrogatepass"), np.zeros(len(self._steps), bool)
        for column in [*self._named, *self._columns(places)]:
            found[column.places_of(known)] = True
        return found[places]

    def _columns(self, places: np.ndarray) -> Iterator[Column]:
        """Yield the prompts and completions of the steps of these places, and maybe of other steps."""
        for run, source in enumerate(self._sources):
            unread = set(self._steps[places[self._runs[places] == run]].tolist())
            for (of, steps), columns in self._kept.items():
                if of == run and not unread.isdisjoint(steps):
                    unread -= steps
                    yield from columns
            order = sorted(unread)
            for start in range(0, len(order), AT_ONCE):
                steps = order[start : start + AT_ONCE]
                columns = list(self._read(source, run, steps))
                yield from columns
                self._keep((run, frozenset(steps)), columns)

    def _keep(self, key: tuple[int, frozenset[int]], columns: list[Column]) -> None:
        size = sum(column.size for column in columns)
        if self._size + size <= KEPT:
            self._kept[key] = columns
            self._size += size

    def _read(self, source: Source, run: int, steps: list[int]) -> Iterator[Column]:
        """Yield the prompts and the completions of those steps."""
        for table in _tables(source, steps):
            places = self._places_in(run, table)
            for name in ("prompt", "completion"):
                if name in table:
                    yield _column(table[name], places)

    def _places_in(self, run: int, table: Any) -> np.ndarray:
        """Return the place in the index of each row's episode, or -1 if the index lacks the episode."""
        names, which = _distinct(table["episode"])
        names = names.to_pylist() if isinstance(names, pyarrow.Array) else names
        rows, episodes = pd.factorize(np.asarray(table["step"]) * len(names) + which)
        steps, called = np.divmod(episodes, max(len(names), 1))
        keys = zip(repeat(run), steps.tolist(), map(names.__getitem__, called.tolist()), strict=False)
        return np.fromiter(map(self._places.get, keys, repeat(-1)), int, len(episodes))[rows]


def _tables(source: Source, steps: list[int]) -> Iterator[Any]:
    """Yield the columns `READ` of the rows that were trained on: pandas from memory, else Arrow."""
    if source.run is None:
        turns = pd.concat([source.turns(step, READ).assign(step=step) for step in steps])
        yield turns[trained(turns)]
        return
    for table in read_arrow([source.run.part(step) for step in steps], READ):
        if "probe" in table.column_names:
            table = table.filter(compute.invert(compute.fill_null(table["probe"].cast("bool"), False)))
        held = dict(zip(table.column_names, table.columns, strict=True))
        yield held | {name: _as_text(held[name], name, source.title) for name in TEXTS & set(held)}


def _as_text(column: pyarrow.ChunkedArray, name: str, title: str) -> pyarrow.ChunkedArray:
    try:
        return column.cast(pyarrow.large_string())
    except pyarrow.ArrowException:
        raise RunError(
            f"{title}: column '{name}' holds {column.type}, not text; it was not written by train()"
        ) from None


def _column(values: Any, places: np.ndarray) -> Column:
    texts, which = _distinct(values)
    own = places >= 0
    return Column(_lowered(texts), which[own], places[own])


def _distinct(values: Any) -> tuple[list[str] | pyarrow.Array, np.ndarray]:
    """Return (distinct texts, which of them each row holds); a value that is not text becomes empty."""
    if isinstance(values, pd.Series):  # Python strings may hold characters that Arrow cannot
        which, texts = pd.factorize(values, use_na_sentinel=False)
        return [one if isinstance(one, str) else "" for one in texts], which
    held = values.combine_chunks().dictionary_encode("encode")
    return held.dictionary, held.indices.to_numpy()


def _lowered(texts: list[str] | pyarrow.Array) -> pyarrow.Array:
    """Return texts visible and in lower case, as the page has them; Python handles only those beyond ASCII."""
    if isinstance(texts, list):
        return pyarrow.array([escape_control_chars(text).lower() for text in texts], pyarrow.large_string())
    lowered, letters = compute.ascii_lower(texts), texts.buffers()[2]
    if letters is None or not letters.to_pybytes().translate(None, PLAIN):  # much quicker than text by text
        return lowered
    odd = compute.fill_null(compute.match_substring_regex(texts, ODD), False)
    shown = [escape_control_chars(text).lower() for text in texts.filter(odd).to_pylist()]
    return compute.replace_with_mask(lowered, odd, pyarrow.array(shown, pyarrow.large_string()))
