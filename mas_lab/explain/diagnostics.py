"""Measure what a row or a baseline does to each agent's gradient: shares, and counterfactual norms.

Leaves out: what the rewards alone show (`moments`), the rule for spikes (`spike_rule`) and pictures (`widgets`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.update import (
    PolicyBatch,
    compute_gradients,
    learners,
    nonzero,
    policy_batch,
    policy_batches,
    require_finite,
    share_table,
)
from mas_lab.locks import locked
from mas_lab.losses import Loss, clipped, require_loss
from mas_lab.policy import Policy, PolicyError, samples_of
from mas_lab.team import Team

SHARES = ["policy", "agent", "group", "row", "token", "share", "exact"]


def attribute(
    team: Team,
    turns: pd.DataFrame,
    loss: Loss = clipped(0.2),  # noqa: B008 - a frozen value
    aggregate: str = "token",
) -> pd.DataFrame:
    """Return the share of each token in the gradient that this table gives its policy; no step is made.

    Per policy the shares sum to 1. They may be negative, since they are projections on the gradient. They are exact and
    come from one forward-mode derivative, which costs about two extra passes per policy.

    Args:
        team: The team that learns.
        turns: Table with the column `advantage`.
        loss: Loss of the cell `update`. Default: `clipped(0.2)`.
        aggregate: How `update` averages the token losses. Default: "token".

    Returns:
        A table with the columns `policy`, `agent`, `group` (if `turns` has it), `row` (place in the table, from 0),
        `token` (position in the completion), `share` and `exact`. Rows that add nothing to the gradient are absent. If
        the back end has no forward mode, `exact` is `False` and the shares are those of `proxy_shares`.

    Raises:
        UpdateError: A loss or gradient is not finite.
    """
    check_arguments(attribute, locals())
    require_loss(loss, aggregate, "attribute")
    parts = []
    with locked(learners(team)):
        for batch in chain(*policy_batches(team, turns, loss, aggregate)):
            with restored_gradients(batch.policy):
                batch = compute_gradients(batch)
                require_finite(batch)
                shares = shares_of(batch)
            groups = batch.rows.get("group", pd.Series(dtype=object)).reindex(shares["row"]).to_numpy()
            parts.append(shares.assign(policy=batch.name, group=groups))
    known = [name for name in SHARES if name != "group" or "group" in turns.columns]
    return pd.concat(parts, ignore_index=True)[known] if parts else pd.DataFrame(columns=known)


def shares_of(batch: PolicyBatch) -> pd.DataFrame:
    """Return `token_shares` with the column `exact`, or `proxy_shares` if the back end cannot compute them."""
    try:
        return batch.token_shares().assign(exact=True)
    except PolicyError:
        return proxy_shares(batch).assign(exact=False)


@contextmanager
def restored_gradients(policy: Policy) -> Iterator[None]:
    """Start without gradients, and put the policy's own back afterwards."""
    before = [gradient.clone() for _, gradient in policy.gradients()]
    policy.set_gradients(None)
    try:
        yield
    finally:
        policy.set_gradients(before if any(gradient.any() for gradient in before) else None)


def proxy_shares(batch: PolicyBatch) -> pd.DataFrame:
    """Return each token's share of the summed sizes |A| w (1 - p), for back ends without forward mode.

    The size |A| w (1 - p) is the loss's derivative with respect to the logit of the sampled token, without its sign. A
    is the advantage, w the weight of the token's loss, and p the token's probability when it was sampled. It needs no
    extra pass. It ignores directions, and how far the derivative of a logit reaches into the weights. So nothing is
    negative, nothing cancels, and sums over rows are not shares of the gradient. Columns as in `token_shares`.
    """
    parts = [own for _, own in batch.rows[nonzero(batch.rows["advantage"])].groupby("agent", sort=False)]
    sizes = [
        np.concatenate([np.abs(one.advantages_T) * one.weight * (1 - np.exp(one.logprobs)) for one in samples_of(own)])
        for own in parts
    ]
    found = share_table(parts, sizes)
    return found.assign(share=found["share"] / found["share"].sum())


def norm_without(batch: PolicyBatch, row: int) -> float:
    """Return the norm of the policy's gradient without one row's loss; denominators stay. Costs a pass of one row."""
    agent = batch.rows.loc[row, "agent"]
    used, samples = batch.agents[agent].used.index, batch.agents[agent].samples
    if row not in used:
        return batch.norm
    total = [gradient.clone() for _, gradient in batch.policy.gradients()]
    with restored_gradients(batch.policy):
        batch.policy.forward_backward([samples[used.get_loc(row)]], batch.loss)
        own = [gradient for _, gradient in batch.policy.gradients()]
        batch.policy.set_gradients([gradient - part for gradient, part in zip(total, own, strict=True)])
        return batch.norm


def norms_with(batch: PolicyBatch, advantages: pd.Series) -> tuple[float, dict[str, float]]:
    """Return the policy's and the agents' norms under other advantages, indexed as `table`. Costs one pass."""
    rows = batch.rows.assign(advantage=advantages)
    other = policy_batch(batch.name, batch.policy, rows, batch.loss, batch.aggregate, batch.table)
    with restored_gradients(batch.policy):
        other = compute_gradients(other)
        return other.norm, other.norms
