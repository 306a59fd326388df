"""A training in a thread of its own: its steps are taken until it ends, fails, or is asked to stop.

Leaves out: what a step is (`train`), and what is shown of it (`dashboard`).
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
    """`.stop()`, `.wait()`, `.running` and `.error` of a training that `_start` begins; what is made of its steps is a
    subclass's: `_take`, `_hear`, `_close` and `_end`, which the thread calls, and `_tell`."""

    _under_way: ClassVar[set["InThread"]] = set()

    def __init__(self, team: Team):
        self._refuse_a_team_in_training(team)
        self._team = team
        self.error: BaseException | None = None
        """What ended the training, if it was not its last step or a stop."""
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
        # The copied context sends what the thread prints and draws to this cell.
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(self._work, training), name="mas_lab training", daemon=True).start()

    def _work(self, training: Generator[Report]) -> None:
        try:
            with heard_by(self._hear):
                for report in training:
                    self._take(report)
                    if self._asked_to_stop.is_set():
                        break
        except BaseException as error:  # whatever it is, `wait` raises it
            self.error = error
        try:
            training.close()  # leaves a checkpoint
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
        """End training after the current step. Returns at once; `wait()` for the end."""
        self._asked_to_stop.set()
        if not self._outcome:
            self._tell()

    def wait(self, timeout: float | None = None) -> Self:
        """Until training has ended, or `timeout` seconds have gone by; raises what ended it, if that was an error."""
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
        while not self._ended.wait(0.2):  # in slices, since Windows interrupts no endless wait
            if until is not None and time.monotonic() > until:
                return

    @property
    def running(self) -> bool:
        return not self._ended.is_set()

    @property
    def _state(self) -> str:
        """One of "running", "stopping", "ended" and "failed"."""
        return self._outcome or ("stopping" if self._asked_to_stop.is_set() else "running")

    # What a subclass makes of it

    def _take(self, report: Report) -> None:
        """A step is done."""

    def _hear(self, done: int, scores: pd.DataFrame | None) -> None:
        """Held-out tasks are being scored after `done` steps, or just were, and no report is about to say so."""

    def _close(self) -> None:
        """No step comes any more, and what a run keeps is written; an error raised here counts as the training's."""

    def _end(self) -> None:
        """It has ended or failed, and whoever waits is about to be told."""

    def _tell(self) -> None:
        """It was asked to stop."""
