"""Exercises of notebook 10: models that fit a GPU, an adapter's weights, the gap between sampler and trainer."""

import numpy as np

from mas_lab.course.compare import agrees, need
from mas_lab.course.exercises import exercise

T4 = 14.5
"""Memory of a T4 in GiB."""


def _peak(tokens: int) -> float:
    from mas_lab.backends.placement import budget

    table = budget(agents=2, rank=16, train_tokens=2048, sample_tokens=tokens)
    return float(table.loc[("Qwen3-1.7B", "16-bit + LoRA"), "peak"])


@exercise("10.1")
def largest_that_fits(tokens):
    need(tokens > 0 and np.log2(tokens) % 1 == 0, "give a power of two")
    peak, twice = _peak(int(tokens)), _peak(int(2 * tokens))
    need(peak < T4, f"the peak of {peak:.1f} GiB is more than the T4 has")
    need(twice >= T4, f"twice as many tokens also fit, in {twice:.1f} GiB")
    return f"{peak:.1f} GiB"


@exercise("10.2")
def adapter_weights(answer):
    def right(layers, rank):
        return sum(rank * (inputs + outputs) for inputs, outputs in layers)

    rng = np.random.default_rng(0)
    agrees(answer, right, [(rng.integers(8, 512, size=(1 + case, 2)).tolist(), 4 * case + 1) for case in range(6)])


@exercise("10.3")
def mismatch(answer):
    def right(trained, sampled):
        return np.abs(np.exp(trained - sampled) - 1).max()

    rng = np.random.default_rng(1)
    drawn = [(-rng.exponential(size=20), rng.normal(scale=scale, size=20)) for scale in (1e-3, 0.2, 1e-3, 0.2)]
    agrees(answer, right, [(sampled + shift, sampled) for sampled, shift in drawn])
