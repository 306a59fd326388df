"""What a training step is made of, beside the recipe.

Leaves out: the step itself (`loop`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import cos, pi
from typing import Any

from mas_lab.cells.update import require_max_norm
from mas_lab.backends.workers import require_limit

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: max(0.0, 1.0 - done),
    "cosine": lambda done: 0.5 * (1.0 + cos(pi * min(1.0, done))),
}


@dataclass(frozen=True)
class Settings:
    """What a training step is made of, beside the recipe. Recorded with a run; a resumed run must ask for the same,
    but for `save_every`, `workers`, `step_timeout`, `check` and those of held-out scores, which do not change its
    training."""

    tasks: int = 32
    """Tasks per step, drawn afresh by (seed, step); with `rounds`, those of which the recipe's `select` marks a row."""
    split: str = "train"
    rounds: int = 1
    """At most so many draws of tasks a step: each draws as many new ones as are still missing (dynamic sampling, DAPO,
    arXiv 2503.14476, which draws whole batches and drops what is too much). Every row that was sampled stays in the
    table and counts in its tokens and scores."""
    epochs: int = 1
    """Passes over the batch."""
    minibatches: int = 1
    """Optimizer steps per pass."""
    max_norm: float | None = 1.0
    """Gradient clipping, per policy."""
    nonfinite: str = "raise"
    """"raise", or "skip" the optimizer step and record it."""
    schedule: str = "constant"
    """Of the learning rate: constant, linear, cosine; the last two fall to 0 at `horizon`."""
    horizon: int | None = None
    """Steps until the schedule ends. Not `steps`, which may grow when a run is resumed."""
    max_turns: int | None = None
    workers: int | None = None
    """Threads for `env.step`."""
    step_timeout: float | None = None
    """Seconds that a step in one of them may take: one that takes longer ends the training, with a checkpoint."""
    save_every: int = 10
    """Steps between checkpoints; one more is made wherever the training stops, by an error or an interrupt too. Only
    where it stops between the optimizer steps of one update does it go on from the newest one."""
    check: bool = True
    """Play a few tasks through `check_env` first."""
    score_every: int | None = None
    """Steps between scores on held-out tasks; also before the first step and after the last. None: no scores, but for
    those of `score_at`."""
    score_at: Sequence[int] = ()
    """Counts of sampled tokens, each scored after the step that reaches it; also before the first step and after the
    last."""
    score_tasks: int = 64
    """Held-out tasks (split "test") that are played for a score, drawn once by the run's seed."""
    score_episodes: int = 4
    """Episodes of each of them."""
    score_seed: int | None = None
    """Of those tasks and of what is drawn on them. None: the run's seed, so that they vary with it."""

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise ValueError(f"train: schedule={self.schedule!r}; known are {', '.join(SCHEDULES)}")
        if self.schedule != "constant" and self.horizon is None:
            raise ValueError(f"train: schedule={self.schedule!r} wants horizon=, the step at which it ends")
        require_max_norm(self.max_norm, "train")
        require_limit(self.step_timeout, self.workers, "train")
        if self.nonfinite not in ("raise", "skip"):
            raise ValueError(f"train: nonfinite={self.nonfinite!r}; known are raise, skip")
        for name in ("tasks", "rounds", "epochs", "minibatches", "save_every", "horizon", "max_turns", "workers",
                     "score_every", "score_tasks", "score_episodes"):  # fmt: skip
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"train: {name}={getattr(self, name)} must be 1 or more")
        if any(not isinstance(count, int) or count < 1 for count in self.score_at):
            raise ValueError(f"train: score_at={self.score_at!r}; give counts of tokens, whole numbers of 1 or more")

    def lr_scale(self, step: int) -> float:
        return SCHEDULES[self.schedule](step / self.horizon if self.horizon else 0.0)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Settings":
        known = [f.name for f in fields(cls)]
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(f"train: unknown setting {unknown[0]!r}; known are {', '.join(known)}")
        return cls(**options)
