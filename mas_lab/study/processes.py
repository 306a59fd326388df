"""Trainings side by side: a process and one torch thread each, as many at a time as there are cores; a bar for each.

An interrupt ends all of them within a step, and none outlives the process that started them. Leaves out: what is
trained (`trials`).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from typing import Any

from mas_lab.backends.torch.threads import set_threads, usable_cores
from mas_lab.progress import no_bars, progress_bar

MOST = 8
"""Processes at a time: each holds torch, half a gigabyte."""


class Stopped(Exception):
    """Another training failed, or somebody pressed Ctrl-C."""


def side_by_side(
    jobs: Sequence[tuple[Any, ...]], workers: int | None = None, bars: "Bars | None" = None
) -> Iterator[Any]:
    """What `function(*arguments, tell=...)` returns for each job `(function, *arguments)`, in the order in which they
    end; they start in the order given. `workers`: processes at a time, see `at_a_time`.

    A function stands at the top of a module, and its arguments and result can be pickled. It calls
    `tell(name, done, total)` often: that moves its bar in `bars`, and is where it is stopped.
    """
    context = get_context("spawn")
    told, stop = context.SimpleQueue(), context.Event()
    count = at_a_time(len(jobs), workers)
    with ProcessPoolExecutor(count, context, _begin, (told, stop)) as pool, bars or Bars() as bars:
        waiting = {pool.submit(_work, *job) for job in jobs}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                while not told.empty():
                    bars.move(*told.get())
                for future in done:
                    yield future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def at_a_time(jobs: int, workers: int | None = None) -> int:
    """How many processes run `jobs`: as asked, or one per usable core, at most `MOST`, and none in vain."""
    return min(workers or min(usable_cores(), MOST), jobs)


class Bars:
    """A bar per training, from its first step to its last."""

    def __init__(self):
        self._open: dict[str, Any] = {}

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *error) -> None:
        for bar in self._open.values():
            bar.close()

    def move(self, name: str, done: int, total: int) -> None:
        if name not in self._open:
            self._open[name] = progress_bar(total, name, "", even=True)
        bar = self._open[name]
        bar.update(done - bar.n)
        if done == total:
            self._open.pop(name).close()


_told, _stop = None, None


def _begin(told, stop) -> None:
    """In a new process: interrupts are its parent's matter, whose end is its own."""
    global _told, _stop
    _told, _stop = told, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads(1)


def _end_with_parent() -> None:
    """The system says whose child this is: a fork of the parent, which outlives it, holds what tells of its end."""
    parent = parent_process()
    while parent.is_alive() and os.getppid() == parent.pid:
        parent.join(0.5)
    os._exit(1)


def _work(function: Callable, *arguments: Any) -> Any:
    with no_bars():
        return function(*arguments, tell=_tell)


def _tell(name: str, done: int, total: int) -> None:
    if _stop.is_set():
        raise Stopped(name)
    _told.put((name, done, total))
