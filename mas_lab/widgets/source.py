"""Read the data of an instrument: tables in memory, a report, a live training, a run or its path.

All of them have one interface. A long run is read one step at a time. This module leaves out drawing.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.runs.disk import read_arrow, read_tables
from mas_lab.runs.run import Run, load_run
from mas_lab.table import TableError, column
from mas_lab.train import Report
from mas_lab.widgets.text import escape_control_chars

if TYPE_CHECKING:
    import pyarrow

ALWAYS = ("node", "parent", "depth", "action", "kept", "probe")
"""Columns that a page needs of every row; `completed` adds those that a table lacks."""


class Source:
    """The data of an instrument: `steps`, `turns(step)`, `stats`, `agents`, `title` and token texts."""

    def __init__(self, x: Any, agents: Sequence[str] | None = None):
        self._live = x if hasattr(x, "recorded") else None
        x = x.recorded if self._live else x
        self.run = x if isinstance(x, Run) else load_run(x) if isinstance(x, str | Path) else None
        self._turns, self._stats = (None, None) if self.run else _tables(x)
        self._texts: dict[str, Callable[[int], str]] = {}
        self._agents = tuple(agents) if agents else None

    @property
    def title(self) -> str:
        if self.run is None:
            return "turns in memory" if self._turns is not None else "statistics in memory"
        return f"run {Path(str(self.run.folder)).name}, {self.run.recipe_name}"

    @property
    def steps(self) -> list[int]:
        """Return the training steps, from 0; a table without the column `step` is one step."""
        if self.run:
            return list(range(self.run.steps))
        return sorted(map(int, self._turns["step"].unique())) if "step" in self._require_turns() else [0]

    def turns(self, step: int, columns: list[str] | None = None) -> pd.DataFrame:
        """Return the rows of one step, numbered from 0 as `update` saw them."""
        if self.run:
            return self.run.step_turns(step, columns)
        turns = self._require_turns()
        own = turns[turns["step"] == step] if "step" in turns.columns else turns
        return (own if columns is None else own[[name for name in columns if name in own]]).reset_index(drop=True)

    @property
    def step_of_row(self) -> pd.Series:
        """Return the step of each row of a table in memory, in its order."""
        turns = self._require_turns()
        return turns["step"] if "step" in turns.columns else pd.Series(0, index=turns.index)

    @property
    def is_live(self) -> bool:
        """Return whether this is a training, which may still be running."""
        return self._live is not None

    @property
    def trains(self) -> tuple[Any, int]:
        """Return the env and the seed of a live training, and (None, 0) for other sources."""
        return getattr(self._live, "env", None), getattr(self._live, "seed", 0)

    def some_turns(self, steps: Sequence[int], columns: list[str]) -> pd.DataFrame:
        """Return the given `columns`, "step" among them, of several steps' turns; faster than one step at a time."""
        if self.run:
            return read_tables([self.run.part(step) for step in steps], columns)
        return pd.concat([self.turns(step, columns).assign(step=step) for step in steps])

    @property
    def order(self) -> tuple[str, ...]:
        """Return the agents in acting order, if the caller or a run's description gives it; else an empty tuple."""
        if self._agents is None and self.run is not None:
            team = self.run.config.get("team")
            named = team.get("agents") if isinstance(team, dict) else None
            return tuple(named) if isinstance(named, dict) else ()
        return self._agents or ()

    def arrow(self, columns: list[str]) -> "list[pyarrow.Table]":
        """Return the given `columns` of all turns of a run, as one table or as several with different schemas."""
        parts = self.run.parts("turns")
        if not parts:
            raise TableError(f"{self.title} holds no turns yet; let train() make a step first")
        return read_arrow(parts, columns)

    def all_turns(self) -> pd.DataFrame:
        """Return every row of a table in memory, with a step and the columns `ALWAYS`."""
        turns = self._require_turns()
        if "step" not in turns.columns:
            return completed(turns.assign(step=0))
        if set(ALWAYS) <= set(turns.columns):
            return turns
        return pd.concat([completed(own) for _, own in turns.groupby("step", sort=True)])

    def stats(self, columns: list[str]) -> pd.DataFrame:
        """Return the given `columns` of the statistics; a table in memory may lack some."""
        if self.run:
            return self.run.read("stats", columns)
        if self._stats is None:
            raise TableError("SpikeInspector: wants what `update` or `train` reported (stats), a run or its path")
        return self._stats[[name for name in columns if name in self._stats.columns]]

    def watched(self) -> dict[str, Any] | None:
        """Return what a `SpikeWatch` recorded: in a live training, a run's newest checkpoint, or an exported zip."""
        told_by = self._live or self.run
        remembered = told_by.watched() if told_by else None
        if not isinstance(remembered, dict) or not {"rule", "spikes"} <= set(remembered):
            return None
        return remembered

    @property
    def agents(self) -> tuple[str, ...]:
        """Return the agents in acting order, so that each keeps its colour."""
        if self._agents is None:
            table = self._stats if self._turns is None and self._stats is not None else self.turns(self.steps[-1])
            first = self._stats if self.run is None else None
            seen = [*table["agent"].unique(), *(first["agent"].unique() if first is not None else [])]
            self._agents = tuple(dict.fromkeys(seen))
        return self._agents

    def some_steps(self, limit: int) -> list[int]:
        """Return at most `limit` steps, evenly spread, with the first and the last among them."""
        steps = self.steps
        chosen = np.unique(np.linspace(0, len(steps) - 1, min(limit, len(steps))).round().astype(int))
        return [steps[place] for place in chosen]

    def _require_turns(self) -> pd.DataFrame:
        if self._turns is None:
            raise TableError("this instrument wants a table of turns, a report, a run or its path; it got statistics")
        return self._turns

    def token_texts(self, policy: str, ids: Sequence[int]) -> list[str]:
        """Return each token as text, or `#id` if no tokenizer is known (a table in memory)."""
        text_of = self._text_of(policy)
        return [escape_control_chars(text_of(number)) or f"#{number}" for number in ids]

    def use_team(self, team: Any) -> "Source":
        """Take token texts from a team's tokenizers, and return this source."""
        for name, policy in team.policies.items():
            tokenizer = getattr(policy.tokenizer, "backend_tokenizer", None)
            if tokenizer is not None:
                self._texts[name] = _reader(tokenizer)
        return self

    def _text_of(self, policy: str) -> Callable[[int], str]:
        if policy not in self._texts:
            self._texts[policy] = self._kept_texts(policy)
        return self._texts[policy]

    def _kept_texts(self, policy: str) -> Callable[[int], str]:
        """Return a function from token id to text: from the tokenizer beside the weights, or from an exported zip."""
        if self.run is None:
            return lambda number: ""
        if isinstance(self.run.folder, Path):
            tokenizer = self.run.checkpoint().tokenizer(policy)
            return _reader(tokenizer) if tokenizer is not None else lambda number: ""
        texts = self.run.token_texts().get(policy, {})
        return lambda number: texts.get(str(number), "")


def completed(turns: pd.DataFrame) -> pd.DataFrame:
    """Return a table of one step with the columns `ALWAYS`."""
    return turns.assign(**{name: column(turns, name) for name in ALWAYS})


def _reader(tokenizer: Any) -> Callable[[int], str]:
    return lru_cache(maxsize=None)(lambda number: tokenizer.decode([number], skip_special_tokens=False))


def _tables(x: Any) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return (turns, stats) of a table, a report, or several of either."""
    if isinstance(x, Report):
        return x.turns, x.stats
    if isinstance(x, pd.DataFrame):
        return (None, x) if "grad_norm" in x.columns else (x, None)
    if isinstance(x, Sequence) and not isinstance(x, str):
        if not x:
            raise TableError("there is nothing to show yet: no step is done")
        turns, stats = zip(*(_tables(part) for part in x), strict=True)
        return _joined(turns), _joined(stats)
    raise TypeError(f"wants a table, a report, a list of them, a run, its path or a dashboard; got {type(x).__name__}")


def _joined(tables: Sequence[pd.DataFrame | None]) -> pd.DataFrame | None:
    present = [table for table in tables if table is not None]
    return pd.concat(present, ignore_index=True) if present else None
