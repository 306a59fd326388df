"""Read the data of an instrument: tables in memory, a report, a live training, a run or its path.

This is the adapter between where turns are and the instruments, which draw tables. A long run is read one step at a
time. This module leaves out drawing.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow
from pandas.api.types import is_numeric_dtype

from mas_lab.runs.disk import TEXTS, read_arrow, read_tables
from mas_lab.runs.run import Run, load_run, spread
from mas_lab.table import TableError, column
from mas_lab.train import Report
from mas_lab.train.verdict import scores_of, shares, turns_of, verdict_of_table
from mas_lab.widgets.document import escape
from mas_lab.widgets.text import escape_control_chars

CURVE_STEPS = 100
"""Steps in the curves of a long run."""
ALWAYS = ("node", "parent", "depth", "action", "kept", "probe")
"""Columns that a page needs of every row; `completed` adds those that a table lacks."""


class Source:
    """The data of an instrument: `steps`, `turns(step)`, `stats`, `agents`, `title` and token texts."""

    def __init__(self, x: Any, agents: Sequence[str] | None = None, team: Any = None):
        self.live = x if hasattr(x, "recorded") else None
        """The training that this reads, which may still be running, or `None`."""
        x = x.recorded if self.live else x
        self.run = x if isinstance(x, Run) else load_run(x) if isinstance(x, str | Path) else None
        self._turns, self._stats = (None, None) if self.run else map(_with_names, _tables(x))
        self._agents = tuple(agents) if agents else None
        policies = team.policies.items() if team is not None else ()
        tokenizers = {name: getattr(policy.tokenizer, "backend_tokenizer", None) for name, policy in policies}
        self._texts = {name: _reader(tokenizer) for name, tokenizer in tokenizers.items() if tokenizer is not None}

    @property
    def title(self) -> str:
        if self.run is None:
            return "turns in memory" if self._turns is not None else "statistics in memory"
        return f"run {Path(str(self.run.folder)).name}, {self.run.recipe_name}"

    @cached_property
    def judged(self) -> tuple[pd.DataFrame, Collection[str], pd.DataFrame] | None:
        """Return the arguments of a verdict: turns, agents that do not learn, shares. `None` without advantages."""
        turns, frozen = (turns_of(self.run), self.run.config["team"]["frozen"]) if self.run else (self._turns, ())
        if turns is not None and self._stats is not None:
            frozen = set(turns["agent"]) - set(self._stats["agent"])
        return (turns, frozen, shares(turns)) if turns is not None and "advantage" in turns else None

    @property
    def verdict(self) -> str:
        """Return the verdict on the run or table as a paragraph of HTML; empty without advantages."""
        with suppress(TableError):  # a table by hand may lack what a verdict reads
            if self.judged:
                return f'<p class="verdict"><b>{escape(verdict_of_table(*self.judged, scores_of(self.run)))}</b></p>'
        return ""

    @property
    def steps(self) -> list[int]:
        """Return the training steps, from 0; a table without the column `step` is one step."""
        if self.run:
            found = list(range(self.run.steps))
        else:
            found = sorted(map(int, self.memory["step"].unique())) if "step" in self.memory else [0][: len(self.memory)]
        if not found:
            raise TableError(f"{self.title}: there are no rows; play or train a step first")
        return found

    @property
    def memory(self) -> pd.DataFrame:
        """Return the table of turns in memory."""
        if self._turns is None:
            raise TableError("this instrument needs a table of turns, a report, a run or its path; it got statistics")
        return self._turns

    def turns(self, step: int, columns: list[str] | None = None) -> pd.DataFrame:
        """Return the rows of one step, numbered from 0 as `update` saw them."""
        if self.run:
            return self.run.step_turns(step, columns)
        own = self.memory[self.memory["step"] == step] if "step" in self.memory else self.memory
        if own.empty:
            raise TableError(f"{self.title}: step {step} has no rows; the last step is {self.steps[-1]}")
        return (own if columns is None else own[[name for name in columns if name in own]]).reset_index(drop=True)

    def some_turns(self, columns: list[str]) -> pd.DataFrame:
        """Return the given `columns`, "step" among them, of the turns of at most `CURVE_STEPS` steps, evenly spread."""
        steps = spread(self.steps, CURVE_STEPS)
        if self.run:
            return read_tables([self.run.part(step) for step in steps], columns)
        return pd.concat([self.turns(step, columns).assign(step=step) for step in steps], ignore_index=True)

    def arrow(self, columns: Sequence[str], steps: Sequence[int] | None = None) -> list[pyarrow.Table]:
        """Return the given `columns` of a run's turns, of all `steps` or some, as tables whose schemas may differ."""
        parts = self.run.parts("turns") if steps is None else [self.run.part(step) for step in steps]
        if not parts:
            raise TableError(f"{self.title} holds no turns yet; let train() make a step first")
        return read_arrow(parts, list(columns))

    @property
    def order(self) -> tuple[str, ...]:
        """Return the agents in acting order, if the caller, a dashboard or a run's description gives it; else ()."""
        team = self.run.config.get("team") if self.run is not None else None
        named = team.get("agents") if isinstance(team, dict) else getattr(self.live, "agents", ())
        return self._agents or tuple(named)

    @property
    def agents(self) -> tuple[str, ...]:
        """Return all agents in acting order, also those that were silent in a step, so that each keeps its colour."""
        if not self.order:
            tables = [self.run.read("stats", ["agent"])] if self.run else [self._turns, self._stats]
            spoke = [agent for table in tables if table is not None for agent in table["agent"].unique()]
            self._agents = tuple(dict.fromkeys(spoke))
        return self.order

    def silent(self, step: int, spoke: Iterable[str]) -> str:
        """Return a sentence on the agents that did not speak in a step, all but those that `spoke`; maybe empty."""
        silent = [agent for agent in self.agents if agent not in set(spoke)]
        return f"Did not speak in step {step}: {', '.join(silent)}." if silent else ""

    def stats(self, columns: list[str]) -> pd.DataFrame:
        """Return the given `columns` of the statistics; a table in memory may lack some."""
        if self.run:
            return self.run.read("stats", columns)
        if self._stats is None:
            raise TableError("SpikeInspector needs what `update` or `train` reported (stats), a run or its path")
        return self._stats[[name for name in columns if name in self._stats.columns]]

    def watched(self) -> dict[str, Any] | None:
        """Return what a `SpikeWatch` recorded: in a live training, a run's newest checkpoint, or an exported zip."""
        remembered = (self.live and self.live.watched()) or (self.run and self.run.watched())
        return remembered if isinstance(remembered, dict) and {"rule", "spikes"} <= set(remembered) else None

    def token_texts(self, policy: str, ids: Sequence[int]) -> list[str]:
        """Return each token as text, or `#id` if no tokenizer is known (a table in memory)."""
        if policy not in self._texts:
            tokenizer, texts = None, {}
            if self.run is not None and isinstance(self.run.folder, Path):
                tokenizer = self.run.checkpoint().tokenizer(policy)
            elif self.run is not None:
                texts = self.run.token_texts().get(policy, {})
            self._texts[policy] = _reader(tokenizer) if tokenizer else lambda number: texts.get(str(number), "")
        return [escape_control_chars(self._texts[policy](number)) or f"#{number}" for number in ids]


def completed(turns: pd.DataFrame) -> pd.DataFrame:
    """Return a table of one step with the columns `ALWAYS`."""
    return turns.assign(**{name: column(turns, name) for name in ALWAYS})


def _reader(tokenizer: Any) -> Callable[[int], str]:
    return lru_cache(maxsize=None)(lambda number: tokenizer.decode([number], skip_special_tokens=False))


def _with_names(table: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return a table whose episodes, tasks and other names are texts, also if they are numbers."""
    if table is None:
        return None
    return table.astype({name: str for name in TEXTS & set(table.columns) if is_numeric_dtype(table[name])})


def _tables(x: Any) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return (turns, stats) of a table, a report, or several of either."""
    if isinstance(x, Report):
        return x.turns, x.stats
    if isinstance(x, pd.DataFrame):
        return (None, x) if "grad_norm" in x.columns else (x, None)
    if not isinstance(x, Sequence) or isinstance(x, str):
        raise TypeError(
            f"an instrument takes a table, a report, several, a run, its path or a dashboard; got {type(x).__name__}"
        )
    if not x:
        raise TableError("there is nothing to show yet: no step is done")
    by_kind = [[table for table in tables if table is not None] for tables in zip(*map(_tables, x), strict=True)]
    turns, stats = (_joined(tables) if tables else None for tables in by_kind)
    return turns, stats


def _joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of a list as one; a table without the column `step` is the step of its place, from 0."""
    tables = [table if "step" in table else table.assign(step=place) for place, table in enumerate(tables)]
    steps = pd.concat([table["step"].drop_duplicates() for table in tables])
    if len(twice := steps[steps.duplicated()]):
        raise TableError(
            f"two tables of the list hold step {twice.iloc[0]}; play each step with lab.rollout(..., step=k), or "
            "number the tables: [table.assign(step=k) for k, table in enumerate(tables)]"
        )
    return pd.concat(tables, ignore_index=True)
