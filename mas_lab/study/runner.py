"""Train the cells of a design side by side, keep them, and return the results as tables (`lab.study`).

An interrupted study can continue later. Leaves out: the design (`design`), one cell (`cell`), runs made elsewhere
(`sources`), the files of a shipped record (`record`) and the statistics (`comparison`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.runs.run import run_folder
from mas_lab.study.cell import attempt, run_of
from mas_lab.study.clock import Clock
from mas_lab.study.described import Described, of_design
from mas_lab.study.design import Cell, Design
from mas_lab.study.processes import at_a_time, side_by_side
from mas_lab.study.rates import best_rate, chosen
from mas_lab.study.sources import handed_in, kept
from mas_lab.study.status import status_lines
from mas_lab.study.tables import failures_of, held_equal, named, rows_of, run_row
from mas_lab.train.config import Place

KEEP = ("tables", "all", "record")


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
    it had begun, it is a result: it is kept with its error, counted on the board, and ranked last in a sweep.

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
            weights.
        folder: The study's folder; a bare name lies under `runs_dir()`. Default: the study's name.
        sources: Runs that were made elsewhere: folders of runs, exported zips, or the folder of a recorded study. A run
            takes the place of a cell if it was trained as the cell asks, by the same code. Other runs are listed in
            `Study.apart`, with the reason.
        workers: Number of processes at a time. Default: one per core, at most 8.
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
    read = _design(design)
    made = Study(read, run_folder(folder or read.name), sources)
    if play:
        made.play(workers, keep)
    return made


def _design(told: str | Path | Mapping[str, Any]) -> Design:
    return Design.of(told, Place(Path("study"))) if isinstance(told, Mapping) else Design.read(told)


class Study:
    """The cells of a design, made or missing, and their results as tables; `study` makes one.

    It prints what is held equal and what is missing. `lab.AblationBoard(study)` compares its arms.

    Attributes:
        design: The design.
        folder: The study's folder.
        apart: Runs that do not count, each with the reason.
    """

    def __init__(self, design: Design, folder: Path, sources: Sequence[str | Path] = ()):
        self.design, self.folder = design, folder
        self._unbegun: dict[str, str] = {}
        """The error of each training that could not begin, by the digest of its cell."""
        self._records, self.apart = kept(folder, sources, design)
        """Records by the digest of their cell; runs that do not count, with the reason."""
        # The compared cells depend on the rates that the sweeps choose.
        for cells in (design.sweeps, self.cells) if design.sweeps() else (self.cells,):
            found, strangers = handed_in(sources, cells(), design)
            self._records = found | self._records
        self.apart += strangers

    def __repr__(self) -> str:
        return "\n".join(status_lines(self))

    def play(self, workers: int | None = None, keep: str = "tables") -> None:
        """Train the missing and the failed cells.

        The sweeps of learning rates come first. The comparison follows, at the best rate of each arm.

        Args:
            workers: Number of processes at a time. Default: one per core, at most 8.
            keep: The files of each run that are kept: "tables", "all" or "record", see `study`.
        """
        for asked in (self.design.sweeps, self.cells):
            missing = {cell.digest: cell for cell in asked()
                       if cell.digest not in self._records or cell.digest in self.failed}  # fmt: skip
            if missing:
                self._make(missing, workers, keep)

    def _make(self, missing: Mapping[str, Cell], workers: int | None, keep: str) -> None:
        jobs = [(attempt, cell, self.folder, keep) for cell in missing.values()]
        with Clock(self.design.name, list(missing.values()), at_a_time(len(jobs), workers)) as clock:
            for digest, record, error in side_by_side(jobs, workers, clock):
                self._unbegun.pop(digest, None)
                if record is None:
                    self._unbegun[digest] = error
                else:
                    self._records[digest] = record
                clock.ended(missing[digest], None if error else record, error)

    @property
    def failed(self) -> dict[str, str]:
        """Return the error of each training that failed, by the digest of its cell."""
        kept = {digest: record["error"] for digest, record in self._records.items() if record.get("error")}
        return kept | self._unbegun

    def failures(self) -> list[tuple[str, str, int, str]]:
        """Return (task, arm, seed, error) of each compared training that failed."""
        return failures_of((named(cell), record) for cell, record in self.records("compare"))

    @property
    def score(self) -> str:
        """Return the score by which arms are compared: "success" or "return"."""
        return self.design.score

    @property
    def held_equal(self) -> str:
        """Return the unit of the equal budgets; "tokens" if it is not the same on all tasks."""
        return held_equal(self.design.budget_of(task) for task in self.design.tasks)

    def cells(self) -> list[Cell]:
        """Return the cells of the sweeps, then the compared cells whose learning rates are known."""
        return [*self.design.sweeps(), *self.design.comparisons(chosen(self.rates))]

    def records(self, phase: str | None = None) -> list[tuple[Cell, Mapping[str, Any]]]:
        """Return each cell that has a record, with that record.

        Args:
            phase: "sweep" or "compare". Default: both.

        Returns:
            Pairs (cell, record).
        """
        return [(cell, self._records[cell.digest]) for cell in self.cells()
                if cell.digest in self._records and phase in (None, cell.phase)]  # fmt: skip

    @property
    def rates(self) -> pd.DataFrame:
        """Return a row per task, arm and learning rate that was tried, see `best_rate`.

        Only tasks whose sweep is complete have rows.
        """
        whole, sweeps = [], self.design.sweeps()
        for task in dict.fromkeys(cell.task for cell in sweeps):
            cells = [cell for cell in sweeps if cell.task == task]
            if all(cell.digest in self._records for cell in cells):
                runs = [run_row(named(cell), self._records[cell.digest], self.design.score) for cell in cells]
                tried = pd.DataFrame(runs)
                failed = [cell.digest in self.failed for cell in cells]
                whole.append(best_rate(tried.assign(final=tried["final"].mask(failed, -np.inf))))
        return pd.concat(whole, ignore_index=True) if whole else pd.DataFrame()

    @property
    def table(self) -> pd.DataFrame:
        """Return a row per cell with its scores and its state.

        Columns: `task`, `arm`, `phase`, `lr`, `seed`; `state` ("made", "failed" or "missing"); the amounts it spent;
        its score at the `start` and the `final` one; `seconds` of training; and `run`, the folder of its run.
        """
        rows = []
        for cell in self.cells():
            record = self._records.get(cell.digest)
            state = "failed" if cell.digest in self.failed else "made" if record else "missing"
            row = run_row(named(cell), record, self.design.score)
            rows.append(row | {"state": state, "run": str(run_of(self.folder, cell))})
        return pd.DataFrame(rows)

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
        often is its share of right answers; the columns of `lab.advise`; and `F`, see `lab.inflation`. A design may
        have a `quiz`, an env with the same agents. Then `quiz_before` and `quiz_after` are the agent's mean local
        reward per episode, on 64 x 4 episodes of the quiz.
        """
        return self._rows("agents")

    def described(self) -> dict[tuple[str, str, int], Described]:
        """Return the description of each compared training, by (task, arm, seed)."""
        return of_design(self.design, self.records("compare"))

    def _rows(self, kept: str) -> pd.DataFrame:
        return rows_of([(named(cell), record) for cell, record in self.records("compare")], kept)
