"""Gradients in float16, which a T4 trains in: they must not vanish because a batch is long and its weights small."""

import torch

from mas_lab.backends.loading import load_base
from mas_lab.cells.losses import reinforce
from mas_lab.policy import Sample


def gradient(qwen3, dtype, weight, twice=False):
    """Of two samples, each weighing `weight`, divided by it; of the same again where `twice`."""
    policy = load_base(qwen3, adapters=1, rank=4, dtype=dtype, packing="padded").adapter("a")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in policy.parameters.values():
            parameter.add_(0.05 * torch.randn_like(parameter))
    for scale in (1, 256)[: 1 + twice]:
        samples = [Sample((5, 6, 7), (8, 9, 10), (-1.0,) * 3, 1.0, a, weight * scale) for a in (1.0, -0.5)]
        policy.forward_backward(samples, reinforce())
    return torch.cat([g.flatten() for _, g in policy.gradients()]) / weight


def test_a_gradient_does_not_depend_on_how_small_its_weights_are(qwen3):
    exact = gradient(qwen3, None, 1.0)
    for weight in (1.0, 1e-3, 1e-5, 1e-7):
        half = gradient(qwen3, "float16", weight)
        assert (half - exact).norm() < 0.02 * exact.norm()
        assert (half != 0).float().mean() > 0.98
    waiting = gradient(qwen3, "float16", 1e-5, twice=True)  # gradients that wait keep their size
    assert (waiting - 257 * exact).norm() < 257 * 0.02 * exact.norm()
