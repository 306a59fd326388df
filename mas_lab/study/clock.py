"""Show one progress bar for all cells of a study, and estimate the remaining time.

The estimate uses the time that similar cells took. Leaves out: the processes that train the cells (`processes`).
"""

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from mas_lab.display.progress import progress_bar
from mas_lab.study.design import Cell
from mas_lab.study.processes import Bars


class Clock(Bars):
    """A progress bar over all cells of a study; without a visible bar, a line is printed per finished cell."""

    def __init__(self, name: str, cells: Sequence[Cell], workers: int):
        super().__init__()
        self.name, self.workers, self.waiting = name, workers, {cell.digest: cell for cell in cells}
        self.total, self.begun, self.share = len(cells), {}, {}
        self.took: dict[tuple[str, str], list[float]] = {}
        self.bar = progress_bar(len(cells), name, "trainings")
        self.bar.bar_format = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}]"

    def __exit__(self, *error) -> None:
        self.bar.close()

    def move(self, name: str, done: int, total: int) -> None:
        self.begun.setdefault(name, time.monotonic())
        self.share[name] = done / total
        self._draw()

    def ended(self, cell: Cell, record: Mapping[str, Any] | None, error: str | None) -> None:
        """Record that a cell has ended; the time of a failed cell does not enter the estimate."""
        begun = self.begun.pop(cell.digest, None)
        self.share.pop(cell.digest, None)
        self.waiting.pop(cell.digest, None)
        if record is not None and begun is not None:
            self.took.setdefault(cell.key, []).append(time.monotonic() - begun)
        self._draw()
        if self.bar.disable:
            scores = [point["success"] for point in record["curve"]] if record else []
            came = f"success {scores[0]:.3f} -> {scores[-1]:.3f}" if record else f"failed: {error}"
            made = self.total - len(self.waiting)
            print(f"{made}/{self.total}  {cell}: {came}; {self.left()}", file=sys.stderr, flush=True)

    def left(self) -> str:
        """Return the time left in words, by finished cells of the same task and arm, else of the task, else of any."""
        seconds = self._left()
        if seconds is None:
            return "time left: not known before one has ended"
        return "all are made" if not self.waiting else f"about {_spoken(seconds)} left"

    def _left(self) -> float | None:
        pace = [(time.monotonic() - self.begun[one]) / share for one, share in self.share.items() if share > 0]
        every = [seconds for known in self.took.values() for seconds in known] or pace
        if not every:
            return None
        rest = 0.0
        for digest, cell in self.waiting.items():
            task = [one for key, known in self.took.items() if key[0] == cell.task for one in known]
            rest += fmean(self.took.get(cell.key) or task or every) * (1 - self.share.get(digest, 0.0))
        return rest / self.workers

    def _draw(self) -> None:
        self.bar.n = self.total - len(self.waiting) + sum(self.share.values())
        self.bar.set_description_str(f"{self.name}, {self.total - len(self.waiting)} of {self.total}, {self.left()}")


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
