"""Programs of one's own as rollouts: `play` runs them, and an env made of one is trained like any other.

Leaves out: the gateway that they speak to, and what is learned.
"""

import hashlib
import json
import random
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pandas as pd

from mas_lab.bridges.episode import Earned, Episode, Program
from mas_lab.bridges.switchboard import Switchboard
from mas_lab.cells.game import Plan
from mas_lab.cells.plans import episodes
from mas_lab.cells.rollout import instances, rollout
from mas_lab.cells.steps import RolloutError
from mas_lab.env import EnvError, Task, not_plain
from mas_lab.progress import progress_bar
from mas_lab.team import Team


class ProgramWarning(UserWarning):
    """An episode that is left out: names it, the task, and why."""


def play(
    program: Program,
    team: Team,
    tasks: Sequence[Any],
    n: int = 1,
    seed: int = 0,
    **options: Any,
) -> pd.DataFrame:
    """Run `program(task, endpoint)` `n` times on each task: the table of `rollout`, a row per call that it made.

    The program asks its agents through `endpoint.base_url` and `endpoint.api_key`, OpenAI's chat completions on
    loopback, where `model` is an agent of `team`; or by `endpoint("solver", text)`. A row holds the very tokens and
    log-probabilities that were sampled. What the program returns is the team's reward, at its last call; {agent:
    number} is each agent's own; a `lab.Earned` says both, success and info.

    `tasks`: `lab.Task`s or plain data. `options`: the fields of `ProgramEnv`. An episode whose program raises, takes
    longer than `timeout_s`, calls an unknown agent or more than `max_calls` times, is left out with a
    `ProgramWarning` that names it. Only whole episodes: a program cannot be set back, so that there is no tree.

    A draw hangs on (seed, task, episode, agent, number of that agent's call) alone: the same program on the same
    weights gives the same table, if it makes the same calls, to the last digit where it is quicker than `patience_s`
    between two of them. Raises RolloutError where no episode is left.
    """
    env = ProgramEnv(program, tuple(team), train=as_tasks(tasks), **options)
    return rollout(env, team, env.train, plan=episodes(n), seed=seed)


def as_tasks(given: Sequence[Any]) -> tuple[Task, ...]:
    """Tasks as they are; plain data as tasks that are called by a digest of it. Raises EnvError for anything else."""
    made = []
    for number, one in enumerate(given):
        if isinstance(one, Task):
            made.append(one)
            continue
        if problem := not_plain(one, f"task {number}"):
            raise EnvError(f"play: {problem}; or give a lab.Task")
        data = one if isinstance(one, Mapping) else {"task": one}
        digest = hashlib.blake2b(json.dumps(data, sort_keys=True).encode(), digest_size=6).hexdigest()
        made.append(Task(f"task-{digest}", data))
    return tuple(made)


@dataclass(frozen=True)
class ProgramEnv:
    """An env that is somebody's program, for `train` and `evaluate`: `ProgramEnv(program, agents, train, test)`.

    It is played whole, by `episodes(n)`. Resuming a run of it is as exact as the program is: our draws come again, and
    what the program does besides (time, chance, the network, several calls at once) is its own.
    """

    program: Program
    agents: tuple[str, ...]
    train: tuple[Task, ...] = ()
    test: tuple[Task, ...] = ()
    max_return: float = 1.0
    """The team's reward from which an episode is a success, unless it says so itself."""
    max_tokens: int = 256
    """Of an answer, at most."""
    timeout_s: float = 120.0
    """Seconds of an episode. Its thread is left behind, and gets no more answers."""
    max_calls: int = 64
    """Of an episode."""
    at_once: int = 32
    """Episodes that run at the same time, each in a thread."""
    patience_s: float = 1.0
    """Seconds without news after which those who wait are answered without those who do not. While all are quicker, the
    same calls are computed together each time, and a run comes out the same to the last digit."""
    failed: float | None = None
    """The team's reward of an episode that fails; None leaves it out, which favours programs that fail where they would
    earn little: have the program catch what an answer may cause."""

    name = "program"
    pocket = ""
    max_turns = 2**31

    def __post_init__(self):
        object.__setattr__(self, "agents", tuple(self.agents))
        object.__setattr__(self, "train", as_tasks(self.train))
        object.__setattr__(self, "test", as_tasks(self.test))
        if not callable(self.program):
            raise EnvError(f"ProgramEnv: program={self.program!r:.80} cannot be called; give program(task, endpoint)")
        for limit in ("max_tokens", "max_calls", "at_once", "timeout_s", "patience_s"):
            if not getattr(self, limit) > 0:
                raise EnvError(f"ProgramEnv: {limit}={getattr(self, limit)!r}; give a number above 0")

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """`n` different ones of a split, drawn by `seed`."""
        known = {"train": self.train, "test": self.test}.get(split)
        if known is None or n > len(known):
            raise EnvError(
                f"ProgramEnv: {n} tasks of {split!r} were asked for, and it has "
                f"{len(self.train)} of 'train' and {len(self.test)} of 'test'; give more by train= or test="
            )
        return random.Random(f"{split} {seed}").sample(list(known), n)

    def played(
        self, team: Team, tasks: Sequence[Task], plan: Plan, seed: int, step: int
    ) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
        """The rows of all episodes, and seconds of each by task. Raises RolloutError where none is left."""
        if not isinstance(getattr(plan, "plan", plan), episodes):
            raise RolloutError(
                f"rollout: {plan} explores from within an episode, and a program cannot be set back; take episodes(n)"
            )
        with progress_bar(len(tasks) * plan.instances, "rollout", "episode") as bar:
            board = Switchboard(team, seed, step, self.max_tokens, self.patience_s, bar)
            found = [
                Episode(self.program, task, name, self.agents, self.max_calls, self.timeout_s, board.tell)
                for task, name in instances(tasks, plan)
            ]  # fmt: skip
            board.play(found, self.at_once)
        rows, seconds = [], {}
        for episode in found:
            seconds.setdefault(episode.task.id, []).append(episode.seconds)
            rows += self._rows(episode)
        if not rows:
            first = found[0]
            raise RolloutError(f"rollout: every episode failed; the first, {first.name!r}: {first.why}")
        return rows, seconds

    def _rows(self, episode: Episode) -> list[dict[str, Any]]:
        if episode.why:
            paid = "is left out" if self.failed is None else f"earns {self.failed}"
            warnings.warn(
                f"episode {episode.name!r} of task {episode.task.id!r} {paid}: {episode.why}", ProgramWarning,
                stacklevel=2,
            )  # fmt: skip
            if self.failed is None:
                return []
            episode.earned = Earned(self.failed, success=False)
        return episode.closed_rows(self.max_return)

    def checked(self, tasks: int, split: str, seed: int) -> pd.DataFrame:
        """What `check_env` looks at: the tasks. A program is tried by playing it."""
        drawn = self.tasks(min(tasks, len(self.train if split == "train" else self.test)), split, seed)
        if not drawn:
            raise EnvError(f"ProgramEnv: there is no task of {split!r}; give some by {split}=")
        ids = Counter(task.id for task in (*self.train, *self.test))
        twice = sorted(one for one, times in ids.items() if times > 1)
        if twice:
            raise EnvError(f"ProgramEnv: task {twice[0]!r} stands twice")
        return pd.DataFrame({"check": ["tasks differ"], "times": [ids.total()]})

    def _plays_itself(self) -> NoReturn:
        raise EnvError("ProgramEnv: a program plays itself, whole: rollout(env, team, tasks, plan=episodes(n))")

    def start(self, task: Task) -> Any:
        self._plays_itself()

    def acting(self, state: Any) -> tuple[str, ...]:
        self._plays_itself()

    def observe(self, state: Any, agent: str) -> list:
        self._plays_itself()

    def step(self, state: Any, actions: Mapping[str, str]) -> Any:
        self._plays_itself()
