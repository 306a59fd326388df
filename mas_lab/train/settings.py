"""Settings of a training step besides the recipe.

Leaves out: the step itself (`loop`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mas_lab.arguments import ArgumentError, check_arguments
from mas_lab.cells.update import require_max_norm

MOST_TASKS = 100_000
"""More tasks in one step are a slip: they would be drawn for minutes before the first answer."""


@dataclass(frozen=True)
class Settings:
    """Settings of a training step besides the recipe.

    They are recorded with a run, and a resumed run must have the same ones. Only `save_every`, `workers`,
    `check` and the settings of held-out scores may differ, because they do not change the training.

    Raises:
        ValueError: A setting is out of range.
    """

    tasks: int = 32
    """Tasks per step, drawn anew by (seed, step). With `rounds`, tasks of which the recipe's `select` marks a row."""
    rounds: int = 1
    """Most draws of tasks in a step. Each draw plays as many new tasks as are still missing (dynamic sampling; DAPO,
    arXiv 2503.14476, draws whole batches and drops the surplus). Every sampled row stays in the table and counts in its
    tokens and scores."""
    epochs: int = 1
    """Passes over the batch."""
    minibatches: int = 1
    """Optimizer steps per pass."""
    max_norm: float | None = 1.0
    """Bound of each policy's gradient norm. `None`: no clipping."""
    schedule: int | Callable[[int], float] | None = None
    """Schedule of the learning rate: a number of steps in which it falls linearly to 0, or a function that returns the
    rate's factor in a step, counted from 0. It does not follow `steps`, which may grow when a run is resumed. `None`:
    the rate is constant."""
    learn: Mapping[int, Sequence[str]] | None = None
    """Stagewise training: the agents that learn from a step on. `{0: ["solver"], 20: ["solver", "verifier"]}`: the
    solver alone in the first 20 steps, then both. `None`: all agents that are not frozen."""
    staleness: int = 0
    """Asynchronous training: the weights after k - `staleness` steps sample the rollout of step k, those after none the
    first rollouts. A vLLM server then samples while the team learns (docs/gpus.md). 0: the newest weights sample."""
    max_turns: int | None = None
    """Bound on the turns of one agent, in rollouts and in scores. `None`: the bound of the environment."""
    workers: int | None = None
    """Threads for `env.step`. `None`: no threads."""
    save_every: int = 10
    """Steps between checkpoints. One more is made where the training stops, also by an error or an interrupt. That is
    impossible between the optimizer steps of one update; the run then goes on from the newest checkpoint."""
    check: bool = True
    """Play a few tasks through `check_env` first."""
    score_every: float | None = None
    """Steps between scores on held-out tasks; they are also scored before the first step and after the last. A number
    below 1 is a share of the budget: 0.25 scores after each quarter of it. `None`: only the scores of `score_at`."""
    score_at: Sequence[int] = ()
    """Counts of sampled tokens. Each one is scored after the step that reaches it; there are also scores before the
    first step and after the last."""
    score_tasks: int = 64
    """Number of held-out tasks (split "test") in a score, drawn once by the run's seed."""
    score_episodes: int = 4
    """Episodes of each held-out task."""

    def __post_init__(self):
        counts = ("tasks", "rounds", "epochs", "minibatches", "save_every", "schedule", "max_turns", "workers",
                  "score_tasks", "score_episodes")  # fmt: skip
        check_arguments(Settings, vars(self), "train", staleness=0, **dict.fromkeys(counts, 1))
        for name, value in vars(self).items():
            if isinstance(value, np.generic):  # run.json holds plain numbers
                object.__setattr__(self, name, value.item())
        if self.tasks > MOST_TASKS:
            raise ValueError(f"train: tasks={self.tasks} in one step; give at most {MOST_TASKS}")
        if self.learn is not None and min(self.learn, default=None) != 0:
            raise ValueError(f"train: learn={self.learn!r}; say who learns from step 0 on, such as {{0: ['solver']}}")
        require_max_norm(self.max_norm, "train")
        every = self.score_every
        if every is not None and not (0 < every < 1 or (every >= 1 and every % 1 == 0)):
            raise ValueError(f"train: score_every={every!r} is no number of steps (1 or more) and no share below 1")
        if any(count < 1 for count in self.score_at):
            raise ValueError(f"train: score_at={self.score_at!r}; give counts of tokens, whole numbers of 1 or more")

    def learning(self, step: int) -> Sequence[str] | None:
        """Return the names of the agents that learn in a step, counted from 0; `None`: all that are not frozen."""
        return self.learn and self.learn[max(start for start in self.learn if start <= step)]

    def lr_scale(self, step: int) -> float:
        """Return the factor of the learning rate in a step."""
        if callable(self.schedule):
            return float(self.schedule(step))
        return 1.0 if self.schedule is None else max(0.0, 1.0 - step / self.schedule)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Settings":
        """Return settings from values by field name; raise ArgumentError if a name is no setting."""
        if unknown := options.keys() - cls.__annotations__.keys():
            where = {"sampling": "; sampling belongs to the team: team.with_sampling(...)", "lr": "; see load_policy"}
            other, known = where.get(min(unknown), ""), ", ".join(cls.__annotations__)
            raise ArgumentError(f"train: unknown setting {min(unknown)!r}; known are {known}{other}")
        return cls(**options)
