"""The tasks of a step: drawn at random by the env, or by a curriculum that saw the results of earlier steps.

Leaves out: the number of rounds in a step (`progress`, by `Settings.rounds`).
"""

from collections.abc import Callable, Collection

import numpy as np

from mas_lab.cells.episode import RolloutError
from mas_lab.env import Env, EnvError, Task

Curriculum = Callable[[Env, int, str, int], list[Task]]
"""`curriculum(env, n, split, seed)` returns n tasks of `env`.

It is pure, as a part of a recipe is. One that learns is a frozen dataclass with a field `state` (plain data) and a
method `after(report)`, which returns the curriculum of the next step: `dataclasses.replace(self, state=...)`. The
report has no scores on held-out tasks, which are not for training.
"""


def step_seed(seed: int, step: int, round_: int = 0) -> int:
    """Return a seed for each (seed, step), and for each further round of tasks in that step."""
    words = [seed, step, round_] if round_ else [seed, step]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


def tasks_of(env: Env, n: int, split: str, seed: int) -> list[Task]:
    """Return `env.tasks(...)`; an error names the call, and anything that is no task is refused."""
    call = f"{type(env).__name__}.tasks({n}, {split!r}, seed={seed})"
    try:
        tasks = list(env.tasks(n, split, seed=seed))
    except EnvError:
        raise
    except Exception as error:
        raise RolloutError(f"train: {call} failed: {type(error).__name__}: {error}") from error
    strange = [task for task in tasks if not isinstance(task, Task)]
    if strange:
        raise EnvError(f"{call} gave {strange[0]!r:.200}; an env gives a list of lab.Task")
    return tasks


def drawn(
    env: Env, curriculum: Curriculum | None, n: int, split: str, seed: int, known: Collection[str] = ()
) -> list[Task]:
    """Return `n` tasks whose ids are not in `known`, the tasks that this step played before.

    Two tasks of one id would form one group.
    """
    total = n + len(known)
    tasks = (curriculum or tasks_of)(env, total, split, seed)
    different = len({task.id for task in tasks})
    if curriculum is not None and not different == len(tasks) == total:
        raise ValueError(
            f"train: {curriculum!r} gave {len(tasks)} tasks with {different} different ids, and n is {total}; a "
            "curriculum returns n different tasks: take them from env.tasks(...), with more of them if it chooses"
        )
    return [task for task in tasks if task.id not in known][:n]
