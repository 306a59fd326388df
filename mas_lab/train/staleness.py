"""Sample the rollout of a step with earlier weights, so that rollouts need not wait for updates.

With `train(..., staleness=s)` the weights after k - s steps sample the rollout of step k, those after none the first
rollouts. So the same call makes the same run, whether rollouts and updates take turns or not. Leaves out: the thread
(`loop`), and the copies themselves (the back end).
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pandas as pd

from mas_lab.backends.devices import GIB, free_bytes
from mas_lab.cells.update import learners
from mas_lab.locks import locked
from mas_lab.policy import Policy
from mas_lab.team import Team


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
