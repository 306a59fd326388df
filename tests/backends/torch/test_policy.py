"""Log-probabilities with gradients, however they are packed, optimizer steps, and gradients in float16 (on a T4)."""

from dataclasses import replace

import pytest
import torch
from backends.drawn import KINDS, drawn, old_logprobs, same, weights

import mas_lab as lab
import mas_lab.backends.torch.fast.packing as packing_module
from mas_lab.backends.loading import load_base, load_policy
from mas_lab.losses import token_losses
from mas_lab.policy import PolicyError, Sample

CLIPPED, FULL = lab.clipped(0.2), lab.clipped(0.2, entropy=0.1, kl=0.1)


def draw(policy):
    return drawn(policy, temperatures=(0.6, 1.0), each=2)


def gradients(policy):
    return {name: gradient.clone() for name, gradient in policy.gradients()}


def accumulated(policy, samples, loss=CLIPPED):
    policy.set_gradients(None)
    return policy.forward_backward(samples, loss), gradients(policy)


def by_hand(policy, samples, loss):
    """Row by row, full logits, plain autograd; the reference is the start."""
    policy.set_gradients(None)
    losses = []
    for s in samples:
        logits = policy.model(input_ids=torch.tensor([[*s.prompt_ids, *s.completion_ids]])).logits[0]
        logprobs_TV = torch.log_softmax(logits[len(s.prompt_ids) - 1 : -1] / s.temperature, -1)
        picked_T = logprobs_TV.gather(1, torch.tensor(s.completion_ids)[:, None])[:, 0]
        entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        old_T = torch.tensor(s.logprobs)
        advantage_T, row_T = torch.full_like(old_T, s.advantage), torch.zeros_like(old_T, dtype=torch.long)
        loss_T = token_losses(loss, picked_T, old_T, advantage_T, row_T, entropy_T, picked_T.detach())
        (s.weight * loss_T).sum().backward()
        losses.append(loss_T.detach())
    return torch.cat(losses), gradients(policy)


def assert_same(one, other):
    """(tokens, gradients) of two passes agree."""
    torch.testing.assert_close(one[0].logprobs_N, other[0].logprobs_N, atol=1e-5, rtol=0)
    torch.testing.assert_close(one[0].entropy_N, other[0].entropy_N, atol=1e-5, rtol=1e-5)
    assert_close(one[1], other[1])


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=1e-6, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("kind", [*KINDS, "pad=eos"])
def test_gradients_are_those_of_plain_rows(model_dirs, kind):
    """Traps 4-6: ids as sampled, at any temperature, whatever the pad token is."""
    policy = load_policy(model_dirs[kind])
    samples = draw(policy)
    losses_N, expected = by_hand(policy, samples, FULL)
    tokens, found = accumulated(policy, samples, FULL)
    torch.testing.assert_close(tokens.losses_N, losses_N, atol=1e-5, rtol=1e-4)
    assert (tokens.logprobs_N.detach() - old_logprobs(samples)).abs().max() < 1e-4
    assert max(g.abs().max() for g in expected.values()) > 1e-3
    assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_packings_and_token_budgets_change_nothing(model_dirs, kind):
    """Prompts that begin alike share a tree where they are packed."""
    policy = load_policy(model_dirs[kind])
    samples = draw(policy)
    assert len(packing_module.pack_prefix_trees(samples, "packed", policy.shared.cost, 4096)) < 2 * 3
    first, *others = (
        accumulated(load_policy(model_dirs[kind], train_tokens=tokens, **options), samples)
        for tokens in (4096, 25)
        for options in ({"packing": "packed"}, {"packing": "padded"}, {"plain": True})
    )
    for other in others:
        assert_same(first, other)


@pytest.mark.parametrize("kind", ["qwen3", "gemma2"])
def test_a_large_vocabulary_in_chunks_is_the_same(model_dirs, kind, monkeypatch):
    policy = load_policy(model_dirs[kind])
    samples = draw(policy)
    whole = accumulated(policy, samples, FULL)
    monkeypatch.setattr(packing_module, "LARGE_LOGITS", 64 * 7)
    assert_same(whole, accumulated(policy, samples, FULL))


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_along_the_gradient_add_up_to_its_square(model_dirs, kind):
    policy, loss = load_policy(model_dirs[kind], train_tokens=30), FULL
    samples = draw(policy)
    tokens, found = accumulated(policy, samples, loss)
    slopes_N = policy.directional_derivatives(samples, loss, list(found.values()))
    square = sum(g.double().square().sum() for g in found.values())
    assert slopes_N.shape == tokens.losses_N.shape
    torch.testing.assert_close(slopes_N.double().sum(), square, rtol=1e-4, atol=0)
    only_first, first = accumulated(policy, samples[:1], loss)
    inner = sum((first[name].double() * found[name].double()).sum() for name in found)
    torch.testing.assert_close(slopes_N[: len(only_first.losses_N)].double().sum(), inner, rtol=1e-3, atol=1e-6)


def test_a_gradient_that_is_no_number_never_steps_and_a_stray_parameter_is_refused(qwen3):
    policy = load_policy(qwen3)
    sample = draw(policy)[0]
    policy.forward_backward([replace(sample, advantage=float("nan"))], CLIPPED)
    before = weights(policy)
    with pytest.raises(PolicyError, match="no step was made"):
        policy.optim_step(max_norm=1.0)
    assert same(before, weights(policy))
    policy.parameters["stray"] = torch.nn.Parameter(torch.zeros(3))  # it would be saved and never trained
    with pytest.raises(PolicyError, match="'stray'"):
        policy.forward_backward([sample], CLIPPED)


def half_gradient(qwen3, dtype, weight, twice=False):
    """Gradient of two samples, each weighing `weight`, divided by it; of the same again where `twice`."""
    policy = load_base(qwen3, adapters=1, rank=4, dtype=dtype, packing="padded").adapter("a")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for parameter in policy.parameters.values():
            parameter.add_(0.05 * torch.randn_like(parameter))
    for scale in (1, 256)[: 1 + twice]:
        samples = [Sample((5, 6, 7), (8, 9, 10), (-1.0,) * 3, 1.0, a, weight * scale) for a in (1.0, -0.5)]
        policy.forward_backward(samples, lab.reinforce())
    return torch.cat([g.flatten() for _, g in policy.gradients()]) / weight


def test_a_gradient_does_not_depend_on_how_small_its_weights_are(qwen3):
    exact = half_gradient(qwen3, None, 1.0)
    for weight in (1.0, 1e-3, 1e-5, 1e-7):
        half = half_gradient(qwen3, "float16", weight)
        assert (half - exact).norm() < 0.02 * exact.norm()
        assert (half != 0).float().mean() > 0.98
    waiting = half_gradient(qwen3, "float16", 1e-5, twice=True)  # gradients that wait keep their size
    assert (waiting - 257 * exact).norm() < 257 * 0.02 * exact.norm()
