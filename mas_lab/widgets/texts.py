"""What one may search in a run: per episode its task, its name, all that was heard and said, in lower case.

Read a step at a time when somebody first searches, and kept up to a bound: a run may hold more text than memory. Leaves
out: what is searched for (`filters`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from mas_lab.runs.disk import read_arrow
from mas_lab.table import trained
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import visible

KEPT = 250_000_000
"""Characters that are kept; a search beyond them reads its steps again."""
READ = ["step", "episode", "probe", "prompt", "completion"]
AT_ONCE = 100
"""Steps."""


class Texts:
    """`.have(places, word)`: which of these rows of an index have a word, in lower case, in what was heard or said."""

    def __init__(self, index: pd.DataFrame, sources: Sequence[Source]):
        self._sources, self._kept, self._size = sources, {}, 0
        self._runs, self._steps = index["run"].to_numpy(), index["step"].to_numpy()
        names = zip(self._runs.tolist(), self._steps.tolist(), index["episode"], strict=True)
        self._places = {key: place for place, key in enumerate(names)}
        self._tasks = index["task"].tolist()

    def have(self, places: np.ndarray, word: str) -> np.ndarray:
        found = {place: word in self._kept[place] for place in places.tolist() if place in self._kept}
        missing = np.array([place for place in places.tolist() if place not in found], int)
        for run, source in enumerate(self._sources):
            steps = np.unique(self._steps[missing[self._runs[missing] == run]]).tolist()
            for start in range(0, len(steps), AT_ONCE):
                texts = dict(self._read(source, run, steps[start : start + AT_ONCE]))
                found |= {place: word in text for place, text in texts.items()}
                self._keep(texts)
        return np.fromiter((found[place] for place in places.tolist()), bool, len(places))

    def _keep(self, texts: dict[int, str]) -> None:
        size = sum(map(len, texts.values()))
        if self._size + size <= KEPT:
            self._kept |= texts
            self._size += size

    def _read(self, source: Source, run: int, steps: list[int]) -> Iterator[tuple[int, str]]:
        """(place, text) of every episode of those steps."""
        said: dict[tuple[int, str], list[str]] = {}
        for step, episode, heard, answer in _lines(source, steps):
            parts = said.setdefault((step, episode), [""])
            if parts[-2:-1] != [heard]:  # candidates of one node heard the same
                parts.append(heard)
            parts.append(answer)
        for (step, episode), parts in said.items():
            place = self._places.get((run, step, episode))
            if place is not None:
                yield place, visible("\n".join([self._tasks[place], episode, *parts])).lower()


def _lines(source: Source, steps: list[int]) -> Iterator[tuple[int, str, str, str]]:
    """(step, episode, heard, said) of every row."""
    if source.run is None:
        tables = [source.turns(step, READ).assign(step=step) for step in steps]
    else:
        tables = [table.to_pandas() for table in read_arrow([source.run.part(step) for step in steps], READ)]
    for table in tables:
        table = table[trained(table)]
        heard = table["prompt"] if "prompt" in table.columns else [""] * len(table)
        yield from zip(table["step"].tolist(), table["episode"], heard, table["completion"], strict=True)
