"""Threads: workers that step an environment, and policies on several devices that train at the same time.

Leaves out: what a step is, and which policies are trained (`cells`).
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from math import inf
from numbers import Real
from queue import SimpleQueue
from threading import Thread
from typing import Any

from mas_lab.locks import locked
from mas_lab.policy import Policy

SLICE = 0.2
"""Seconds of one wait. Windows cannot interrupt an endless wait, and late steps are looked for after each wait."""


def require_limit(step_timeout: Any, workers: int | None, cell: str) -> None:
    """Raise ValueError, naming the `cell`, for a limit that is not a number of seconds above 0 or lacks workers."""
    if step_timeout is None:
        return
    if isinstance(step_timeout, bool) or not isinstance(step_timeout, Real) or not 0 < step_timeout < inf:
        raise ValueError(f"{cell}: step_timeout={step_timeout!r}; give seconds above 0, or None for no limit")
    if not workers:
        raise ValueError(
            f"{cell}: step_timeout={step_timeout} needs workers: a step in the caller's own thread cannot be left "
            "behind; pass workers=1 or more"
        )


class Job(Future):
    """One step, and its times from the moment when a worker began it. Without a `limit` it is never late."""

    def __init__(self, work: Callable[[], Any], limit: float | None):
        super().__init__()
        self.work, self.limit = work, inf if limit is None else limit
        self.since = self.until = inf

    @property
    def late(self) -> bool:
        """Return True if the step takes, or took, longer than its limit."""
        return min(self.until, time.monotonic()) - self.since > self.limit

    def answer(self) -> Any:
        """Return the result of `work`, or raise its error; raise TimeoutError if it is late, even if it has ended."""
        if self.late:
            raise TimeoutError(
                f"no answer within step_timeout={self.limit} seconds; its thread is left to itself, and a late answer "
                "is not taken. Raise the limit, or give step one of its own that ends what hangs in it"
            )
        return self.result()

    def run(self) -> None:
        if self.set_running_or_notify_cancel():
            self.since = time.monotonic()
            try:
                answer, error = self.work(), None
            except BaseException as raised:
                answer, error = None, raised
            self.until = time.monotonic()
            self.set_result(answer) if error is None else self.set_exception(error)


class Workers:
    """A pool of `count` daemon threads that step an environment, each step within `limit` seconds if there is one.

    Python cannot end a thread from outside. So a thread that hangs is abandoned: unlike with an executor, neither a
    rollout nor the interpreter waits for it at the end, and a late answer is dropped.
    """

    def __init__(self, count: int, limit: float | None = None):
        self.count, self.limit = count, limit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = 0

    def close(self) -> None:
        """Cancel the steps that have not begun; idle threads end now, and a busy thread ends after its step."""
        while not self._jobs.empty():
            self._jobs.get().cancel()
        for _ in range(self._started):
            self._jobs.put(None)

    def submit(self, work: Callable[[], Any]) -> Job:
        job = Job(work, self.limit)
        self._jobs.put(job)
        if self._started < self.count:
            self._started += 1
            Thread(target=self._work, name=f"mas_lab step {self._started}", daemon=True).start()
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()


def ended(jobs: Collection[Job], first: bool = False, patience: float = inf) -> list[Job]:
    """Wait, then return the jobs that have ended or are late, in their order.

    The wait ends when all jobs have ended (or one, with `first`), when a job is late, or after `patience` seconds.
    """
    until = time.monotonic() + patience
    while True:
        seconds = max(0.0, min(SLICE, until - time.monotonic()))
        running = wait(jobs, seconds, FIRST_COMPLETED if first else ALL_COMPLETED).not_done
        late = [job for job in running if job.late]
        if late or not running or (first and len(running) < len(jobs)) or time.monotonic() >= until:
            return [job for job in jobs if job not in running or job in late]


def worker_threads(count: int | None, limit: float | None = None) -> AbstractContextManager[Workers | None]:
    """Return a context with `count` workers, or a context with `None` if `count` is `None` or 0."""
    return closing(Workers(count, limit)) if count else nullcontext()


@contextmanager
def training(policies: Sequence[Policy]) -> Iterator[Callable[[Callable, Iterable[Any]], Iterable[None]]]:
    """Keep other threads off the models of `policies`, and yield a map over the steps that train them.

    It is `map` if all policies are on one device. Else it uses a thread per device, in which the steps of that device
    are done one after the other. A step is anything with a `policy`.
    """
    with locked(policies, training=True):
        devices = {policy.capabilities.device for policy in policies}
        if len(devices) < 2:
            yield map
            return
        with ThreadPoolExecutor(len(devices)) as pool:
            yield partial(_side_by_side, pool)


def _side_by_side(pool: ThreadPoolExecutor, function: Callable[[Any], None], steps: Iterable[Any]) -> list[Any]:
    by_device: dict[str, list[Any]] = {}
    for step in steps:
        by_device.setdefault(step.policy.capabilities.device, []).append(step)
    return list(pool.map(lambda own: list(map(function, own)), by_device.values()))
