"""A thread that plays the next steps while the team learns, for `lab.overlap(clock="wall")`.

It makes the first three cells of a step, in the order of the steps, with snapshots of the weights. Leaves out: the
update and the tables of a run (`loop`), and the simulated clock (`overlap`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import pandas as pd

from mas_lab.policy import Policy
from mas_lab.recipes import Recipe
from mas_lab.team import Team


@dataclass(frozen=True)
class Played:
    """A step before its update."""

    turns: pd.DataFrame
    """The table with advantages."""
    recipe: Recipe
    """The recipe of the next step."""
    seconds: dict[str, float]
    """Seconds of each cell."""
    missing: int
    """Number of tasks that still lack a row to learn from."""
    known: int
    """Number of tasks that were played."""
    times: tuple[float, float] | None = None
    """Start and end of the rollout on the clock of `RolloutThread`. `None`: no thread played it."""


class RolloutThread:
    """Play steps in a thread, at most `staleness` beyond the updates, each with the newest weights when it starts.

    Args:
        play: Plays a step: (its number, recipe, team, version of the team's weights).
        recipe: The recipe of the next step.
        staleness: Number of steps that may be played before an update.
        steps: Number of the step before which the thread ends. `None`: it does not end by itself.
        seconds: Time of the clock at its start.

    Attributes:
        playing: A lock that the thread holds during a rollout. Hold it to play with the team yourself.
    """

    def __init__(
        self, play: Callable[[int, Recipe, Team, int], Played], recipe: Recipe, staleness: int, steps: int | None,
        seconds: float,
    ):  # fmt: skip
        self._play, self._recipe, self._staleness, self._steps = play, recipe, staleness, steps
        self._start = time.monotonic() - seconds
        self.playing = threading.Lock()
        self._thread, self._coming = ThreadPoolExecutor(1, "rollout"), deque[Future]()
        self._newest: tuple[Team, int] | None = None

    def now(self) -> float:
        """Return the seconds of the clock."""
        return time.monotonic() - self._start

    def begin(self, team: Team, done: int) -> None:
        """Start to play, when `done` steps are made."""
        self.publish(team, done)
        for step in range(done, done + self._staleness + 1):
            self._allow(step)

    def next(self) -> Played:
        """Return the next step, when it is played. An error of the thread is raised here."""
        return self._coming.popleft().result()

    def publish(self, team: Team, version: int) -> None:
        """Let the following rollouts sample with the present weights, which have the updates of `version` steps."""
        before = self._newest[0].policies if self._newest else {}
        now = {name: _snapshot(policy, before.get(name)) for name, policy in team.policies.items()}
        self._newest = team.played_by(now), version

    def after(self, done: int) -> None:
        """Let the thread play one step more, when `done` steps are made."""
        self._allow(done + self._staleness)

    def close(self) -> None:
        """End the thread, when the rollout in progress has ended."""
        self._thread.shutdown(cancel_futures=True)

    def _allow(self, step: int) -> None:
        if self._steps is None or step < self._steps:
            self._coming.append(self._thread.submit(self._rollout, step))

    def _rollout(self, step: int) -> Played:
        with self.playing:
            (team, version), start = self._newest, self.now()
            played = self._play(step, self._recipe, team, version)
            self._recipe = played.recipe
            return replace(played, times=(start, self.now()))


def _snapshot(policy: Policy, before: Policy | None) -> Policy:
    """Return a snapshot of the present weights, or the policy itself if its engine has no process of its own."""
    if not policy.capabilities.snapshots:
        return policy
    return before if before is not None and before.version == policy.version else policy.snapshot()
