"""Turn the records of trainings into tables, and write and read a study as files to ship.

    runs.csv          a row per training: its `cell`, the digest of its code, the amounts spent, and its error
    curves.csv        its scores on held-out tasks, with the amounts spent until then
    agents.csv        its agents: norms, and facts about the rewards of its first and last steps
    rates.csv         the sweeps: every rate that was tried, and which was chosen
    provenance.json   command, date, the whole design, machine, versions

Leaves out: the meaning of the numbers.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.study.design import Design, describe_with_source
from mas_lab.train.budget import KINDS

RUNS, CURVES, AGENTS, RATES, PROVENANCE = "runs.csv", "curves.csv", "agents.csv", "rates.csv", "provenance.json"
CELL = ["task", "arm", "phase", "lr", "seed"]
OF_RUN = ["cell", *CELL, "steps", *KINDS, "seconds", "code"]
TEXTS = ("cell", "task", "arm", "phase", "code", "error", "agent", "window")
"""Columns of text in these files. A name may look like a number or like a missing value."""
DIGITS = "%.6g"
"""Format of numbers that are not whole."""
Record = Mapping[str, Any]
"""The record of a training. `CELL` are its cell's columns, as this study calls the cell."""


class Results:
    """The tables that a study and a shipped record have in common.

    Attributes:
        design: The design.
        records: The record of each training, those of sweeps first.
        score: The score by which arms are compared: "success" or "return".
        held_equal: The unit of the equal budgets; "tokens" if it is not the same on all tasks.
    """

    design: Design
    records: Sequence[Record]

    def __init__(self, design: Design):
        self.design, self.score = design, design.score
        kinds = {kind for task in design.tasks for kind in design.budget_of(task)}
        self.held_equal = kinds.pop() if len(kinds) == 1 else "tokens"

    @property
    def compared(self) -> list[Record]:
        """Return the records of the comparison, without those of sweeps."""
        return [record for record in self.records if record["phase"] == "compare"]

    @property
    def curves(self) -> pd.DataFrame:
        """Return a row per compared cell and scored step.

        Columns: `tokens`, `episodes` and `optimizer_steps` spent until then, and `success` and `return` on held-out
        tasks.
        """
        return self._rows("curve")

    @property
    def agents(self) -> pd.DataFrame:
        """Return a row per compared cell, agent and `window` (its first or its last steps).

        Columns: the agent's norms; its mean local reward per turn on held-out tasks before and after training, which
        often is its share of right answers; `rows` and the share of episodes in which it `spoke`; and `signal`,
        `peerless` and `F`, see `pooled_inflation`. A design may have a `quiz`, an env with the same agents. Then
        `quiz_before` and `quiz_after` are the agent's mean local reward per episode, on 64 x 4 episodes of the quiz.
        """
        return self._rows("agents")

    def _rows(self, part: str) -> pd.DataFrame:
        return pd.DataFrame([{name: one[name] for name in CELL} | row for one in self.compared for row in one[part]])


class Recorded(Results):
    """A shipped study; `table`, `curves`, `agents` and `rates` are as in `Study`, whatever code made them."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.records = read_record(self.folder)
        self.provenance = json.loads((self.folder / PROVENANCE).read_text(encoding="utf-8"))
        super().__init__(Design.of(self.provenance["design"], self.folder / PROVENANCE, sure=False))

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame([run_row(record, self.score) for record in self.records])

    @property
    def rates(self) -> pd.DataFrame:
        path = self.folder / RATES
        return _read(path) if path.is_file() else pd.DataFrame()


def run_row(record: Record, score: str) -> dict[str, Any]:
    """Return the row of a run: the amounts it spent, and its first (`start`) and last (`final`) held-out score."""
    curve = record["curve"] or [{score: float("nan")}]
    amounts = {name: record[name] for name in (*CELL, "steps", *KINDS, "seconds")}
    return {**amounts, "start": curve[0][score], "final": curve[-1][score]}


def ship(study: Any, folder: str | Path, command: str) -> Path:
    """Write the study's record to `folder`, file by file over an older record, and return the folder."""
    folder, records = Path(folder), study.records
    versions = list({json.dumps(record["versions"], sort_keys=True): record["versions"] for record in records}.values())
    runs = [{name: record[name] for name in OF_RUN} | {"made_with": versions.index(record["versions"])}
            | ({"error": record["error"]} if record.get("error") else {}) for record in records]  # fmt: skip
    counts = dict.fromkeys(("steps", *KINDS), "Int64")  # failed trainings have none
    tables = {RUNS: pd.DataFrame(runs).astype(counts), RATES: study.rates}
    for name, part in ((CURVES, "curve"), (AGENTS, "agents")):
        once = {one["cell"]: one[part] for one in records}  # two tasks may share a training
        tables[name] = pd.DataFrame([{"cell": cell, **row} for cell, rows in once.items() for row in rows])
    about = {
        "command": command, "date": f"{datetime.now(UTC):%Y-%m-%d}", "design": study.design.data, "versions": versions,
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }  # fmt: skip
    texts = {name: table.to_csv(index=False, float_format=DIGITS) for name, table in tables.items() if len(table)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**texts, PROVENANCE: json.dumps(about, indent=1, default=describe_with_source) + "\n"}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def is_record(folder: Path) -> bool:
    return (folder / RUNS).is_file() and (folder / PROVENANCE).is_file()


def read_record(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all trainings as they were before shipping, with scores and norms to six digits."""
    versions = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["versions"]
    parts = {part: {cell: own.drop(columns="cell").to_dict("records")
                    for cell, own in _read(folder / name).groupby("cell", sort=False)}
             for name, part in ((CURVES, "curve"), (AGENTS, "agents")) if (folder / name).is_file()}  # fmt: skip
    records = []
    for row in _read(folder / RUNS).to_dict("records"):
        of_run = {name: None if pd.isna(row[name]) else row[name] for name in OF_RUN}
        error = {"error": row["error"]} if row.get("error") else {}
        rows = {part: [] if error else parts[part][row["cell"]] for part in ("curve", "agents")}
        records.append(of_run | {"versions": versions[row["made_with"]]} | error | rows)
    return records


def _read(path: Path) -> pd.DataFrame:
    numbers = pd.read_csv(path, nrows=0).columns.difference(TEXTS)
    types = dict.fromkeys(TEXTS, str) | (dict.fromkeys(("steps", *KINDS), "Int64") if path.name == RUNS else {})
    return pd.read_csv(path, dtype=types, keep_default_na=False, na_values=dict.fromkeys(numbers, ""))
