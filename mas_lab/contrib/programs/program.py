"""User programs as rollouts: `play` runs them, and an env made of one is trained like any other.

Leaves out: the gateway for their calls (`gateway`), and the training.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.driver import runner_for
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import rollout
from mas_lab.check import check_env
from mas_lab.contrib.programs.dispatcher import Dispatcher
from mas_lab.contrib.programs.episode import Program
from mas_lab.env import EnvError, Task, not_plain
from mas_lab.team import Team


def play(program: Program, team: Team, tasks: Sequence[Any], n: int = 1, seed: int = 0, **options: Any) -> pd.DataFrame:
    """Run `program(task, endpoint)` `n` times on each task, and return the table of `rollout`.

    Each call of the program becomes a row, with the exact tokens and log-probabilities that were sampled. The program
    uses OpenAI's chat completions on loopback (`endpoint.base_url`, `endpoint.api_key`), where `model` is an agent of
    `team`. It can also call `endpoint("solver", text)`. It returns the team's reward, {agent: number} for local
    rewards, or an `EpisodeResult`. The team's reward is recorded at the last call.

    An episode fails if its program raises an exception, returns no valid reward, takes longer than `timeout_s`, makes
    no call or more than `max_calls`, calls an unknown agent, or gives a reward to an agent that it never called. A
    failed episode is left out with a `ProgramWarning`, unless the option `failed` gives it a reward. Episodes are
    always whole: a program cannot be set back, so there is no tree.

    A draw depends only on (seed, task, episode, agent, number of that agent's call). So the same program with the same
    weights and the same calls gives the same table. Log-probabilities agree to the last digit if the program takes less
    than `patience_s` between two calls.

    Args:
        program: Function or coroutine function `program(task, endpoint)`.
        team: The `Team` whose agents the program calls.
        tasks: `lab.Task`s or plain data. The program finds a dict as `task.data`, other data as `task.data["task"]`.
        n: Episodes per task.
        seed: Seed of all draws.
        **options: Fields of `ProgramEnv`, such as `max_tokens` or `timeout_s`.

    Returns:
        A table with a row per answered call and the columns `mas_lab.table.ROLLOUT`.

    Raises:
        RolloutError: No episode is left.
        EnvError: A task is not plain data.
        ArgumentError: An option has a wrong value.
        ValueError: A task occurs twice, or the team samples with `top_p` or `top_k`.
    """
    check_arguments(play, locals(), n=1)
    env = ProgramEnv(program, tuple(team), train=as_tasks(tasks), **options)
    return rollout(env, team, env.train, plan=episodes(n), seed=seed)


def as_tasks(tasks: Sequence[Any]) -> tuple[Task, ...]:
    """Return tasks as they are, and plain data as tasks named by a digest of it.

    Raises EnvError for anything else.
    """
    return tuple(one if isinstance(one, Task) else _as_task(one, number) for number, one in enumerate(tasks))


def _as_task(data: Any, number: int) -> Task:
    if problem := not_plain(data, f"task {number}"):
        raise EnvError(f"play: {problem}; or give a lab.Task")
    data = data if isinstance(data, Mapping) else {"task": data}
    digest = hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=6).hexdigest()
    return Task(f"task-{digest}", data)


@dataclass(frozen=True)
class ProgramEnv:
    """Env made of a user's program, for `train` and `evaluate`.

    It plays whole episodes, by `episodes(n)`. A resumed run repeats all draws of tokens. It does not repeat other
    effects in the program: time, random numbers, the network, or several calls at once.

    Raises:
        ArgumentError: `program` cannot be called, or another field has a wrong type or value.
    """

    program: Program
    """Function or coroutine function `program(task, endpoint)`; it returns rewards as for `play`."""
    agents: tuple[str, ...]
    """Names of the agents that the program may call."""
    train: tuple[Task, ...] = ()
    """Tasks of the split "train": `lab.Task`s or plain data."""
    test: tuple[Task, ...] = ()
    """Tasks of the split "test": `lab.Task`s or plain data."""
    max_return: float = 1.0
    """Team reward from which an episode is a success, unless the program returns `success` itself."""
    max_tokens: int = 256
    """Token limit of an answer. If the call and `Sampling` both set a limit, the smaller of those holds. If the call
    sets none, the limit is lowered to what the prompt leaves of the policy's context."""
    timeout_s: float = 120.0
    """Time limit of an episode in seconds. Afterwards its thread is left behind and gets no more answers."""
    max_calls: int = 64
    """Maximal number of calls in an episode."""
    at_once: int = 32
    """Number of episodes that run at the same time, each in a thread."""
    patience_s: float = 1.0
    """Seconds without news after which waiting calls are answered, although other episodes have made no call yet.

    If all programs are faster, the same calls are computed together each time, and a run is repeated to the last digit.
    """
    failed: float | None = None
    """Team reward of a failed episode. `None`: it is left out, as is one of which no call was answered.

    Leaving it out favours programs that fail where they would earn little. Let the program catch errors that an answer
    may cause.
    """

    name = "program"
    pocket = ""
    max_turns = 2**31

    def __post_init__(self):
        object.__setattr__(self, "train", as_tasks(self.train))
        object.__setattr__(self, "test", as_tasks(self.test))
        check_arguments(ProgramEnv, vars(self), max_tokens=1, max_calls=1, at_once=1, timeout_s=0, patience_s=0)
        object.__setattr__(self, "agents", tuple(self.agents))

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Draw `n` different tasks of a split.

        Args:
            n: Number of tasks.
            split: "train" or "test".
            seed: Seed of the draw.

        Returns:
            The tasks, in random order.

        Raises:
            EnvError: The split is unknown or has fewer than `n` tasks.
        """
        known = {"train": self.train, "test": self.test}.get(split)
        if known is None or n > len(known):
            raise EnvError(
                f"ProgramEnv: {n} tasks of {split!r} were requested, but it has "
                f"{len(self.train)} of 'train' and {len(self.test)} of 'test'; give more by train= or test="
            )
        return random.Random(f"{split} {seed}").sample(list(known), n)

    def _plays_itself(self, *_: Any) -> NoReturn:
        raise EnvError("ProgramEnv: a program plays itself, whole: rollout(env, team, tasks, plan=episodes(n))")

    start = acting = observe = step = _plays_itself


runner_for.register(ProgramEnv, lambda env: Dispatcher)


@check_env.register
def _check_program(env: ProgramEnv, tasks: int = 8, split: str = "train", seed: int = 0) -> pd.DataFrame:
    """Check the tasks; a program is tried by playing it."""
    env.tasks(1, split, seed)
    ids = pd.Series([task.id for task in (*env.train, *env.test)])
    if ids.duplicated().any():
        raise EnvError(f"ProgramEnv: task {ids[ids.duplicated()].iloc[0]!r} occurs twice")
    return pd.DataFrame({"check": ["tasks differ"], "times": [len(ids)]})
