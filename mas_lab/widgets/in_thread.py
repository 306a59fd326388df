"""Run a training in a thread until it ends, fails, or is stopped.

This module leaves out a training step (`train`), and the display of a training (`dashboard`).
"""

import contextvars
import threading
import time
from collections.abc import Generator
from typing import ClassVar, Self

import pandas as pd

from mas_lab.team import Team
from mas_lab.train import Report
from mas_lab.train.held_out import heard_by


class InThread:
    """Base class of a training in a thread: `.stop()`, `.wait()`, `.running` and `.error`.

    `_start` begins the training. A subclass decides what happens with its steps. The thread calls `_take`, `_hear`,
    `_close` and `_end`; `stop` calls `_tell`.
    """

    _under_way: ClassVar[set["InThread"]] = set()

    def __init__(self, team: Team):
        self._refuse_a_team_in_training(team)
        self._team = team
        self.error: BaseException | None = None
        """Exception that ended the training; `None` if it ended by its last step or by a stop."""
        self._asked_to_stop, self._ended, self._outcome = threading.Event(), threading.Event(), ""

    def _refuse_a_team_in_training(self, team: Team) -> None:
        models = {id(policy.model) for policy in team.policies.values()}
        for other in self._under_way:
            if models & {id(policy.model) for policy in other._team.policies.values()}:
                raise RuntimeError(
                    f"{type(self).__name__}: this team is being trained by {other!r}; call its .stop() and .wait() "
                    "first, or load a team of its own"
                )

    def _start(self, training: Generator[Report]) -> None:
        self._under_way.add(self)
        # The copied context sends the thread's output to this cell.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work, training), name="mas_lab training", daemon=True).start()

    def _work(self, training: Generator[Report]) -> None:
        try:
            with heard_by(self._hear):
                for report in training:
                    self._take(report)
                    if self._asked_to_stop.is_set():
                        break
        except BaseException as error:  # `wait` raises it again
            self.error = error
        try:
            training.close()  # writes a checkpoint
            self._close()
        except BaseException as error:
            self.error = self.error or error
        self._under_way.discard(self)
        self._outcome = "ended" if self.error is None else "failed"
        try:
            self._end()
        finally:
            self._ended.set()

    def stop(self) -> None:
        """End training after the current step.

        The call returns at once. Use `wait()` to wait for the end.
        """
        self._asked_to_stop.set()
        if not self._outcome:
            self._tell()

    def wait(self, timeout: float | None = None) -> Self:
        """Wait until training has ended, or until the time is over.

        An interrupt of the kernel stops training after the current step.

        Args:
            timeout: Seconds to wait at most. `None` waits without a limit.

        Returns:
            This object.

        Raises:
            BaseException: The error that ended the training, if there was one.
        """
        until = None if timeout is None else time.monotonic() + timeout
        try:
            self._wait(until)
        except KeyboardInterrupt:
            self.stop()
            self._wait(until)
        if not self.running and self.error is not None:
            raise self.error
        return self

    def _wait(self, until: float | None) -> None:
        while not self._ended.wait(0.2):  # in slices, because Windows cannot interrupt an endless wait
            if until is not None and time.monotonic() > until:
                return

    @property
    def running(self) -> bool:
        """Return whether training is still running."""
        return not self._ended.is_set()

    @property
    def _state(self) -> str:
        """Return "running", "stopping", "ended" or "failed"."""
        return self._outcome or ("stopping" if self._asked_to_stop.is_set() else "running")

    # Hooks for subclasses

    def _take(self, report: Report) -> None:
        """Handle the report of a completed step."""

    def _hear(self, done: int, scores: pd.DataFrame | None) -> None:
        """Handle scores on held-out tasks, after `done` steps.

        `scores` is `None` when scoring begins. It is a table when scoring is done and no report is about to bring it.
        """

    def _close(self) -> None:
        """Finish after the last step, when the run is written; an error raised here counts as the training's."""

    def _end(self) -> None:
        """Handle the end or the failure of training, just before `wait` returns."""

    def _tell(self) -> None:
        """Handle a request to stop."""
