"""Run jobs side by side, each in a process with one torch thread.

The processes are those of loky: jobs may use functions and classes that a notebook defines. A process that dies costs
the job that it runs, and no other. An interrupt ends all processes, and none outlives the one that started them. Leaves
out: the training itself (`cell`, `demo.trials`).
"""

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import loky
import psutil
from tqdm import tqdm

from mas_lab.backends.torch.threads import set_threads
from mas_lab.display.progress import no_bars, progress_bar

Job = tuple[Any, ...]
_silence = no_bars()
warnings.filterwarnings("ignore", "A worker was restarted")  # after a job with a large model, and no job is lost


def side_by_side(jobs: Sequence[Job], workers: int | None = None) -> Iterator[Any]:
    """Yield the result of each job as in `ended_jobs`; the first error ends all of them."""
    for _, future in ended_jobs(jobs, workers):
        yield future.result()


def ended_jobs(
    jobs: Sequence[Job], workers: int | None = None, name: str = "trainings"
) -> Iterator[tuple[Job, Future]]:
    """Yield each job with its ended future, in the order in which jobs end; they start in the given order.

    A job `(function, *arguments)` runs as `function(*arguments)`. `future.result()` is what it returned, or raises what
    it raised: `BrokenProcessPool` if its process died. `workers` is the number of processes at a time. The default is
    one per core. One bar, which is called `name`, counts the jobs.
    """
    waiting, running = list(reversed(jobs)), {}
    idle = [_process() for _ in range(min(workers or loky.cpu_count(), len(jobs)))]
    try:
        with progress_bar(len(jobs), name, "done") as bar:
            while waiting or running:
                while waiting and idle:
                    job, process = waiting.pop(), idle.pop()
                    running[process.submit(*job)] = job, process
                for future in wait(running, timeout=1, return_when=FIRST_COMPLETED).done:
                    job, process = running.pop(future)
                    idle.append(_process() if isinstance(future.exception(), BrokenProcessPool) else process)
                    bar.update()
                    yield job, future
                bar.refresh()
    finally:
        for process in [*idle, *(process for _, process in running.values())]:
            process.shutdown(kill_workers=True)


def _process() -> loky.ProcessPoolExecutor:
    """Return an executor of a single process, so that a process that dies breaks no other job."""
    return loky.ProcessPoolExecutor(1, initializer=_begin, initargs=(os.getpid(),))


def _begin(parent: int) -> None:
    """Set up a new process: it ignores interrupts, prints nothing about trainings, and ends with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with, args=(psutil.Process(parent),), daemon=True).start()
    _silence.__enter__()
    tqdm.set_lock(threading.RLock())  # its own is a semaphore of the system, which a killed process would leak
    set_threads(1)


def _end_with(parent: psutil.Process) -> None:
    while parent.is_running() and parent.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.5)
    os._exit(1)
