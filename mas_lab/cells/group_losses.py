"""The pass of a loss over whole groups (`Loss.unit`), such as one that compares the candidates of a prompt.

Leaves out: losses of a token (`losses`), and the step itself (`update`).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.losses import Loss, UpdateError, look, reinforce, token_losses
from mas_lab.policy import Policy
from mas_lab.table import place


def group_pass(policy: Policy, loss: Loss, own: Any) -> Any:
    """Add the gradient of a loss over whole groups, by the chain rule; `own` is the `AgentBatch` of its rows.

        dL/dw = sum over tokens t of dL/dlog p_t * dlog p_t/dw

    The first pass computes log p, and the loss its slopes dL/dlog p. The second pass is that of `reinforce`, with the
    negative slope, over the weight, as the advantage of each token. So micro-batches never cut a group.
    """
    samples, row_N = own.samples, own.row_N
    tokens = policy.forward_backward(samples, look(loss.needs_reference))
    logprobs_N = tokens.logprobs_N.detach().requires_grad_()
    old_N, advantages_N = own.loss_inputs(logprobs_N)
    weights_N = logprobs_N.new_tensor(np.array([sample.weight for sample in samples])[row_N])
    losses_N = logprobs_N.new_zeros(len(row_N))
    for rows in own.used.reset_index(drop=True).groupby("group").indices.values():
        at = np.flatnonzero(np.isin(row_N, rows))
        own_N = logprobs_N.new_tensor(np.unique(row_N[at], return_inverse=True)[1]).long()
        reference_N = None if tokens.reference_N is None else tokens.reference_N[at]
        group_N = token_losses(loss, logprobs_N[at], old_N[at], advantages_N[at], own_N, None, reference_N)
        (group_N * weights_N[at]).sum().backward()
        losses_N[at] = group_N.detach()
    slopes = np.split(-logprobs_N.grad.double().cpu().numpy(), np.flatnonzero(np.diff(row_N)) + 1)
    linear = [replace(one, advantage=slope_T / one.weight) for one, slope_T in zip(samples, slopes, strict=True)]
    policy.forward_backward(linear, reinforce())
    return replace(own, tokens=replace(tokens, losses_N=losses_N), gradient_pass=(linear, reinforce()))


def require_comparable_groups(rows: pd.DataFrame, loss: Loss) -> None:
    """Raise UpdateError if a group has a single row or several agents."""
    groups = rows.groupby("group")["agent"]
    bad = (groups.transform("size") < 2) | (groups.transform("nunique") > 1)
    if bad.any():
        row = rows[bad].iloc[0]
        raise UpdateError(
            f"update: {type(loss).__name__} compares the rows of a group, and group {row['group']!r} has a single row "
            f"or several agents, at {place(row)}; sample more candidates, or group by agent too"
        )
