"""Draw the progress bars of a notebook's cell in one output, which ends as a line that says what was done.

So a stored notebook has that line, where a widget's bar would be dead. Only IPython's core displays are used, no
widget. Leaves out: the choice of the bar (`progress`).
"""

import html
import sys
import time
from typing import Any

DELAY, PAUSE = 0.5, 0.25
"""Seconds before a bar appears, and between two drawings of a cell's bars."""


class CellBar:
    """A progress bar of the running cell, with the part of tqdm's interface that we use.

    A bar that is opened while another is open disappears when it closes; the line of the outer bar covers its work.
    """

    disable = False

    def __init__(self, total: int | None, description: str, unit: str, even: bool = False):
        self.name, self.unit, self.total, self.even, self.n = description, unit, total, even, 0
        self.description, self.told, self.began = description, "", time.monotonic()
        self._cell = Cell.that_runs()
        self._is_inner = self._cell.add(self)

    def __enter__(self) -> "CellBar":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def update(self, n: int = 1) -> None:
        self.n += n
        if self._cell is not None:
            self._follow()
            self._cell.draw_if_due()

    def set_description_str(self, description: str) -> None:
        self.description = description
        self.update(0)

    def set_postfix_str(self, told: str) -> None:
        """Set the text after the numbers, which also stays in the final line."""
        self.told = told
        self.update(0)

    def close(self) -> None:
        if self._cell is not None:
            self._cell.remove(self, tells=not self._is_inner)
            self._cell = None

    def _follow(self) -> None:
        """Move this bar to the running cell, because a later cell may continue a generator."""
        cell = Cell.that_runs()
        if cell is not self._cell:
            self._cell.remove(self, tells=True)
            self._cell, self._is_inner = cell, cell.add(self)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def line(self) -> str:
        """Return the progress as text."""
        of = f" of {self.total:,.0f}" if self.total else ""
        left = ""
        if self.even and self.total and self.n:
            left = f", about {_spoken(self.seconds * (self.total - self.n) / self.n)} left"
        told = f", {self.told}" if self.told else ""
        return f"{self.description}: {_many(self.n, self.unit, of)}, {_spoken(self.seconds)}{left}{told}"

    @property
    def html(self) -> str:
        share = f' value="{self.n}" max="{self.total}"' if self.total else ""
        return f"<progress{share}></progress> {html.escape(self.line)}"


class Cell:
    """The output that the bars of one run of a notebook's cell share."""

    _last: "Cell | None" = None

    def __init__(self, key: Any):
        self._key, self._bars, self._handle, self._due = key, [], None, 0.0
        self._done: dict[tuple[str, str], list[Any]] = {}
        """(name, unit) -> [count, total, seconds, text] of closed bars; the numbers of equal keys are added up."""

    @classmethod
    def that_runs(cls) -> "Cell":
        key = _request()
        if cls._last is None or cls._last._key != key:
            cls._last = cls(key)
        return cls._last

    def add(self, bar: CellBar) -> bool:
        """Add a bar; return True if another bar is open already."""
        self._bars.append(bar)
        return len(self._bars) > 1

    def draw_if_due(self) -> None:
        now = time.monotonic()
        if self._bars and now >= self._due and now - self._bars[0].began >= DELAY:
            self._show()
            self._due = time.monotonic() + PAUSE

    def remove(self, bar: CellBar, tells: bool) -> None:
        self._bars.remove(bar)
        if tells:
            known = self._done.setdefault((bar.name, bar.unit), [0, 0, 0.0, ""])
            known[:] = known[0] + bar.n, known[1] + (bar.total or bar.n), known[2] + bar.seconds, bar.told
        if self._handle is not None or (tells and bar.seconds >= DELAY):
            self._show()

    def _show(self) -> None:
        from IPython.display import display

        done = [_done(*what, *known) for what, known in self._done.items()]
        bundle = {"text/plain": "; ".join([*done, *(bar.line for bar in self._bars)])}
        if self._bars:
            shown = "<br>".join([*map(html.escape, done), *(bar.html for bar in self._bars)])
            bundle["text/html"] = f'<div class="tex2jax_ignore mathjax_ignore">{shown}</div>'
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def _request() -> Any:
    """Return the id of the request that the running cell answers; it differs for each run of a cell."""
    shell = sys.modules["IPython"].get_ipython()
    parent = shell.kernel.get_parent() if hasattr(shell.kernel, "get_parent") else {}
    return parent.get("header", {}).get("msg_id", shell.execution_count)


def _done(name: str, unit: str, done: float, total: float, seconds: float, told: str) -> str:
    of = "" if done == total else f" of {total:,.0f}"
    return f"{name}: {_many(done, unit, of)}, {_spoken(seconds)}" + (f", {told}" if told else "")


def _many(count: float, unit: str, of: str = "") -> str:
    plural = "" if unit.endswith("s") or not unit or (count == 1 and not of) else "s"
    return f"{count:,.0f}{of} {unit}{plural}".rstrip()


def _spoken(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
