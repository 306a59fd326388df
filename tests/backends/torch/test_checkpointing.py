"""Gradient checkpointing: the same gradient from fewer kept activations, and nothing of it outside the update."""

import numpy as np
import pytest
import torch

import mas_lab as lab
from mas_lab.policy import Request, Sample

LOSS = lab.clipped(0.2)


def learned(model, **options):
    """Return the gradient of one batch, the bytes that its passes kept, and the policy."""
    policy, kept = lab.load_policy(model, **options), []
    rng = np.random.default_rng(0)
    prompts = [tuple(rng.integers(3, 12, 6).tolist()) for _ in range(2)]
    samples = [Sample(prompt, tuple(rng.integers(3, 12, 5).tolist()), (-1.0,) * 5, 1.0, float(advantage), 0.25)
               for prompt in prompts for advantage in (1, -1)]  # fmt: skip
    pack = lambda tensor: kept.append(tensor.nbytes) or tensor  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        policy.forward_backward(samples, LOSS)
    return torch.cat([g.flatten() for _, g in policy.gradients()]), sum(kept), policy


@pytest.mark.parametrize("options", [{}, {"packing": "padded"}, {"plain": True}, {"lora": 4}], ids=str)
def test_the_gradient_is_the_same_and_less_is_kept(models, options):
    model = models / "a"
    (plain, all_of_it, _), (again, less, policy) = (learned(model, checkpointing=on, **options) for on in (False, True))
    torch.testing.assert_close(again, plain, rtol=1e-5, atol=1e-7)
    assert less < 0.7 * all_of_it
    assert not any(layer.training for layer in policy.shared._checkpointed)
    [first] = policy.sample([Request((3, 4, 5), 4, 1.0, 0)])
    assert len(first.ids) <= 4
