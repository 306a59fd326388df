"""The bars of a notebook's cell: they share one output, which ends as a line that tells what was done.

So a stored notebook has that line, where a bar would be dead. Core displays alone, no widget. Leaves out: who watches
(`progress`).
"""

import html
import sys
import time
from typing import Any

DELAY, PAUSE = 0.5, 0.25
"""Seconds before a bar appears, and between two drawings of a cell's bars."""


class CellBar:
    """A bar of the cell that runs; what of tqdm is used here.

    One that is opened while another is open shows as long as it moves: the line of the outer one covers what it did.
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
        """Stands behind the numbers, in the line that is left too."""
        self.told = told
        self.update(0)

    def close(self) -> None:
        if self._cell is not None:
            self._cell.remove(self, tells=not self._is_inner)
            self._cell = None

    def _follow(self) -> None:
        """A generator may be asked for more by a later cell, which shows it from then on."""
        cell = Cell.that_runs()
        if cell is not self._cell:
            self._cell.remove(self, tells=True)
            self._cell, self._is_inner = cell, cell.add(self)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def line(self) -> str:
        """How far it is."""
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
        """(what, unit): how many of how many, in how many seconds, what else is told. Those of one name add up."""

    @classmethod
    def that_runs(cls) -> "Cell":
        key = _request()
        if cls._last is None or cls._last._key != key:
            cls._last = cls(key)
        return cls._last

    def add(self, bar: CellBar) -> bool:
        """Is another bar open already?"""
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
    """What tells one run of a cell from another: the request that it answers."""
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
