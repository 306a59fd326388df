"""Train the cells of a design side by side, keep them, and return the results as tables (`lab.study`).

An interrupted study can continue later. Leaves out: the design (`design`), one cell (`cell`), the files of a shipped
record (`record`) and the statistics (`comparison`).
"""

import math
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.display.progress import in_notebook
from mas_lab.runs.disk import read_json
from mas_lab.runs.run import run_folder
from mas_lab.study.cell import RECORDS, attempt, run_of
from mas_lab.study.design import Cell, Design
from mas_lab.study.processes import ended_jobs
from mas_lab.study.record import Record, Results, read_record, run_row, ship
from mas_lab.train.budget import Budget
from mas_lab.train.record import code

KEEP = ("tables", "all", "record")
DIED = "its process died: it was killed, or memory ran out; the same call continues"


def study(
    design: str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    sources: Sequence[str | Path] = (),
    workers: int | None = None,
    keep: str = "tables",
    play: bool = True,
) -> "Study":
    """Train every missing cell of a study, and return the results of all cells as tables.

    The same call continues where an earlier one was stopped or killed, bit for bit. It also trains cells that were
    added to the design since then.

    Seeds are pairs: under one seed all arms get the same training tasks, held-out tasks and random draws. Other seeds
    get other ones.

    A training that fails does not stop the others. `Study.failed` holds its error, and the next call tries it again. If
    it had begun, it is a result: it is kept with its error, counted on the board, and ranked last in a sweep. A process
    that dies is no result: the next call continues its training.

        lab.study({
            "name": "ladder", "env": {"name": "ladder"}, "team": {"weights": "per_agent", "lr": 3e-4},
            "settings": {"tasks": 16}, "budget": {"episodes": 3840}, "seeds": 5,
            "arms": {"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas"}},
        })

    Args:
        design: A YAML file, or its content. It holds `arms`, `tasks` and `seeds`, and the options of all cells: `env`,
            `team`, `recipe` and `settings`, as in a file of `mas_lab.train`. All arms get the same `budget`. A `sweep`
            of learning rates is optional. Without `tasks` there is one, named after the env. `{seed}` in the team's
            options, such as "runs/pockets/math-{seed}", is replaced by the seed, which gives each seed other first
            weights. An `env`, a `recipe` and the parts of a recipe may also be your own objects, defined in a notebook.
        folder: The study's folder; a bare name lies under `runs_dir()`. Default: the study's name.
        sources: Folders of recorded studies. A recorded training takes the place of a cell if it was trained as the
            cell asks, by the same code. Trainings by other code are listed in `Study.apart`.
        workers: Number of processes at a time. Default: one per core. Each needs about half a gigabyte of memory.
        keep: The files of each run that are kept: its "tables" (default), "all" with weights, or only its "record".
        play: If `False`, nothing is trained.

    Returns:
        The study, with the records of all cells that were trained.

    Raises:
        ConfigError: No training can be made of the design; the message names the place.
        ValueError: `keep` is unknown.
    """
    if keep not in KEEP:
        raise ValueError(f"study: keep={keep!r}; known are {', '.join(KEEP)}")
    read = Design.of(design) if isinstance(design, Mapping) else Design.read(design)
    made = Study(read, run_folder(folder or read.name), sources)
    if play:
        made.play(workers, keep)
    return made


class Study(Results):
    """The cells of a design, made or missing, and their results as tables; `study` makes one.

    It prints what is held equal and what is missing. `lab.AblationBoard(study)` compares its arms.

    Attributes:
        design: The design.
        folder: The study's folder.
        failed: The error of each training that failed, by the digest of its cell.
        apart: Trainings that do not count, since other code made them.
        score: The score by which arms are compared: "success" or "return".
        held_equal: The unit of the equal budgets; "tokens" if it is not the same on all tasks.
    """

    def __init__(self, design: Design, folder: Path, sources: Sequence[str | Path] = ()):
        super().__init__(design)
        self.folder, self.apart = folder, []
        self._made: dict[str, Record] = {}
        """Records by the digest of their cell."""
        kept = [read_json(path) for path in sorted((folder / RECORDS).glob("*.json"))]
        for found in [*kept, *(one for source in sources for one in read_record(Path(source)))]:
            if found["code"] not in (code(), *design.data.get("codes", ())):
                self.apart.append(f"{found['task']}, {found['arm']}, seed {found['seed']}: made by other code "
                                  f"({found['code']}, this is {code()}); it counts if the study's `codes` name it, for "
                                  "those who know that both give the same")  # fmt: skip
            elif self._made.get(found["cell"], {"error": True}).get("error"):  # that of a training that failed is last
                self._made[found["cell"]] = found
        self.failed = {digest: record["error"] for digest, record in self._made.items() if record.get("error")}

    def play(self, workers: int | None = None, keep: str = "tables") -> None:
        """Train the missing and the failed cells, and write the record of the study to its folder.

        The sweeps of learning rates come first. The comparison follows, at the best rate of each arm.

        Args:
            workers: Number of processes at a time. Default: one per core.
            keep: The files of each run that are kept: "tables", "all" or "record", see `study`.
        """
        try:
            for cells_of_phase in (self.design.sweeps, self.cells):
                missing = {cell.digest: cell for cell in cells_of_phase()
                           if cell.digest not in self._made or cell.digest in self.failed}  # fmt: skip
                jobs = [(attempt, cell, self.folder, keep) for cell in missing.values()]
                for done, ((_, cell, *_), ended) in enumerate(ended_jobs(jobs, workers, self.design.name), start=1):
                    if failure := ended.exception():
                        error = DIED if isinstance(failure, BrokenProcessPool) else str(failure)
                    else:
                        self._made[cell.digest] = ended.result()
                        error = ended.result().get("error")
                    self.failed.pop(cell.digest, None)
                    self.failed |= {cell.digest: error} if error else {}
                    if not (in_notebook() or sys.stderr.isatty()):  # a log shows no bar
                        print(f"{done}/{len(jobs)}  {cell}: {error or 'made'}", file=sys.stderr, flush=True)
        finally:
            if (self.folder / RECORDS).is_dir() and self.records:
                ship(self, self.folder, "lab.study")

    def cells(self) -> list[Cell]:
        """Return the cells of the sweeps, then the compared cells whose learning rates are known."""
        return [*self.design.sweeps(), *self.design.comparisons(chosen(self.rates))]

    @property
    def records(self) -> list[Record]:
        return [self._made[cell.digest] | cell.called for cell in self.cells() if cell.digest in self._made]

    @property
    def rates(self) -> pd.DataFrame:
        """Return a row per task, arm and learning rate that was tried, see `best_rate`.

        Only tasks whose sweep is complete have rows.
        """
        sweeps = self.design.sweeps()
        waiting = {cell.task for cell in sweeps if cell.digest not in self._made}
        tried = [self._row(cell) for cell in sweeps if cell.task not in waiting]
        return best_rate(pd.DataFrame(tried).fillna({"final": -np.inf})) if tried else pd.DataFrame()

    @property
    def table(self) -> pd.DataFrame:
        """Return a row per cell with its scores and its state.

        Columns: `task`, `arm`, `phase`, `lr`, `seed`; `state` ("made", "failed" or "missing"); the amounts it spent;
        its score at the `start` and the `final` one; `seconds` of training; and `run`, the folder of its run.
        """
        return pd.DataFrame([self._row(cell) for cell in self.cells()])

    def _row(self, cell: Cell) -> dict[str, Any]:
        record = self._made.get(cell.digest)
        state = "failed" if cell.digest in self.failed else "made" if record else "missing"
        row = run_row(record | cell.called, self.score) if record else cell.called
        return row | {"state": state, "run": str(run_of(self.folder, cell))}

    def __repr__(self) -> str:
        table, waits = self.table, bool(self.design.sweeps()) and not len(self.rates)
        lines = [f"study {self.design.name}: {(table['state'] == 'made').sum()} of {len(table)} trainings made"
                 f"{'; the rest is known when learning rates are swept' * waits}, in {self.folder}"]  # fmt: skip
        for task in self.design.tasks:
            differ = ", ".join(self.design.differences(task)) or "nothing"
            lines.append(f"{task}: held equal: {Budget.of(self.design.budget_of(task))}; arms differ in {differ}")
        lines += [f"failed: {cell}: {self.failed[cell.digest]}" for cell in self.cells() if cell.digest in self.failed]
        return "\n".join([*lines, *(f"apart: {one}" for one in self.apart)])


def best_rate(sweep: pd.DataFrame) -> pd.DataFrame:
    """Return each rate that was tried, and mark the one with the highest mean score per task and arm.

    `sweep` has a row per run: `task`, `arm`, `lr`, `seed` and its `final` held-out score (higher is better). All arms
    of a task tried the same rates with the same seeds, so each gets the same chance. The result has a row per task, arm
    and `lr`, also for rates that were not chosen. Its columns are the number of `seeds`, the `mean`, the `least` and
    `most` score, `chosen`, and `edge`. `edge` marks a chosen rate that is the smallest or largest one tried, so that a
    better one may lie beyond.

    Means tie if their sums are the same number; the smaller rate is then chosen. A failed run has the score -inf. So a
    rate with a failed run is chosen only if all other rates have one too.
    """
    scores = sweep.groupby(["task", "arm", "lr"])["final"]
    tried = scores.agg(seeds="size", mean=lambda own: math.fsum(own) / len(own), least="min", most="max").reset_index()
    arms = tried.groupby(["task", "arm"])
    is_best = tried.index.isin(arms["mean"].idxmax())  # the smallest rate of the highest mean
    is_end = (tried["lr"] == arms["lr"].transform("min")) | (tried["lr"] == arms["lr"].transform("max"))
    return tried.assign(chosen=is_best, edge=is_best & is_end)


def chosen(rates: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Return the rate that `best_rate` chose for each (task, arm)."""
    return {(row.task, row.arm): row.lr for row in rates.itertuples() if row.chosen}
