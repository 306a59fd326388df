"""The schedule of an asynchronous training: which version of the weights samples the rollout of a step.

    for report in lab.train(env, team, "dr_mas", steps=100, schedule=lab.overlap(staleness=2)):

Rollouts do not wait for updates. A simulated clock decides which updates are done when a rollout begins, by a stated
cost of each part, so a run is the same on every machine. The training itself samples and updates in turns, with copies
of earlier weights. Leaves out: environment steps and advantages, which take no simulated time, and new weights within a
rollout: each policy samples all rows of a step with one version.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.backends.devices import GIB, free_bytes
from mas_lab.cells.update import nonzero
from mas_lab.policy import Policy
from mas_lab.runs.run import load_run
from mas_lab.table import column, selected
from mas_lab.team import Team

TIMES = ("rollout_start", "rollout_end", "update_start", "update_end")
"""Columns that an overlap adds to the statistics of a step, in simulated seconds."""


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a step. The defaults were measured for pocket models, see docs/asynchronous.md.

        wave of requests to a policy = size (prompt P / r + decode L + token T / r)
        update of a policy           = size (update S + train (P + T) E)

    P is the tokens of the distinct prompts, T the tokens of the completions and L the tokens of the longest of them. r
    is the number of replicas, S that of optimizer steps and E that of epochs. An update counts the rows whose advantage
    is not 0. A wave is all calls at one depth of the step's episodes.

    Raises:
        ValueError: A cost is negative, or a size or a number of replicas is not positive.
    """

    prompt: float = 6.6e-5
    """Seconds to read a prompt token."""
    decode: float = 2.1e-3
    """Seconds of a decoding step, for any number of rows."""
    token: float = 1.6e-5
    """Seconds that each row adds to a decoding step."""
    update: float = 2.5e-2
    """Seconds of an optimizer step, with publishing the weights."""
    train: float = 3.4e-5
    """Seconds to train on a token."""
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Factor of a policy's seconds, by its name, such as its model's share of the parameters. Default: 1."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Number of engines that sample for a policy, by its name. Default: 1."""
    shared: bool = False
    """True: one engine samples for all policies, and one device trains them, in turns. False: each has its own."""

    def __post_init__(self):
        check_arguments(Costs, vars(self), prompt=0, decode=0, token=0, update=0, train=0)
        for name, values in (("sizes", self.sizes), ("replicas", self.replicas)):
            for policy, value in values.items():
                if not value > 0:
                    raise ValueError(f"Costs: {name}[{policy!r}]={value!r}; give a number above 0")

    def waves(self, turns: pd.DataFrame) -> Iterator[dict[str, float]]:
        """Yield for each wave of a step how long each policy samples, in seconds.

        Args:
            turns: Table of the step.
        """
        for _, rows in turns.groupby(column(turns, "depth")):
            yield {name: self._sampling(name, *work) for name, *work in _work(rows)}

    def _sampling(self, policy: str, prompts: int, tokens: int, longest: int) -> float:
        spread = (self.prompt * prompts + self.token * tokens) / self.replicas.get(policy, 1)
        return self.sizes.get(policy, 1.0) * (spread + self.decode * longest)

    def updates(self, turns: pd.DataFrame, epochs: int = 1, minibatches: int = 1) -> dict[str, float]:
        """Return how long each policy learns in a step, in seconds.

        Args:
            turns: Table of the step, with `advantage`.
            epochs: Passes over the rows.
            minibatches: Optimizer steps per pass.
        """
        return {
            name: self.sizes.get(name, 1.0) * epochs * (self.update * minibatches + self.train * (prompts + tokens))
            for name, prompts, tokens, _ in _work(turns[selected(turns) & nonzero(turns["advantage"])])
        }


def _work(turns: pd.DataFrame) -> Iterator[tuple[str, int, int, int]]:
    """Yield each policy with its P, T and L, see `Costs`."""
    for policy, rows in turns.groupby("policy"):
        lengths = rows["completion_ids"].map(len)
        yield policy, sum(map(len, set(map(tuple, rows["prompt_ids"])))), int(lengths.sum()), int(lengths.max())


@dataclass(frozen=True)
class overlap:
    """Let rollouts and updates overlap, with a bound on the age of the weights that sample.

    The rollout of step k begins when that of step k - 1 has ended and each policy that learns has made the updates of
    the first k - staleness steps. It samples with the newest version v >= k - staleness of each policy. A version is
    the number of training steps whose updates it has. An update begins when the rollout of its step has ended and the
    policy's update before is made. With staleness 0 each rollout waits for all updates, as without a schedule.

    Raises:
        ValueError: `staleness` is no whole number of 0 or more.
    """

    staleness: int = 1
    """Largest age of a row in training steps: its step minus the version that sampled it."""
    costs: Costs = Costs()
    """Seconds of the simulated clock."""
    replay: str | Path | None = None
    """Folder or name of a run, or an exported zip, whose versions are used in place of the clock's. `None`: the clock
    decides."""
    clock: str = field(default="simulated", metadata={"younger": True})
    """ "simulated": the order of events follows from `costs`, and is the same on every machine. "wall": a thread
    samples from an engine in another process (vLLM with `where="server"`) while the team learns. The run records the
    order that happened, and `replay` repeats it."""
    recorded: Sequence[Mapping[str, int]] = field(default=(), repr=False, compare=False)
    """The versions to replay, by step and policy; `loaded` reads them."""
    state: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """End of the last rollout (`free`), and ends of each policy's last updates, the newest last (`updated`)."""

    def __post_init__(self):
        if isinstance(self.costs, Mapping):
            object.__setattr__(self, "costs", Costs(**self.costs))
        object.__setattr__(self, "replay", self.replay and str(self.replay))
        check_arguments(overlap, vars(self), staleness=0)
        if self.clock not in ("simulated", "wall"):
            raise ValueError(f"overlap: clock={self.clock!r}; known are simulated, wall")

    @property
    def is_wall_clock(self) -> bool:
        """Return True if rollouts and updates run at the same time; a replay needs no clock."""
        return self.clock == "wall" and self.replay is None

    def loaded(self) -> "overlap":
        """Return the schedule with the versions of the run that it replays.

        Raises:
            RunError: There is no such run, or it was trained without a schedule.
        """
        if self.replay is None:
            return self
        turns = load_run(self.replay).read("turns", ["step", "policy", "policy_version"]).drop_duplicates()
        # The first steps of a fork may have had no schedule: the newest weights sampled them.
        turns["policy_version"] = turns["policy_version"].fillna(turns["step"]).astype(int)
        steps = [dict(zip(own["policy"], own["policy_version"], strict=True)) for _, own in turns.groupby("step")]
        return replace(self, recorded=steps)

    def begin(self, step: int, names: Collection[str]) -> tuple[float, dict[str, int]]:
        """Return when the rollout of a step begins, and which version of each policy samples it.

        Args:
            step: Number of the step, from 0.
            names: Names of the policies that learn.

        Returns:
            Simulated seconds, and a version by policy.

        Raises:
            ValueError: The replayed run has no such step or policy there, or an age above `staleness`.
        """
        ends = {name: self.state.get("updated", {}).get(name, []) for name in names}
        ages = dict.fromkeys(names, self.staleness)
        if self.replay is not None:
            ages = {name: self._recorded_age(step, name, len(own)) for name, own in ends.items()}
        waits = (own[-1 - ages[name]] for name, own in ends.items() if len(own) > ages[name])
        start = max([self.state.get("free", 0.0), *waits])
        if self.replay is None:
            ages = {name: sum(end > start for end in own) for name, own in ends.items()}
        return start, {name: step - age for name, age in ages.items()}

    def _recorded_age(self, step: int, name: str, updates: int) -> int:
        """Return the age in the replayed run; the largest possible one for a policy that nobody called in that step."""
        most, version = min(self.staleness, updates), None
        if step < len(self.recorded) and any(name in one for one in self.recorded):
            version = self.recorded[step].get(name, step - most)
        if version is None or step - version > most:
            found = "does not say who sampled" if version is None else f"has age {step - version} for"
            raise ValueError(
                f"train: the run {self.replay} {found} policy {name!r} in step {step}, of {len(self.recorded)} steps; "
                f"replay it with its team, from its start, for no more steps, and with its staleness (here "
                f"{self.staleness})"
            )
        return int(step - version)

    def after(
        self, step: int, turns: pd.DataFrame, names: Sequence[str], epochs: int, minibatches: int
    ) -> "tuple[overlap, pd.DataFrame]":
        """Return the schedule of the next step, and the events of this one.

        Args:
            step: Number of the step, from 0.
            turns: Table of the step, with `advantage`.
            names: Names of the policies that learn.
            epochs: Passes of the update.
            minibatches: Optimizer steps per pass.

        Returns:
            The schedule, and a table of events: `step`, `policy`, `kind` ("sample" or "learn"), the `version` that
            samples or is made, `start` and `end` in simulated seconds.
        """
        now, versions = self.begin(step, names)
        events, updated = [], self.state.get("updated", {})
        for wave in self.costs.waves(turns):
            end = now
            for policy, seconds in wave.items():
                start = end if self.costs.shared else now
                end = start + seconds
                events.append((step, policy, "sample", versions.get(policy, 0), start, end))
            now = max(event[-1] for event in events[-len(wave) :])
        seconds, made = self.costs.updates(turns, epochs, minibatches), {}
        device = max((own[-1] for own in updated.values()), default=0.0)  # when one that is shared is free
        for name in names:
            own = updated.get(name, [])
            start = max(now, device if self.costs.shared else max(own, default=0.0))
            device = start + seconds.get(name, 0.0)
            events.append((step, name, "learn", step + 1, start, device))
            made[name] = [*own, device][-1 - self.staleness :]
        following = replace(self, state={"free": now, "updated": made})
        return following, pd.DataFrame(events, columns=["step", "policy", "kind", "version", "start", "end"])


def with_times(stats: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Return the statistics of a step with the columns `TIMES`."""
    sampled, learned = (events[events["kind"] == kind] for kind in ("sample", "learn"))
    times = learned.set_index("policy")[["start", "end"]].reindex(stats["policy"]).to_numpy()
    rollout = [sampled["start"].min(), sampled["end"].max()]
    return stats.assign(**dict(zip(TIMES, [*rollout, *times.T], strict=True)))


def with_versions(turns: pd.DataFrame, versions: Mapping[str, int]) -> pd.DataFrame:
    """Return the table of a rollout with `policy_version` beside `policy`: 0 for a policy that does not learn."""
    values = [versions.get(policy, 0) for policy in turns["policy"]]
    turns.insert(turns.columns.get_loc("policy") + 1, "policy_version", values)
    return turns


def learning_policies(team: Team) -> dict[str, Policy]:
    """Return the policies that learn, by name."""
    return {name: policy for name, policy in team.policies.items() if team.learners(name)}


def check_overlap(chosen: overlap, team: Team, parts: Mapping[str, Any]) -> None:
    """Raise ValueError if a training cannot have this schedule. `parts`: those of the recipe, and the curriculum."""
    if chosen.is_wall_clock:
        _check_wall_clock(team, parts)
    if chosen.staleness == 0:
        return
    for place, part in parts.items():
        if getattr(part, "needs_newest", False) or (place == "curriculum" and hasattr(part, "after")):
            why = "learns from the report of each step" if hasattr(part, "after") else "needs the newest weights"
            raise ValueError(
                f"train: {place}={part!r} {why}, and with {chosen!r} the next rollout begins before that step's update "
                "is made; use staleness=0, or another part"
            )
    sizes: dict[str, int] = {}
    for name, policy in learning_policies(team).items():
        if not policy.capabilities.versions:
            raise ValueError(
                f"train: policy {name!r} cannot keep earlier weights ({type(policy).__name__}), and {chosen!r} samples "
                "from them; use a torch back end, or staleness=0"
            )
        here = policy.capabilities.device
        sizes[here] = sizes.get(here, 0) + sum(w.numel() * w.element_size() for w in policy.parameters.values())
    for device, size in sizes.items():
        fit = free_bytes(device) // size - 1  # during an update there is one copy more
        if chosen.staleness > fit:
            raise ValueError(
                f"train: staleness={chosen.staleness} keeps {chosen.staleness + 1} copies of the trained weights on "
                f"{device}, {size / GIB:.3g} GiB each; {max(fit, 0)} is the largest staleness that fits into the free "
                "memory"
            )


def _check_wall_clock(team: Team, parts: Mapping[str, Any]) -> None:
    for name, policy in learning_policies(team).items():
        if not policy.capabilities.snapshots:
            raise ValueError(
                f"train: clock='wall' samples while the weights learn, and the engine of policy {name!r} cannot: load "
                "it with backend='vllm', where='server' and without sleep, or leave clock out"
            )
    for place, part in parts.items():
        if getattr(part, "needs_team", False):
            raise ValueError(
                f"train: {place}={part!r} computes with the team's weights, and with clock='wall' they learn at the "
                "same time; leave clock out, or use another part"
            )
