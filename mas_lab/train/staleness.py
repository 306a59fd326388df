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

from mas_lab.backends.devices import GIB, free_bytes
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import learners
from mas_lab.locks import locked
from mas_lab.policy import Policy
from mas_lab.recipes import Recipe
from mas_lab.team import Team
from mas_lab.train.progress import Hook, Progress
from mas_lab.train.report import Report


class Staleness(Hook):
    """The hook of a training whose rollouts use weights of `age` steps before; `rollout` is its cell 1."""

    def __init__(self, age: int):
        self.age = age
        self.ahead: Future[pd.DataFrame] | None = None
        """The next rollout, if it was played during the update before. `None`: it is still to be played."""
        self.versions: dict[str, int] | None = None
        """The versions of the weights that are in use, see `playing`."""

    def rollout(self, env, team: Team, tasks, plan, seed: int, max_turns, workers, step: int) -> pd.DataFrame:
        """Return the table of `rollout` with `policy_version`."""
        if self.ahead:
            ahead, self.ahead = self.ahead, None
            return ahead.result()
        with nullcontext(self.versions) if self.versions else earlier_weights(team, step, self.age) as versions:
            return with_versions(rollout(env, team, tasks, plan, seed, max_turns, workers, step), versions)

    @contextmanager
    def playing(self, now: Progress) -> Iterator[None]:
        """Let parts that need the team see the weights that sample; a team that plays ahead has no such part."""
        with nullcontext() if self.ahead else earlier_weights(now.team, now.done, self.age) as self.versions:
            yield
        self.versions = None

    @contextmanager
    def updating(self, now: Progress, recipe: Recipe) -> Iterator[None]:
        """Play the next step in a thread during the update, if the engines can sample meanwhile."""
        self.kept = weights_to_keep(now.team, now.done, self.age)
        if now.done + 1 == now.steps or not may_overlap(now.team, vars(recipe)):
            yield
            return
        with earlier_weights(now.team, now.done, self.age - 1) as versions:
            team = snapshots(now.team)

        def play() -> pd.DataFrame:
            step, bounds = now.done + 1, (now.settings.max_turns, now.settings.workers)
            now.ahead[step] = tasks = now.tasks(step)
            return with_versions(rollout(now.env, team, tasks, recipe.plan, now.seed, *bounds, step), versions)

        with ThreadPoolExecutor(1, "rollout") as thread:
            self.ahead = thread.submit(play)
            yield

    def after(self, now: Progress, report: Report) -> Report:
        for policy, weights in self.kept:
            policy.kept = weights
        return report

    def end(self, now: Progress) -> None:
        forget_versions(now.team)


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


def weights_to_keep(team: Team, done: int, staleness: int) -> list[tuple[Policy, dict[int, Any]]]:
    """Return what each policy that learns keeps after one step more: the versions that may still sample."""
    keep = range(done + 1 - staleness, done)
    return [(policy, {number: weights for number, weights in policy.kept.items() if number in keep}
             | {done: policy.copy_weights()}) for policy in learners(team)]  # fmt: skip


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
    sizes: dict[str, int] = {}
    for policy in learners(team):
        if not policy.capabilities.versions:
            raise ValueError(
                f"train: policy {policy.name!r} cannot keep earlier weights ({type(policy).__name__}), and staleness="
                f"{staleness} samples from them; use a torch back end, or staleness=0"
            )
        here = policy.capabilities.device
        sizes[here] = sizes.get(here, 0) + sum(w.numel() * w.element_size() for w in policy.parameters.values())
    for device, size in sizes.items():
        fit = free_bytes(device) // size - 1  # during an update there is one copy more
        if staleness > fit:
            raise ValueError(
                f"train: staleness={staleness} keeps {staleness + 1} copies of the trained weights on {device}, "
                f"{size / GIB:.3g} GiB each; {max(fit, 0)} is the largest staleness that fits into the free memory"
            )
