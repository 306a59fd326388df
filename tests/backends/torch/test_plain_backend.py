"""`load_policy(..., plain=True)` samples and trains as the fast code does, up to float noise."""

import numpy as np
import pytest
import torch
from backends.drawn import drawn, requests

import mas_lab as lab


def policies(model_dir, **options):
    return [lab.load_policy(model_dir, lr=1e-2, plain=plain, **options) for plain in (True, False)]


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_completions_are_those_of_the_fast_sampler(model_dirs, kind):
    asked = requests(lengths=(3, 2, 4), each=6, temperatures=(0.0, 0.7, 1.0))
    plain, fast = (policy.sample(asked) for policy in policies(model_dirs[kind]))
    for one, other in zip(plain, fast, strict=True):
        assert (one.ids, one.finish, one.text) == (other.ids, other.finish, other.text)
        assert np.allclose(one.logprobs, other.logprobs, atol=1e-5)


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_logprobs_and_gradients_are_those_of_the_fast_pass(model_dirs, kind):
    plain, fast = policies(model_dirs[kind])
    samples = drawn(fast, temperatures=(0.5, 1.0))
    found = [policy.forward_backward(samples, lab.clipped(0.2, entropy=0.1)) for policy in (plain, fast)]
    torch.testing.assert_close(found[0].logprobs_N, found[1].logprobs_N, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[0].entropy_N, found[1].entropy_N, atol=1e-5, rtol=0)
    for (name, one), (same, other) in zip(plain.gradients(), fast.gradients(), strict=True):
        assert name == same and (one - other).norm() <= 1e-5 * fast.gradient_norm()
    assert plain.gradient_norm() == pytest.approx(fast.gradient_norm(), rel=1e-5)


def test_adapters_sample_each_with_their_own_weights(model_dirs):
    found = []
    for plain in (True, False):
        base = lab.load_base(model_dirs["qwen3"], adapters=2, rank=4, lr=1e-1, plain=plain)
        team = [base.adapter(agent) for agent in ("a", "b")]
        team[1].forward_backward(drawn(team[1]), lab.reinforce())
        team[1].optim_step(None)
        tickets = [policy.engine.submit(policy, requests()) for policy in team]
        answers = dict(team[0].engine.ready())
        found.append([[answers[ticket].ids for ticket in own] for own in tickets])
    assert found[0] == found[1] and found[0][0] != found[0][1]
