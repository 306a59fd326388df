"""Compute the contribution of each token to a gradient, by one forward-mode derivative of the network.

Leaves out: the interpretation of the shares (`explain`), and gradients themselves (`policy`).
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from mas_lab.backends.torch.fast.tree_attention import attending, forward_mode
from mas_lab.losses import Loss, token_losses
from mas_lab.policy import PolicyError, Sample


def directional_derivatives(
    policy: Any, samples: Sequence[Sample], loss: Loss, direction: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Return the exact derivative (N,) of the weighted loss along `direction`, through each token.

    The path through a token is its log-probability, and its entropy if the loss needs it. `direction` has one tensor
    per gradient. With the policy's gradient G as direction, token t gets <its contribution to G, G>. The sum over all
    tokens is |G|^2. If the loss of a token reads only that token, its value is <grad of its loss, G>. If the loss reads
    the whole row, each token gets the part of the change that goes through it.

    The function takes one forward-mode derivative of the network (Baydin et al. 2018, arXiv 1502.05767) and a backward
    pass through the loss alone. This costs about one forward and backward pass. Raises PolicyError if the back end's
    kernels have no such derivative.
    """
    if not policy.shared.has_forward_mode:
        raise PolicyError(
            f"policy {policy.name!r}: no forward-mode derivative was tested for its model here; attribute a copy of it "
            'under backend="torch", if its architecture is in docs/gpus.md'
        )
    known_3N = policy.known(samples)
    slopes_N = torch.zeros(known_3N.shape[1], device=policy.device)
    policy.activate()
    # Fused kernels have no such derivative. Trees have an attention of their own.
    with torch.no_grad(), forward_mode(), attending(policy.shared.net.config, "eager"):
        along = zip(policy.parameters.items(), direction, strict=True)
        duals = {name: forward_ad.make_dual(parameter, part) for (name, parameter), part in along}

        def call(**inputs):
            return torch.func.functional_call(policy.shared.net, duals, (), inputs, tie_weights=True)

        for batch in policy.shared.micro_batches(samples):
            token_N = torch.from_numpy(batch.token_N).to(policy.device)
            try:
                with policy.shared.computing():
                    found_2N = batch.token_logprobs(policy.shared.net, loss.needs_entropy, call)
            except NotImplementedError as error:
                raise PolicyError(f"policy {policy.name!r}: no forward-mode derivative, {error}") from error
            duals_2N = [forward_ad.unpack_dual(values_N) for values_N in found_2N]
            reference_N = policy.reference_logprobs(batch) if loss.needs_reference else None
            pulls_2N = _pulls(loss, batch, known_3N[:, token_N], [dual_N.primal for dual_N in duals_2N], reference_N)
            for pull_N, (_, tangent_N) in zip(pulls_2N, duals_2N, strict=True):
                if pull_N is not None and tangent_N is not None:
                    slopes_N[token_N] += pull_N * tangent_N
    return slopes_N


@torch.enable_grad()
def _pulls(loss: Loss, batch: Any, known_3N: torch.Tensor, found_2N: Sequence[torch.Tensor], reference_N):
    """Return the derivatives (N,) of the weighted loss by log-probability and by entropy, or `None` if unused."""
    logprobs_N, entropy_N = (values_N.detach().requires_grad_() for values_N in found_2N)
    old_N, advantages_N, weights_N = known_3N
    losses_N = token_losses(loss, logprobs_N, old_N, advantages_N, batch.row_N, entropy_N, reference_N)
    return torch.autograd.grad((losses_N * weights_N).sum(), (logprobs_N, entropy_N), allow_unused=True)
