"""Read episodes and comparison groups of a run as a page's data, one step at a time on demand.

This module leaves out the choice of episodes (`choice`), and their form (`episodes`).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow
from pyarrow import compute

from mas_lab.runs.disk import INFO, RunError, read_arrow, read_info
from mas_lab.runs.forms import TEXTS
from mas_lab.table import SCHEMA, trained
from mas_lab.widgets.episodes import Row, episode_data, member, size
from mas_lab.widgets.source import ALWAYS, Source, completed
from mas_lab.widgets.text import escape_control_chars

SHOWN = [name for name in SCHEMA if name != "prompt_ids"]
LISTED = ["episode", "node", "agent", "candidate", "credit", "advantage", "completion", "group"]
"""Columns that are read of a row: `SHOWN` for a page, `LISTED` for a list of its group."""
MEMBERS = 32
"""Members of a comparison group that a page lists."""
HELD = 4
"""Steps kept in memory."""

States = Callable[[int, Sequence[Row]], dict[str, str]]
"""Function (step, rows of an episode) -> {node: SVG}."""


class Reading:
    """Read the episodes and comparison groups of one source, which stands for run number `run`."""

    def __init__(
        self,
        source: Source,
        run: int = 0,
        states: States | None = None,
        shares: dict[tuple[int, int], list[float]] | None = None,
    ):
        self.source, self.run = source, run
        self._states, self._shares = states, shares or {}
        self._step = lru_cache(HELD)(lambda step: _Step(source, step))

    def rows(self, step: int, episode: str) -> list[Row]:
        """Return the rows of an episode as dicts."""
        return self._step(step).where("episode", [episode], SHOWN)

    def episode(self, step: int, name: str) -> dict[str, Any]:
        """Return an episode as a page's data."""
        rows = self.rows(step, name)
        for row in rows if self._shares else ():
            row["shares"] = self._shares.get((step, row["row"]))
        drawn = self._states(step, rows) if self._states else {}
        return {"run": self.run, "step": step, **episode_data(rows, self.source, drawn)}

    def with_groups(self, step: int, name: str, most: int) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
        """Return an episode, and the comparison groups of its rows under the names `run|step|group`.

        A group lists at most `most` members, or more if the episode itself has more. A candidate's `compared` is the
        full size of its group.
        """
        episode = self.episode(step, name)
        said = [one for node in episode["nodes"] for one in node["candidates"]]
        found = self._members(step, {one["group"] for one in said} - {""})
        for one in said:
            one["compared"] = len(found.get(one["group"], ()))
        return episode, {
            f"{self.run}|{step}|{group}": list(map(member, _largest(rows, most, name))) for group, rows in found.items()
        }

    def group(self, step: int, name: str, most: int) -> list[dict[str, Any]]:
        """Return at most `most` members of a comparison group; `name` is its name as a page shows it."""
        return [member(row) for rows in self._members(step, {name}).values() for row in _largest(rows, most)]

    def _members(self, step: int, names: Iterable[str]) -> dict[str, list[Row]]:
        """Return the rows of groups, by the names of the groups as a page shows them."""
        found: dict[str, list[Row]] = {}
        table = self._step(step)
        for row in table.where("group", table.named("group", names), LISTED):
            found.setdefault(escape_control_chars(row["group"]), []).append(row)
        return found


def _largest(rows: list[Row], most: int, own: str = "") -> list[Row]:
    """Return `most` rows in order: all of the episode `own`, even if more, and those with the largest |advantage|."""
    if len(rows) <= most:
        return rows
    sizes = [size(row.get("advantage")) for row in rows]
    order = sorted(range(len(rows)), key=lambda place: (rows[place]["episode"] != own, -sizes[place], place))
    least = sum(row["episode"] == own for row in rows)
    return [rows[place] for place in sorted(order[: max(most, least)])]


class _Step:
    """The rows of one training step that belong to its batch, for look-ups by the values of a column."""

    def __init__(self, source: Source, step: int):
        table = None
        if source.run is not None:
            part = source.run.part(step)
            [table] = read_arrow([part], SHOWN)
            for name in sorted(TEXTS & set(table.column_names)):
                if pyarrow.types.is_primitive(held := table.schema.field(name).type):
                    raise RunError(f"{part}: column '{name}' holds {held}, not text; it was not written by train()")
            table = table if set(ALWAYS) <= set(table.column_names) else None
        if table is None:
            turns = completed(source.turns(step))
            turns = turns.assign(row=range(len(turns)))
            self._table = turns[trained(turns)]
            return
        table = table.append_column("row", pyarrow.array(np.arange(len(table))))
        self._table = table.filter(compute.invert(table["probe"]))

    def where(self, by: str, values: Sequence[str], columns: Sequence[str]) -> list[Row]:
        """Return the rows with one of `values` in `by`: the existing `columns`, and `row`, the place in the step."""
        table, known = self._table, (*columns, "row")
        if not isinstance(table, pyarrow.Table):
            if by not in table.columns:
                return []
            return table.loc[table[by].isin(list(values)), [name for name in known if name in table]].to_dict("records")
        if by not in table.column_names:
            return []
        wanted = compute.is_in(table[by], pyarrow.array(list(values), table.schema.field(by).type))
        rows = table.select([name for name in known if name in table.column_names]).filter(wanted).to_pylist()
        return [{**row, INFO: read_info(row[INFO])} for row in rows] if rows and INFO in rows[0] else rows

    def named(self, by: str, shown: Iterable[str]) -> list[str]:
        """Return the values of the column `by` that a page shows as one of `shown`."""
        if by not in (self._table.column_names if isinstance(self._table, pyarrow.Table) else self._table.columns):
            return []
        shown, held = set(shown), self._table[by].unique()
        held = held.to_pylist() if isinstance(self._table, pyarrow.Table) else list(held)
        return [value for value in held if escape_control_chars(value) in shown]
