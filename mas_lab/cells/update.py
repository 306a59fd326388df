"""Cell 4, `update`: the optimizer steps.

Every policy learns from the rows of the agents it plays, agent by agent, so that the gradient norm of each agent is
known exactly even under shared weights. Leaves out: what a token's loss is (`losses`) and how log-probabilities are
computed (the back end).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from numbers import Real
from typing import Any

import pandas as pd

from mas_lab.cells.advantages import require_one_per_token
from mas_lab.cells.batch import ROW, Batch, UpdateError
from mas_lab.cells.contract import require_loss
from mas_lab.cells.losses import Loss, clipped
from mas_lab.locks import alone, standing_for, this_thread
from mas_lab.policy import Policy, Sample
from mas_lab.table import column, require, selected, trained
from mas_lab.team import Team

__all__ = ["UpdateError", "Watch", "require_max_norm", "update", "whole_batches"]

STATS = (
    "policy agent optimizer_step turns tokens reward_mean reward_std advantage_rms entropy truncated grad_norm "
    "grad_norm_clipped policy_norm policy_norm_clipped kl clip_fraction max_ratio mismatch lr skipped culprits"
)
"""The columns of what `update` returns, also where no row was selected."""
Watch = Callable[[str, dict[str, float], Batch], None]


def update(
    team: Team,
    turns: pd.DataFrame,
    loss: Loss = clipped(0.2),  # noqa: B008 - a frozen value
    aggregate: str = "token",
    epochs: int = 1,
    minibatches: int = 1,
    max_norm: float | None = 1.0,
    lr_scale: float = 1.0,
    nonfinite: str = "raise",
    watch: Watch | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Train every policy of `team` on the `advantage` of its rows; a row per (policy, agent, optimizer step).

    A row's advantage is one number, or a list of one per token of its completion (`mas_lab.cells.advantages`).

    `aggregate` averages the per-token losses of a policy's rows: "token", over all tokens; "turn", over rows, each the
    mean of its tokens; "agent", 1/|Y_k| within each agent, then over agents; "sum", the sum of a row's tokens, over
    rows (MAGRPO). Only rows that `select` marked are trained on and counted in these denominators, as in DAPO; without
    `selected` all are. Rows with advantage 0 stay in the denominators. A loss with one ratio per row goes with "turn"
    and "agent": `clipped(ratio="action")` under "agent" is equation 3 of Dr. MAS, whose published code, as AT-GRPO's,
    takes ratios and means over tokens.
    `epochs` passes over the rows, each in `minibatches` optimizer steps; a node's candidates stay together.
    `max_norm`, above 0, clips each policy's gradient; None does not. `nonfinite`: "raise", or "skip" the step and
    record it (`skipped`), which leaves the weights good; weights that a step has made NaN or infinite always raise
    PolicyError.
    Other threads wait for the models that learn until all of it is done; PolicyError where one of them trains these.
    `watch(policy_name, norms, attribute)` runs between backward and clipping: `norms` maps agents to gradient norms;
    `attribute()` computes the shares of the gradient, and `attribute` itself is the `Batch` that asks for the step.

    Columns: `turns`, `tokens`; mean and std of `credit` as `reward_mean`, `reward_std`; `advantage_rms`; the norm of
    the agent's gradient before clipping and what clipping left of it, `grad_norm`, `grad_norm_clipped`, and the same of
    its policy, `policy_norm`, `policy_norm_clipped`; `entropy` per token in nats, the mean -log p of the sampled
    tokens; `kl` to the reference (NaN if off); `clip_fraction`, of tokens, and `max_ratio`, by the ratio that the loss
    uses; `truncated`, the share of completions that ran out of tokens; `mismatch`, max |p_trained / p_sampled - 1| of a
    token before the first step (NaN after it); `lr`; whether the step was `skipped`, and the rows that caused it,
    `culprits`.
    """
    require_max_norm(max_norm, "update")
    if nonfinite not in ("raise", "skip"):
        raise ValueError(f"update: nonfinite={nonfinite!r}; known are raise, skip")
    stats: list[dict[str, Any]] = []
    refuse_what_policies_cannot(team, loss, max_norm, watch)
    with alone(learners(team), changing=True):
        rows = _learnable(team, turns, loss, aggregate)
        for number, parts in enumerate(_minibatches(team, rows, epochs, minibatches, seed)):
            batches = [Batch(name, team.policies[name], part, loss, aggregate, rows) for name, part in parts.items()]
            with _no_gradient_left(batches):
                _backward(batches, nonfinite, watch)
                for batch in batches:
                    stats += batch.step(number, max_norm, lr_scale)
        for policy in learners(team):
            policy.publish()
    return pd.DataFrame(stats, columns=None if stats else STATS.split())


def _backward(batches: Sequence[Batch], nonfinite: str, watch: Watch | None) -> None:
    """The gradients of one optimizer step, as far as they are finite, shown to who watches."""
    _accumulate(batches)
    for batch in batches:
        batch.check(nonfinite)
        if watch is not None and not batch.broken:
            watch(batch.name, dict(batch.norms), batch)


def refuse_what_policies_cannot(team: Team, loss: Loss, max_norm: float | None, watch: Watch | None) -> None:
    """Raises PolicyError where a policy that learns could not do what is asked."""
    for policy in learners(team):
        if hasattr(policy, "refuse"):
            policy.refuse(loss, max_norm, watch)


def learners(team: Team) -> list[Policy]:
    """The policies that an update changes."""
    return [policy for name, policy in team.policies.items() if team.learners(name)]


def require_max_norm(max_norm: Any, cell: str) -> None:
    """Raises ValueError, naming who asks, for a bound that would turn the gradient around or stop it."""
    if max_norm is not None and not (isinstance(max_norm, Real) and max_norm > 0):
        raise ValueError(f"{cell}: max_norm={max_norm!r}; give a norm above 0 to clip at, or None for no clipping")


@contextmanager
def _no_gradient_left(batches: Sequence[Batch]) -> Iterator[None]:
    """Whatever ends a step, an interrupt between two policies' too: no gradient is left for the next one to add to. Nor
    does this one add to what was left by hand."""
    for batch in batches:
        batch.policy.clear_gradients()
    try:
        yield
    except BaseException:
        for batch in batches:
            batch.policy.clear_gradients()
        raise


def _accumulate(batches: Sequence[Batch]) -> None:
    """Batches on different devices at once; those of one device, and of a policy that several ranks train, in order."""
    by_device: dict[str, list[Batch]] = {}
    for batch in batches:
        apart = getattr(batch.policy, "ranks", None) is None
        by_device.setdefault(str(getattr(batch.policy, "device", None)) if apart else "all", []).append(batch)

    holder = this_thread()

    def in_order(own: Sequence[Batch]) -> None:
        with standing_for(holder):
            for batch in own:
                batch.accumulate()

    if len(by_device) < 2:
        in_order(batches)
        return
    with ThreadPoolExecutor(len(by_device)) as pool:
        for done in [pool.submit(in_order, own) for own in by_device.values()]:
            done.result()


def whole_batches(team: Team, turns: pd.DataFrame, loss: Loss, aggregate: str) -> list[Batch]:
    """The table as one optimizer step: a batch per policy that would learn from it, nothing accumulated yet."""
    rows = _learnable(team, turns, loss, aggregate)
    own = {name: _own(team, rows, name) for name in team.policies}
    return [Batch(name, team.policies[name], part, loss, aggregate, rows) for name, part in own.items() if len(part)]


def _learnable(team: Team, turns: pd.DataFrame, loss: Loss, aggregate: str) -> pd.DataFrame:
    """The rows of the batch, numbered from 0 by their place in `turns`: what statistics of groups count."""
    require(turns, ROW, "update", optional=["selected"])
    require_loss(loss, aggregate, "update")
    rows = turns.reset_index(drop=True)
    rows = rows[trained(rows)]
    require_one_per_token(rows, "update")
    for agent in rows["agent"].unique():
        team[agent]  # raises where an agent has no policy
    return rows if loss.tis is None else rows.assign(before=_logprobs_before(team, rows))


def _own(team: Team, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """What one policy learns from."""
    return rows[rows["agent"].isin(team.learners(name)) & selected(rows)]


def _logprobs_before(team: Team, rows: pd.DataFrame) -> pd.Series:
    """Per row, the log-probabilities of its tokens by the weights that are about to be trained."""
    import torch

    found = pd.Series(None, rows.index, dtype=object)
    with torch.no_grad():
        for name, policy in team.policies.items():
            own = _own(team, rows[rows["completion_ids"].map(len) > 0], name)
            if len(own):
                samples = [Sample(*row, weight=0.0) for row in own[ROW[1:]].itertuples(index=False, name=None)]
                lengths = own["completion_ids"].map(len).tolist()
                found[own.index] = [part.tolist() for part in policy.logprobs(samples).split(lengths)]
    return found


def _minibatches(
    team: Team, rows: pd.DataFrame, epochs: int, minibatches: int, seed: int
) -> Iterator[dict[str, pd.DataFrame]]:
    """Per optimizer step, the rows of each policy. The candidates of one node share a prompt and stay together."""
    learning = {name: _own(team, rows, name) for name in team.policies}
    for epoch in range(epochs):
        parts: list[dict[str, pd.DataFrame]] = [{} for _ in range(minibatches)]
        for name, own in learning.items():
            nodes = column(own, "node") if minibatches > 1 else pd.Series("", index=own.index)
            order = sorted(nodes.unique())
            random.Random(f"{seed} {epoch} {name}").shuffle(order)
            part_of = {node: position % minibatches for position, node in enumerate(order)}
            for part, chosen in own.groupby(nodes.map(part_of)):
                parts[part][name] = chosen
        yield from (part for part in parts if part)
