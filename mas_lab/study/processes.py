"""Run trainings side by side, each in a process with one torch thread and a progress bar.

By default there are as many at a time as cores. An interrupt ends all of them within a step, and none outlives the
process that started them. Leaves out: the training itself (`cell`, `demo.trials`).
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context, parent_process
from typing import Any

from mas_lab.backends.torch.threads import set_threads, usable_cores
from mas_lab.display.progress import no_bars, progress_bar

MOST = 8
"""Processes at a time. Each holds torch, which takes half a gigabyte."""


class Stopped(Exception):
    """Signal that a training must stop, because another one failed or the user pressed Ctrl-C."""


def side_by_side(
    jobs: Sequence[tuple[Any, ...]], workers: int | None = None, bars: "Bars | None" = None
) -> Iterator[Any]:
    """Yield the result of each job in the order in which jobs end; they start in the given order.

    A job `(function, *arguments)` runs as `function(*arguments, tell=...)`. `workers` is the number of processes at a
    time, see `at_a_time`.

    The function must be defined at the top of a module, and its arguments and result must be picklable. It must call
    `tell(name, done, total)` often. This call moves its bar in `bars`, and raises `Stopped` if the job must stop.
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
    """Return the number of processes: `workers`, or one per usable core up to `MOST`; never more than `jobs`."""
    return min(workers or min(usable_cores(), MOST), jobs)


class Bars:
    """A progress bar per training, from its first step to its last."""

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
    """Set up a new process: ignore interrupts, which the parent handles, and end with the parent."""
    global _told, _stop
    _told, _stop = told, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_threads(1)


def _end_with_parent() -> None:
    """End with the parent; its id is checked too, since a fork of it may hold open the pipe that signals its end."""
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
