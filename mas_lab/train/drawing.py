"""Which tasks a step plays: drawn by the env at random, or by a curriculum that saw how the last step went.

Leaves out: how many rounds of them a step draws (`loop`, by `Settings.rounds`).
"""

from collections.abc import Callable, Collection

import numpy as np

from mas_lab.cells.episode import RolloutError
from mas_lab.env import Env, EnvError, Task

Curriculum = Callable[[Env, int, str, int], list[Task]]
"""`curriculum(env, n, split, seed)` gives n tasks of `env`, a function of its arguments and of what it remembers.

If it has `see(report)`, it is told of each step when it is done, before its scores on held-out tasks, which are not to
train by. If it has `state()` and `load_state(state)`, what it remembers is kept with the run.
"""


def step_seed(seed: int, step: int, round_: int = 0) -> int:
    """A seed of its own for each (seed, step), and for each further round of tasks in that step."""
    words = [seed, step, round_] if round_ else [seed, step]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint32)[0])


def tasks_of(env: Env, n: int, split: str, seed: int) -> list[Task]:
    """`env.tasks`. What it raises is named by what it was asked for, what are no tasks are refused."""
    asked = f"{type(env).__name__}.tasks({n}, {split!r}, seed={seed})"
    try:
        tasks = list(env.tasks(n, split, seed=seed))
    except EnvError:
        raise
    except Exception as error:
        raise RolloutError(f"train: {asked} failed: {type(error).__name__}: {error}") from error
    strange = [task for task in tasks if not isinstance(task, Task)]
    if strange:
        raise EnvError(f"{asked} gave {strange[0]!r:.200}; an env gives a list of lab.Task")
    return tasks


def drawn(
    env: Env, curriculum: Curriculum | None, n: int, split: str, seed: int, known: Collection[str] = ()
) -> list[Task]:
    """`n` tasks whose ids are not among `known`, which the step played before: two of one id would be one group."""
    asked = n + len(known)
    if curriculum is None:
        return [task for task in tasks_of(env, asked, split, seed) if task.id not in known][:n]
    tasks = curriculum(env, asked, split, seed)
    if not isinstance(tasks, list) or not all(isinstance(task, Task) for task in tasks):
        raise TypeError(f"train: {curriculum!r} gave {tasks!r:.200}; a curriculum gives a list of lab.Task")
    if len({task.id for task in tasks}) != asked or len(tasks) != asked:
        raise ValueError(
            f"train: {curriculum!r} was asked for {asked} tasks and gave {len(tasks)}, with "
            f"{len({task.id for task in tasks})} different ids; a curriculum gives as many as it is asked for, all "
            "different: take them from env.tasks(...), with a larger n if it chooses among them"
        )
    return [task for task in tasks if task.id not in known][:n]
