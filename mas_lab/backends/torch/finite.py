"""Checks for NaN and infinity in weights and log-probabilities, at the first place where they can appear.

Leaves out: gradients, which never reach an optimizer step if they are not finite (`policy`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from mas_lab.policy import NotFiniteError

BACK = "go back to weights that were kept (policy.load(folder), lab.load_run(run).team())"


def not_finite(tensors: Mapping[str, torch.Tensor]) -> str | None:
    """Return the first name whose tensor has no finite norm, or `None`; one pass over all tensors, one device sync.

    A norm beyond float32 counts as not finite, because such weights do not compute finite values either.
    """
    floating = {name: tensor.detach() for name, tensor in tensors.items() if tensor.is_floating_point()}
    if not floating:
        return None
    norms = torch._foreach_norm(list(floating.values()), 2, dtype=torch.float32)
    # `item()` of a tensor that is sharded over ranks (DTensor) gives only this rank's part.
    whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
    finite = torch.stack([norm.to(whole[0].device) for norm in whole]).isfinite()
    return None if finite.all().item() else list(floating)[int((~finite).nonzero()[0])]


def require_finite(tensors: Mapping[str, torch.Tensor], policy: str, when: str) -> None:
    """Raise NotFiniteError with the policy and the parameter if a tensor is not finite."""
    name = not_finite(tensors)
    if name is not None:
        raise NotFiniteError(f"policy {policy!r}: its weights are not finite {when}, the first is {name!r}; {BACK}")


def require_drawn(logprobs_R: np.ndarray, policies_R: Sequence, at_R: np.ndarray) -> None:
    """Raise NotFiniteError with the policy if a drawn token has no finite log-probability.

    There is one token per request, drawn for `policies_R[at_R]`.
    """
    lost = np.flatnonzero(~np.isfinite(logprobs_R))
    if len(lost):
        policy = policies_R[at_R[lost[0]]]
        require_finite(dict(policy.shared.net.named_parameters()), policy.name, "where it samples")
        raise NotFiniteError(
            f"policy {policy.name!r}: the log-probabilities of what it samples are not finite, though its weights are: "
            f"they have grown too large for {policy.shared.dtype}, or the temperature is too low for them; {BACK}"
        )
