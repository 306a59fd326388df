"""Sample the rollout of a step with earlier weights, so that rollouts need not wait for updates.

With `train(..., staleness=s)` the weights after k - s steps sample the rollout of step k, those after none the first
rollouts. So the same call makes the same run, whether rollouts and updates take turns or not. Leaves out: the copies
themselves (the back end).
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import pandas as pd

from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import learners
from mas_lab.env import Task
from mas_lab.locks import locked
from mas_lab.recipes import Recipe
from mas_lab.team import Team
from mas_lab.train.progress import Progress


class Staleness:
    """Play with the weights of `settings.staleness` steps before; `rollout` is cell 1 of such a training."""

    def __init__(self, now: Progress):
        self.now, self.age = now, now.settings.staleness
        self.ahead: Future[pd.DataFrame] | None = None
        """The next rollout, if it was played during the update before. `None`: it is still to be played."""
        self.drawn: list[Task] = []
        """The tasks of this rollout."""
        self.versions: dict[str, int] | None = None
        """The versions of the weights that are in use, see `playing`."""

    def tasks(self, step: int, draw: int, turns: pd.DataFrame | None) -> list[Task]:
        """Return `Progress.tasks`; the first of a step that was played ahead were drawn with it."""
        return self.drawn if self.ahead and self.drawn and not draw else self.now.tasks(step, draw, turns)

    def rollout(self, env, team: Team, tasks, plan, seed: int, max_turns, workers, step: int) -> pd.DataFrame:
        """Return the table of `rollout` with `policy_version`."""
        if self.ahead:
            ahead, self.ahead = self.ahead, None
            return ahead.result()
        with nullcontext(self.versions) if self.versions else earlier_weights(team, step, self.age) as versions:
            return with_versions(rollout(env, team, tasks, plan, seed, max_turns, workers, step), versions)

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Let parts that need the team see the weights that sample; a team that plays ahead has no such part."""
        team, done = self.now.team, self.now.done
        with nullcontext() if self.ahead else earlier_weights(team, done, self.age) as self.versions:
            yield
        self.versions = None

    @contextmanager
    def updating(self, recipe: Recipe) -> Iterator[None]:
        """Play the next step in a thread during the update, if the engines can sample meanwhile.

        `recipe`: that of the next step. After the update, each policy keeps the versions that may still sample.
        """
        team, done = self.now.team, self.now.done
        keep = range(done + 1 - self.age, done)
        kept = [(policy, {number: weights for number, weights in policy.kept.items() if number in keep}
                 | {done: policy.copy_weights()}) for policy in learners(team)]  # fmt: skip
        with ThreadPoolExecutor(1, "rollout") as thread:
            if done + 1 != self.now.steps and may_overlap(team, vars(recipe)):
                with earlier_weights(team, done, self.age - 1) as versions:
                    taken = snapshots(team)
                self.drawn = []
                self.ahead = thread.submit(self._play, done + 1, taken, recipe, versions)
            yield
        for policy, weights in kept:
            policy.kept = weights

    def _play(self, step: int, team: Team, recipe: Recipe, versions: Mapping[str, int]) -> pd.DataFrame:
        now, bounds = self.now, (self.now.settings.max_turns, self.now.settings.workers)
        self.drawn = now.tasks(step)
        return with_versions(rollout(now.env, team, self.drawn, recipe.plan, now.seed, *bounds, step), versions)


def forget_versions(team: Team) -> None:
    """Forget the earlier weights that a training with `staleness` has kept."""
    for policy in learners(team):
        if policy.capabilities.versions:
            policy.kept = {}


@contextmanager
def earlier_weights(team: Team, done: int, age: int) -> Iterator[dict[str, int]]:
    """Use the weights of `age` steps before in the `with` block, or the oldest that are kept.

    Args:
        team: The team, after `done` steps.
        done: Number of steps that were made.
        age: Number of steps. 0: the present weights.

    Yields:
        The version of each policy that learns, by its name: the number of steps that made these weights.
    """
    learning = {name: policy for name, policy in team.policies.items() if team.learners(name)}
    versions = {name: max(done - age, min(policy.kept, default=done)) for name, policy in learning.items()}
    with locked(team.policies.values()), ExitStack() as stack:
        for name, version in versions.items():
            if version < done:
                stack.enter_context(learning[name].at_version(version))
        yield versions


def with_versions(turns: pd.DataFrame, versions: Mapping[str, int]) -> pd.DataFrame:
    """Return the table of a rollout with `policy_version` beside `policy`: 0 for a policy that does not learn."""
    values = [versions.get(policy, 0) for policy in turns["policy"]]
    turns.insert(turns.columns.get_loc("policy") + 1, "policy_version", values)
    return turns


def may_overlap(team: Team, parts: Mapping[str, Any]) -> bool:
    """Return True if the next rollout may run while the team learns.

    Engines of their own sample then, and no part of the recipe computes with the team's weights.
    """
    needy = any(getattr(part, "needs_team", False) for part in parts.values())
    return not needy and all(policy.capabilities.snapshots for policy in learners(team))


def snapshots(team: Team) -> Team:
    """Return the team with snapshots in place of the policies whose models learn."""
    models = {policy.lock for policy in learners(team)}  # a frozen adapter has the lock of its base
    taken = {name: policy.snapshot() for name, policy in team.policies.items() if policy.lock in models}
    return team.played_by(team.policies | taken)


def check_staleness(staleness: int, team: Team, parts: Mapping[str, Any]) -> None:
    """Raise ValueError if a training cannot have this staleness. `parts`: those of the recipe, and the curriculum."""
    for place, part in parts.items():
        if getattr(part, "needs_newest", False) or (place == "curriculum" and hasattr(part, "after")):
            why = "learns from the report of each step" if hasattr(part, "after") else "needs the newest weights"
            raise ValueError(
                f"train: {place}={part!r} {why}, and with staleness={staleness} the next rollout begins before that "
                "step's update is made; use staleness=0, or another part"
            )
    for policy in learners(team):
        if not policy.capabilities.versions:
            raise ValueError(
                f"train: policy {policy.name!r} cannot keep earlier weights ({type(policy).__name__}), and staleness="
                f"{staleness} samples from them; use a torch back end, or staleness=0"
            )
