"""On a GPU: log-probabilities and gradients of each number type and packing are those of the CPU in 32 bits.

The other tests hide GPUs, so that they compute what they compare with. This file runs with MAS_LAB_TESTS=cuda (`make
gpu-check`).
"""

import os

import pytest
import torch
from backends.drawn import requests
from backends.torch.test_architectures import PEOPLE_LOAD, folder_of, samples_of  # noqa: F401 - a fixture

import mas_lab as lab
from mas_lab.backends.devices import probe

if os.environ.get("MAS_LAB_TESTS") != "cuda" or not torch.cuda.is_available() or probe("cuda") != "works":
    pytest.skip("no GPU is asked for, or none works", allow_module_level=True)
CLOSE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.15}
"""Mean difference of the log-probabilities in nats; that of a gradient as a share of its norm."""


def learned(folder, samples, **options):
    """Return log-probabilities (N,) and gradient (n,) of the samples, both in float32 on the CPU."""
    policy = lab.load_policy(folder, **options)
    tokens = policy.forward_backward(samples, lab.reinforce())
    gradient = torch.cat([part.flatten().float().cpu() for _, part in policy.gradients()])
    return tokens.logprobs_N.float().cpu(), gradient


@pytest.mark.parametrize("kind", PEOPLE_LOAD)
@pytest.mark.parametrize("dtype", CLOSE)
def test_a_gpu_computes_what_the_cpu_does(folder_of, kind, dtype):  # noqa: F811
    folder, asked = folder_of(kind), requests()
    policy = lab.load_policy(folder, dtype=dtype, device="cuda")
    samples = samples_of(asked, policy.sample(asked))
    known_N, gradient = learned(folder, samples, dtype="float32", device="cpu")
    drawn_N = torch.tensor([logprob for sample in samples for logprob in sample.logprobs])
    assert (drawn_N - known_N).abs().mean() < CLOSE[dtype]
    for packing in ("padded", "packed", "auto"):
        found_N, found = learned(folder, samples, dtype=dtype, device="cuda", packing=packing)
        assert (found_N - known_N).abs().mean() < CLOSE[dtype]
        assert (found - gradient).norm() < CLOSE[dtype] * gradient.norm()
