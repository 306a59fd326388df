"""Keep the tables and checkpoints of a training, and go on from them.

Leaves out: the files (`runs.recorder`).
"""

import copy
import warnings
from typing import Any

from mas_lab.locks import locked
from mas_lab.policy import NotFiniteError
from mas_lab.runs.recorder import Recorder
from mas_lab.train.budget import Usage
from mas_lab.train.hooks import Hook
from mas_lab.train.progress import Progress
from mas_lab.train.record import describe_training
from mas_lab.train.report import Report
from mas_lab.train.staleness import forget_versions


class Keeping(Hook):
    """The hook that keeps a run. `ranks`: number of processes that train together."""

    def __init__(self, recorder: Recorder, ranks: int = 1):
        self.recorder, self.ranks = recorder, ranks
        self.kept: tuple[int, list[int]] | None = None
        """Number of steps whose tables are kept, and the versions of the learning policies after them."""
        self.watched: Any = None
        """The state of the watch after these steps; `None` if it has none."""

    def begin(self, now: Progress) -> None:
        """Begin the run, or continue it where it stopped, with the number of torch threads that it recorded.

        Several ranks get their number of threads from their launcher.
        """
        from mas_lab.backends.torch.threads import take_threads

        recorder = self.recorder
        config = describe_training(now, self.ranks)
        if self.ranks == 1:
            config["threads"] = recorder.recorded_threads() or config["threads"]
        now.done, states = recorder.begin(config, now.team, now.watch, now.states)
        now.restore(states)
        if now.budget or now.settings.score_at:
            now.usage = Usage.of(recorder)
        if self.ranks == 1:
            take_threads(config["threads"], str(recorder.folder))
        if not now.settings.staleness:
            forget_versions(now.team)  # of the run that was forked
        self._note(now)
        if now.done and now.ended:
            reason = (
                f"{now.done} of {now.steps} steps"
                if now.steps is not None and now.done >= now.steps
                else "its budget is used up"
            )
            warnings.warn(
                f"train: the run {recorder.folder} is already complete: {reason}; nothing is trained. Pass more steps, "
                "or keep the new run in another folder", stacklevel=3,
            )  # fmt: skip

    def after(self, now: Progress, report: Report) -> Report:
        self.recorder.tables(report.step, report.turns, report.stats)
        self._note(now)
        if now.done % now.settings.save_every == 0 or now.ended:
            self._save(now)
        return report

    def stop(self, now: Progress, error: BaseException) -> None:
        """Save a checkpoint after an error if the weights are those after the last step whose tables are kept.

        That is so during rollout, scores and advantages, and in an update until the first policy steps; a watch that
        saw gradients of this update is set back. Between two optimizer steps of an update, and before its tables are
        kept, no checkpoint is possible; the run then goes on from the newest one. Weights that cannot be sampled from
        are not kept.
        """
        try:
            if not isinstance(error.__cause__, NotFiniteError):
                self._save(now)
        except Exception as failed:
            if isinstance(error, GeneratorExit):
                raise
            error.add_note(f"mas_lab: no checkpoint of step {now.done} was kept: {type(failed).__name__}: {failed}")

    def finish(self) -> None:
        self.recorder.end()

    def _note(self, now: Progress) -> None:
        self.kept, watch = (now.done, now.versions), now.watch
        if hasattr(watch, "state") and hasattr(watch, "load_state"):
            self.watched = copy.deepcopy(watch.state())

    def _save(self, now: Progress) -> None:
        """Save a checkpoint, unless another training has used the folder or the team since the last step."""
        if self.recorder.is_writing:
            with locked(now.team.policies.values()):
                if self.kept == (now.done, now.versions):
                    if self.watched is not None:
                        now.watch.load_state(copy.deepcopy(self.watched))
                    self.recorder.save(now.done, now.team, now.watch, now.states)
