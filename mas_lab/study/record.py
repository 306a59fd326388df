"""Write and read a study as files to ship: runs, scores, agents, swept rates, and provenance.

    runs.csv          a row per training: its `cell`, the digest of its code, the amounts spent, and its error
    curves.csv        its scores on held-out tasks, with the amounts spent until then
    agents.csv        its agents: norms, and the columns of `lab.advise` for its first and last steps
    rates.csv         the sweeps: every rate that was tried, and which was chosen
    provenance.json   command, date, the whole design, machine, versions, revision

Leaves out: the meaning of the numbers.
"""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.recipes import to_data
from mas_lab.runs.disk import RunError, whole
from mas_lab.study.described import Described, of_design, recorded_design
from mas_lab.study.tables import CELL, Named, failures_of, held_equal, named, rows_of, run_row
from mas_lab.train.budget import KINDS
from mas_lab.train.config import Place

RUNS, CURVES, AGENTS, RATES, PROVENANCE = "runs.csv", "curves.csv", "agents.csv", "rates.csv", "provenance.json"
OF_RUN = ["cell", "task", "arm", "phase", "lr", "seed", "steps", *KINDS, "seconds", "code"]
DIGITS = "%.6g"


def ship(study: Any, folder: str | Path, command: str) -> Path:
    """Write the study's record to `folder`, file by file over an older record, and return the folder."""
    folder, records = Path(folder), [{**record, **named(cell)} for cell, record in study.records()]
    if not records:
        raise RunError(f"{study.folder}: no training of the study is made yet; there is nothing to record")
    versions = list({json.dumps(record["versions"], sort_keys=True): record["versions"] for record in records}.values())
    runs = [{name: record[name] for name in OF_RUN} | {"made_with": versions.index(record["versions"])}
            | ({"error": record["error"]} if record.get("error") else {}) for record in records]  # fmt: skip
    tables = {RUNS: pd.DataFrame(runs), RATES: study.rates}
    for name, part in ((CURVES, "curve"), (AGENTS, "agents")):
        once = {one["cell"]: one[part] for one in records}  # two tasks may share a training
        tables[name] = pd.DataFrame([{"cell": cell, **row} for cell, rows in once.items() for row in rows])
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        if len(table):
            _write(folder / name, table.to_csv(index=False, float_format=DIGITS))
    about = {
        "command": command, "date": f"{datetime.now(UTC):%Y-%m-%d}", "design": study.design.data, "versions": versions,
        "machine": _machine(), "revision": _revision(),
    }  # fmt: skip
    _write(folder / PROVENANCE, json.dumps(about, indent=1, default=to_data) + "\n")
    return folder


class Recorded:
    """A shipped study; `table`, `curves`, `agents` and `rates` are as in `Study`, whatever code made them."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        records = read_record(self.folder)
        self.records = [({name: record[name] for name in CELL}, record) for record in records]
        """The columns `CELL` and the record of each training."""
        self.provenance = json.loads((self.folder / PROVENANCE).read_text(encoding="utf-8"))
        design = self.provenance["design"]
        self.score = design.get("score", "success")
        tasks = (design.get("tasks") or {"": None}).values()
        self.held_equal = held_equal((task or {}).get("budget") or design.get("budget") or {} for task in tasks)

    @property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame([run_row(called, record, self.score) for called, record in self.records])

    @property
    def curves(self) -> pd.DataFrame:
        return rows_of(self._compared(), "curve")

    @property
    def agents(self) -> pd.DataFrame:
        return rows_of(self._compared(), "agents")

    def described(self) -> dict[tuple[str, str, int], Described]:
        """Return the description of each compared training, by (task, arm, seed)."""
        place = Place(self.folder / PROVENANCE, ("design",))
        return of_design(recorded_design(self.provenance["design"], place), self._compared())

    def failures(self) -> list[tuple[str, str, int, str]]:
        """Return (task, arm, seed, error) of each compared training that failed."""
        return failures_of(self._compared())

    @property
    def rates(self) -> pd.DataFrame:
        path = self.folder / RATES
        return pd.read_csv(path) if path.is_file() else pd.DataFrame()

    def _compared(self) -> list[Named]:
        return [(called, record) for called, record in self.records if called["phase"] == "compare"]


def is_record(folder: Path) -> bool:
    return (folder / RUNS).is_file() and (folder / PROVENANCE).is_file()


def read_record(folder: Path) -> list[dict[str, Any]]:
    """Return the records of all trainings as they were before shipping, with numbers to six digits."""
    try:
        versions = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["versions"]
        runs = pd.read_csv(folder / RUNS, dtype={"cell": str, "code": str}, keep_default_na=False, na_values={"lr": ""})
        parts = {part: _by_cell(folder / name) for name, part in ((CURVES, "curve"), (AGENTS, "agents"))}
        rows = runs.to_dict("records")
        return [
            {name: row[name] for name in OF_RUN}
            | {"lr": None if pd.isna(row["lr"]) else row["lr"], "versions": versions[row["made_with"]]}
            | (
                {"error": row["error"], **{part: [] for part in parts}}
                if row.get("error")
                else {part: of_cell[row["cell"]] for part, of_cell in parts.items()}
            )
            for row in rows
        ]
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise RunError(
            f"{folder} is no record of a study that can be read ({type(error).__name__}: {error})"
        ) from error


def _by_cell(path: Path) -> Mapping[str, list[dict[str, Any]]]:
    table = pd.read_csv(path, dtype={"cell": str})
    return {cell: own.drop(columns="cell").to_dict("records") for cell, own in table.groupby("cell", sort=False)}


def _write(path: Path, text: str) -> None:
    with whole(path) as staged:
        staged.write_text(text, encoding="utf-8")


def _machine() -> dict[str, Any]:
    return {"system": platform.system(), "processor": _processor(), "cores": os.cpu_count()}


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _revision() -> str | None:
    """Return the git revision of this package's checkout, or `None` if there is none."""
    try:
        told = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10"], cwd=Path(__file__).parent, capture_output=True,
            encoding="utf-8", timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.strip()
