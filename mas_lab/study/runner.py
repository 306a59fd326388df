"""`lab.study`: the cells of a design made side by side, kept, and gone on with; and all that they came to as tables.

Leaves out: what is asked for (`design`), one cell (`cell`), what was made elsewhere (`sources`), the files of a record
that is shipped (`record`) and the statistics (`comparison`).
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
from mas_lab.study.tables import failures_of, held_equal, named, rows_of, run_row
from mas_lab.study.telling import told
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
    """Train every cell of a study that is missing, and give all of them as tables.

    `design`: a YAML file, or its content: `arms` on `tasks` over `seeds`, what is said of all of them (`env`, `team`,
    `recipe`, `settings`, as in a file of `mas_lab.train`), their equal `budget`, and maybe a `sweep` of learning rates:

        lab.study({
            "name": "ladder", "env": {"name": "ladder"}, "team": {"weights": "per_agent", "lr": 3e-4},
            "settings": {"tasks": 16}, "budget": {"episodes": 3840}, "seeds": 5,
            "arms": {"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas"}},
        })

    Seeds are pairs: under one seed all arms meet the same training tasks, held-out tasks and draws. Other seeds have
    others; `{seed}` in what is said of the team, such as "runs/pockets/math-{seed}", gives other first weights too.

    `folder`: where it is kept (default: the study's name under `runs_dir()`). The same call goes on where it was
    stopped or killed, bit for bit, and makes what the design has got since. `sources`: runs that were made elsewhere:
    folders of them, exported zips, or the folder of a recorded study. They take their cells' places if they were asked
    for the same and made by the same code; if not, they stand in `Study.apart`, with the reason. `workers`: processes
    at a time, by default one per core. `keep`: of a run its "tables", "all" with weights, or nothing but its "record".
    `play=False` makes nothing.

    A training that fails leaves the others alone; `Study.failed` says why, and the next call tries it again. If it had
    begun, it is a result: it is kept with its error, counted on the board, and the worst of a sweep. Raises
    ConfigError, which names the place, for a design of which no training can be made.
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
    """The cells of a design, those that are made and those that are not; prints what is held equal and what is missing.

    `table`: a row per cell; `curves`: its scores by what was spent; `agents`: its agents' norms and what their rewards
    said; `rates`: the sweep of learning rates. `lab.AblationBoard(study)` compares its arms.
    """

    def __init__(self, design: Design, folder: Path, sources: Sequence[str | Path] = ()):
        self.design, self.folder = design, folder
        self._unbegun: dict[str, str] = {}
        """The error of each training that could not begin, by the digest of its cell."""
        self._records, self.apart = kept(folder, sources, design)
        """Records by digest; runs that are not counted, with the reason."""
        # The cells of a comparison are known once its sweeps are.
        for cells in (design.sweeps, self.cells) if design.sweeps() else (self.cells,):
            found, strangers = handed_in(sources, cells(), design)
            self._records = found | self._records
        self.apart += strangers

    def __repr__(self) -> str:
        return "\n".join(told(self))

    def play(self, workers: int | None = None, keep: str = "tables") -> None:
        """Make what is missing: first the sweeps of learning rates, then, at the best of each arm, the comparison."""
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
        """The error of each training that failed, by the digest of its cell."""
        kept = {digest: record["error"] for digest, record in self._records.items() if record.get("error")}
        return kept | self._unbegun

    def failures(self) -> list[tuple[str, str, int, str]]:
        """Return task, arm, seed and error of each compared training that failed."""
        return failures_of((named(cell), record) for cell, record in self.records("compare"))

    @property
    def score(self) -> str:
        """What its arms are compared by."""
        return self.design.score

    @property
    def held_equal(self) -> str:
        """What they are given equally much of, "tokens" where that is not the same on all tasks."""
        return held_equal(self.design.budget_of(task) for task in self.design.tasks)

    def cells(self) -> list[Cell]:
        """All that are asked for, as far as learning rates are known: those of the sweeps, then the compared ones."""
        return [*self.design.sweeps(), *self.design.comparisons(chosen(self.rates))]

    def records(self, phase: str | None = None) -> list[tuple[Cell, Mapping[str, Any]]]:
        """The cells that are made, of one `phase` or of both, with all that is known of each."""
        return [(cell, self._records[cell.digest]) for cell in self.cells()
                if cell.digest in self._records and phase in (None, cell.phase)]  # fmt: skip

    @property
    def rates(self) -> pd.DataFrame:
        """What each rate that was tried came to and which was chosen, see `best_rate`: of the tasks whose sweep is
        whole."""
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
        """A row per cell: `task`, `arm`, `phase`, `lr`, `seed`, its `state` ("made", "failed", "missing"), what it
        spent, its score at the `start` and the `final` one, `seconds` of training, and its `run`'s folder."""
        rows = []
        for cell in self.cells():
            record = self._records.get(cell.digest)
            state = "failed" if cell.digest in self.failed else "made" if record else "missing"
            row = run_row(named(cell), record, self.design.score)
            rows.append(row | {"state": state, "run": str(run_of(self.folder, cell))})
        return pd.DataFrame(rows)

    @property
    def curves(self) -> pd.DataFrame:
        """A row per compared cell and scored step: `tokens`, `episodes`, `optimizer_steps` spent until then, `success`
        and `return` on held-out tasks."""
        return self._rows("curve")

    @property
    def agents(self) -> pd.DataFrame:
        """A row per compared cell, agent and `window` (its first and last steps): the agent's norms, how often it was
        right, the columns of `lab.advise`, and `F`, see `lab.inflation`; where the design has a `quiz`, an env with the
        same agents, `quiz_before` and `quiz_after`: the agent's mean local reward on 64 x 4 episodes of it."""
        return self._rows("agents")

    def described(self) -> dict[tuple[str, str, int], Described]:
        """What its design and its records say of each compared training, by task, arm and seed."""
        return of_design(self.design, self.records("compare"))

    def _rows(self, kept: str) -> pd.DataFrame:
        return rows_of([(named(cell), record) for cell, record in self.records("compare")], kept)
