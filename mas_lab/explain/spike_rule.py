"""Find spikes of the gradient norm, and record what the gradient was made of, before the step.

A norm is a spike if it is more than `threshold` times the usual norm, and taller than all `window` norms before it:

    norm > threshold * median(the `window` norms before it),  norm > max(the `window` norms before it)

The norms before it are those of all agents: at earlier steps and, in the same step, of the agents before it. So this
also finds an agent whose norms are tall from its first step on, and marks it once, at its peak. Norms of policies are
judged by those of policies. The rule starts after `warmup` norms and skips norms of 0 (all advantages 0). Leaves out:
pictures (`widgets`).
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import pandas as pd

from mas_lab.cells.update import PolicyBatch
from mas_lab.explain.diagnostics import norm_without, norms_with, shares_of
from mas_lab.explain.moments import both_baselines
from mas_lab.table import TableError, require

NORMS = ["policy_norm", "grad_norm"]
STEP = ["step", "optimizer_step", "policy"]
JUDGED = ["usual", "score", "spike"]


@dataclass(frozen=True)
class SpikeRule:
    """The numbers of the rule. A call scores the next norm."""

    warmup: int = 4
    """Norms that must have come before."""
    window: int = 50
    """The number of previous norms that are used."""
    threshold: float = 4.0
    """Times the usual norm above which a norm can be a spike."""

    def __post_init__(self):
        if not 1 <= self.warmup <= self.window or self.threshold <= 0:
            raise ValueError(f"spikes: {self}: give 1 <= warmup <= window, and a threshold above 0")

    def __call__(self, before: list[float], norm: float) -> tuple[float, float, bool]:
        """Return the usual norm, the score (`norm` divided by it) and whether `norm` is a spike; add it to `before`.

        Usual norm and score are NaN during warm-up and at norm 0.
        """
        usual = score = math.nan
        is_spike = False
        if len(before) >= self.warmup and norm > 0:
            usual = median(before)  # numpy's median is slow on a few numbers
            score = norm / usual
            is_spike = score > self.threshold and norm > max(before)
        if 0 < norm < math.inf:
            before.append(norm)
            del before[: -self.window]
        return usual, score, is_spike


def spike_scores(stats: pd.DataFrame, warmup: int = 4, window: int = 50, threshold: float = 4.0) -> pd.DataFrame:
    """Return every gradient norm of `update`'s statistics with its score by the rule of this module.

    Args:
        stats: The table that `update` returned, or `run.stats` for all steps.
        warmup: Norms that must have come before the first score.
        window: Number of previous norms whose median is the usual norm.
        threshold: Score above which a norm can be a spike, in times the usual norm.

    Returns:
        A table with a row per optimizer step, policy and agent. Its columns are `step` (if `stats` has it),
        `optimizer_step`, `policy`, `agent` (empty: the whole policy), `norm` (before clipping), `usual` (the
        median of the window), `score` (`norm` divided by `usual`) and `spike`.

    Raises:
        TableError: A column is missing, or an optimizer step occurs twice.
        ValueError: The numbers of the rule make no sense.
    """
    require(stats, ["optimizer_step", "policy", "agent"], "spikes")
    for name in NORMS:
        if name not in stats.columns:
            raise TableError(f"spikes: column {name!r} is missing; it is added by `update`")
    rule = SpikeRule(warmup, window, threshold)
    when = [name for name in ("step", "optimizer_step") if name in stats.columns]
    if (twice := stats.duplicated([*when, "policy", "agent"])).any():
        raise TableError(
            f"spikes: optimizer step {stats['optimizer_step'][twice].iloc[0]} occurs twice for an agent; number what "
            "you join: pd.concat([table.assign(step=k) for k, table in enumerate(tables)])"
        )
    policies = stats.drop_duplicates([*when, "policy"]).assign(agent="")
    parts = []
    for series in (policies.assign(norm=policies["policy_norm"]), stats.assign(norm=stats["grad_norm"])):
        before: list[float] = []
        found = pd.DataFrame([rule(before, norm) for norm in series["norm"]], columns=JUDGED)
        parts.append(series.reset_index(drop=True).join(found.astype({"spike": bool})))
    return pd.concat(parts, ignore_index=True)[[*when, "policy", "agent", "norm", *JUDGED]]


class SpikeWatch:
    """Watch a training: at a spike, record the gradient's shares and counterfactual norms of that step.

    `train(..., run=...)` has one by default. A spike, and each new largest norm, costs about four passes over its
    batch. Other steps cost only the rule.

    Args:
        warmup: Norms that must have come before the first score.
        window: Number of previous norms whose median is the usual norm.
        threshold: Score above which a norm can be a spike, in times the usual norm.
        keep: Number of spikes with the highest scores that are kept.
        samples: Number of rows with the largest shares whose tokens are recorded.

    Attributes:
        spikes: A list with a record per spike. Records are plain data, so that they are part of a run's checkpoint.
        tallest: The record of the largest norm of an agent so far, spike or not; `None` before the first step. Its
            `usual` and `score` are `None` during warm-up. Each new largest norm costs as much as a spike.

    Keys of a record:
    - `call`: the number of watched steps of its policy before this one.
    - `policy`, and its `agents` whose norms are spikes ("": the norm of all of them, if several spoke).
    - `agent`: the one of them with the highest score, with its `norm`, `usual` and `score`.
    - `norms`: the norm of each agent.
    - `rows`: {row: share}.
    - `tokens`: {row: shares of its tokens} for the `samples` largest rows.
    - `exact`: whether these shares are exact, see `attribute`.
    - `without`: {row: the policy's norm without that row} for the largest row.
    - `baselines`: {"global", "agent": {agent or "": norm}}, the same batch under either baseline.
    - `judged`: {"global", "agent": {row: advantage}} of the largest rows under either baseline.
    """

    def __init__(self, warmup: int = 4, window: int = 50, threshold: float = 4.0, keep: int = 32, samples: int = 16):
        self.rule, self.keep, self.samples = SpikeRule(warmup, window, threshold), keep, samples
        self.spikes: list[dict[str, Any]] = []
        self.tallest: dict[str, Any] | None = None
        self._calls: dict[str, int] = {}
        self._other: Mapping[str, Any] | None = None
        self._before: dict[str, list[float]] = {"policies": [], "agents": []}

    def __repr__(self) -> str:
        return f"SpikeWatch({self.rule}, {len(self.spikes)} spikes in {max(self._calls.values(), default=0)} steps)"

    def __call__(self, batch: PolicyBatch) -> None:
        """Score the norms of a step, between backward and clipping, and record a spike; see `update`.

        Args:
            batch: The batch of the step.
        """
        policy, norms = batch.name, batch.norms
        call = self._calls.get(policy, 0)
        self._calls[policy] = call + 1
        series = {"": batch.norm, **norms}
        past = {name: self._before["agents" if name else "policies"] for name in series}
        scores = {name: self.rule(past[name], norm) for name, norm in series.items()}
        high = {name: one for name, one in scores.items() if one[2] and (name or len(norms) > 1)}
        if high:
            first = max(high, key=lambda agent: high[agent][1])
            self.spikes.append(self._record(call, first, scores[first], list(high), series, batch))
            self.spikes.sort(key=lambda spike: (-spike["score"], spike["call"]))
            del self.spikes[self.keep :]
        tallest = max(norms, key=lambda agent: norms[agent])
        if norms[tallest] > (self.tallest["norm"] if self.tallest else 0.0):
            self.tallest = self._record(call, tallest, scores[tallest], [tallest], series, batch)

    def _record(
        self, call: int, agent: str, found: tuple, agents: list[str], norms: dict, batch: PolicyBatch
    ) -> dict[str, Any]:
        usual, score = (None if math.isnan(number) else number for number in found[:2])
        shares = shares_of(batch)
        by_row = shares.groupby("row", sort=False)["share"].sum().sort_values(key=abs, ascending=False)
        top = list(by_row.index[: self.samples])
        tokens = shares[shares["row"].isin(top)].groupby("row")["share"].agg(list)
        known = {"task", "episode", "credit"} <= set(batch.table.columns)
        baselines = both_baselines(batch.table) if known else {}
        under = {name: norms_with(batch, advantages) for name, advantages in baselines.items()}
        return {
            "call": call, "policy": batch.name, "agent": agent, "agents": agents, "norm": norms[agent], "usual": usual,
            "score": score, "norms": norms, "rows": {str(row): float(share) for row, share in by_row.items()},
            "exact": bool(shares["exact"].all()),
            "tokens": {str(row): [float(share) for share in tokens[row]] for row in top},
            "without": {str(row): norm_without(batch, row) for row in top[:1]},
            "baselines": {name: {"": norm, **by_agent} for name, (norm, by_agent) in under.items()},
            "judged": {name: {str(row): float(values[row]) for row in top} for name, values in baselines.items()},
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """Return all that the watch remembers, as plain data."""
        if self._other is not None:
            return dict(self._other)
        return {
            "rule": asdict(self.rule), "calls": dict(self._calls), "before": self._before, "spikes": self.spikes,
            "tallest": self.tallest,
        }  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a `state()`; the rule of this watch stays.

        Args:
            state: A result of `state()`.
        """
        if "rule" not in state:  # of another watch, which this call was not given; it is kept for the next one
            self._other = state
            return
        self._calls = dict(state["calls"])
        self._before = copy.deepcopy(dict(state["before"]))
        self.spikes = [dict(spike) for spike in state["spikes"]]
        self.tallest = state.get("tallest")

    def join(self, stats: pd.DataFrame) -> None:
        """Start to watch a run that has these statistics already, whether or not it was watched.

        A record is dated by the number of its optimizer step. Steps that were not watched are missing in the window of
        the rule.

        Args:
            stats: Statistics of the run so far.
        """
        self._calls = {name: len(own) for name, own in stats.drop_duplicates(STEP).groupby("policy")}


def spike_steps(stats: pd.DataFrame, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of a `SpikeWatch` with the `step` and `optimizer_step` in which they happened.

    A watch counts the optimizer steps of its policy, and so do the statistics.
    """
    require(stats, STEP, "spike_steps")
    steps = stats.drop_duplicates(STEP)
    calls = {name: own[["step", "optimizer_step"]].to_numpy() for name, own in steps.groupby("policy")}
    dated = []
    for record in records:
        step, optimizer_step = map(int, calls[record["policy"]][record["call"]])
        dated.append({**record, "step": step, "optimizer_step": optimizer_step})
    return dated
