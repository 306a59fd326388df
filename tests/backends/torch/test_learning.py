"""Log-probabilities with gradients, however they are packed, and optimizer steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import mas_lab.backends.torch.fast.packing as packing_module
from mas_lab.backends.loading import load_policy
from mas_lab.policy import PolicyError, Request, Sample

KINDS = ("qwen3", "llama", "gpt2", "gemma2")


class Clipped:
    """PPO's clipped loss, with an entropy bonus and a penalty to the reference where asked."""

    def __init__(self, needs_entropy=False, needs_reference=False):
        self.needs_entropy, self.needs_reference = needs_entropy, needs_reference

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N):
        ratio_N = torch.exp(logprobs_N - old_N)
        losses_N = -torch.minimum(ratio_N * advantages_N, ratio_N.clamp(0.8, 1.2) * advantages_N)
        if self.needs_entropy:
            losses_N = losses_N - 0.1 * entropy_N
        if self.needs_reference:
            gap_N = reference_N - logprobs_N
            losses_N = losses_N + 0.1 * (gap_N.exp() - gap_N - 1)
        return losses_N


def reinforce(logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N):
    return -advantages_N * logprobs_N


reinforce.needs_entropy = reinforce.needs_reference = False


def drawn(policy, temperatures=(0.6, 1.0), each=5, max_tokens=7, seed=0):
    """Samples drawn from the policy, with advantages and weights made up."""
    rng = np.random.default_rng(seed)
    prompts = [tuple(rng.integers(4, 60, n).tolist()) for n in (4, 11, 6)]
    asked = [
        Request(p, max_tokens, t, int(rng.integers(2**62))) for p in prompts for t in temperatures for _ in range(each)
    ]
    return [
        Sample(r.prompt_ids, c.ids, c.logprobs, r.temperature, float(rng.normal()), float(rng.random()) / 300)
        for r, c in zip(asked, policy.sample(asked), strict=True)
    ]


def gradients(policy):
    return {name: gradient.clone() for name, gradient in policy.gradients()}


def accumulated(policy, samples, loss):
    policy.set_gradients(None)
    tokens = policy.forward_backward(samples, loss)
    return tokens, gradients(policy)


def by_hand(policy, samples, loss):
    """Row by row, full logits, plain autograd."""
    policy.set_gradients(None)
    losses = []
    for s in samples:
        logits = policy.model(input_ids=torch.tensor([[*s.prompt_ids, *s.completion_ids]])).logits[0]
        logprobs_TV = torch.log_softmax(logits[len(s.prompt_ids) - 1 : -1] / s.temperature, -1)
        picked_T = logprobs_TV.gather(1, torch.tensor(s.completion_ids)[:, None])[:, 0]
        entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        old_T = torch.tensor(s.logprobs)
        same_T = torch.zeros_like(old_T, dtype=torch.long)
        loss_T = loss(picked_T, old_T, torch.full_like(old_T, s.advantage), same_T, entropy_T, picked_T.detach())
        (s.weight * loss_T).sum().backward()
        losses.append(loss_T.detach())
    return torch.cat(losses), gradients(policy)


def assert_same(one, other, atol=1e-6):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(
            one[name], other[name], atol=atol, rtol=1e-5, msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [Clipped(), Clipped(needs_entropy=True), Clipped(needs_reference=True)])
def test_gradients_are_those_of_plain_rows(model_dirs, kind, loss):
    policy = load_policy(model_dirs[kind])
    samples = drawn(policy)
    losses_N, expected = by_hand(policy, samples, loss)
    tokens, found = accumulated(policy, samples, loss)
    torch.testing.assert_close(tokens.losses_N, losses_N, atol=1e-5, rtol=1e-4)
    assert max(g.abs().max() for g in expected.values()) > 1e-3
    assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_is_padded(model_dirs, kind):
    samples = drawn(load_policy(model_dirs[kind]))
    packed, padded, rows = (
        accumulated(load_policy(model_dirs[kind], packing=p, train_tokens=n), samples, Clipped())
        for p, n in (("packed", 4096), ("padded", 4096), ("padded", 1))
    )
    for other_tokens, other in (padded, rows):
        torch.testing.assert_close(packed[0].logprobs_N, other_tokens.logprobs_N, atol=1e-5, rtol=0)
        torch.testing.assert_close(packed[0].entropy_N, other_tokens.entropy_N, atol=1e-5, rtol=1e-5)
        assert_same(packed[1], other)


def test_auto_packs_short_completions_and_not_long_ones():
    cost = packing_module.Cost(linear=1000.0, attention=1.0)
    short = [Sample(range(4, 54), [5 + k, 6], [0.0] * 2, 1.0, 1.0, 1.0) for k in range(8)]
    long = [Sample([4], [5 + k] * 4000, [0.0] * 4000, 1.0, 1.0, 1.0) for k in range(8)]
    assert len(packing_module.pack_prefix_trees(short, "auto", cost)) == 1
    assert len(packing_module.pack_prefix_trees(long, "auto", cost)) == 8


def test_shared_beginnings_are_one_node():
    tree = packing_module.Tree(1.0)
    for completion in ([1, 2, 3], [1, 2, 4], [1, 5, 2], [1, 2, 3]):
        tree.add((7, 8), completion, np.arange(3))
    assert tree.ids == [7, 8, 1, 2, 5]
    assert tree.parents == [-1, 0, 1, 2, 2]
    assert tree.predictors == [[1, 2, 3], [1, 2, 3], [1, 2, 4], [1, 2, 3]]
    assert tree.positions().tolist() == [0, 1, 2, 3, 3]
    assert tree.visible()[4].tolist() == [True, True, True, False, True]


@pytest.mark.parametrize("kind", ["qwen3", "pad=eos"])
def test_trained_logprobs_are_the_sampled_ones(model_dirs, kind):
    """Traps 4-6: ids as sampled, at any temperature, whatever the pad token is."""
    policy = load_policy(model_dirs[kind])
    samples = drawn(policy, temperatures=(0.4, 1.0, 2.5), each=20)
    assert any(s.completion_ids[-1] == 2 for s in samples)
    tokens = policy.forward_backward(samples, Clipped())
    old_N = torch.tensor([logprob for s in samples for logprob in s.logprobs])
    assert ((tokens.logprobs_N - old_N).exp() - 1).abs().max() < 1e-4


def test_only_sampled_tokens_are_trained_on(qwen3):
    """Trap 3: a row's gradient does not know how long its neighbours are, and its EOS counts like any token."""
    policy = load_policy(qwen3)
    long = Sample((5, 6, 7), (8, 9, 10, 11, 12, 2), (-1.0,) * 6, 1.0, 1.0, 0.1)
    short = Sample((5, 6, 7), (8, 2), (-1.0, -1.0), 1.0, -0.5, 0.1)
    _, alone = accumulated(policy, [short], reinforce)
    _, rest = accumulated(policy, [long], reinforce)
    tokens, both = accumulated(policy, [long, short], reinforce)
    assert tokens.logprobs_N.shape == (8,)
    assert_same(both, {name: alone[name] + rest[name] for name in alone})
    _, cut = accumulated(policy, [replace(short, completion_ids=(8,), logprobs=(-1.0,))], reinforce)
    assert any((cut[name] - alone[name]).abs().max() > 1e-4 for name in alone)


def test_the_token_budget_changes_nothing(qwen3):
    samples = drawn(load_policy(qwen3))
    whole, cut = (accumulated(load_policy(qwen3, train_tokens=n), samples, Clipped()) for n in (4096, 20))
    torch.testing.assert_close(whole[0].losses_N, cut[0].losses_N, atol=1e-5, rtol=1e-5)
    assert_same(whole[1], cut[1])


@pytest.mark.parametrize("loss", [Clipped(), Clipped(needs_entropy=True)])
@pytest.mark.parametrize("kind", ["qwen3", "gemma2"])
def test_a_large_vocabulary_in_chunks_is_the_same(model_dirs, kind, loss, monkeypatch):
    samples = drawn(load_policy(model_dirs[kind]))
    whole = accumulated(load_policy(model_dirs[kind]), samples, loss)
    monkeypatch.setattr(packing_module, "LARGE_LOGITS", 64 * 7)
    chunked = accumulated(load_policy(model_dirs[kind]), samples, loss)
    torch.testing.assert_close(whole[0].logprobs_N, chunked[0].logprobs_N, atol=1e-5, rtol=0)
    torch.testing.assert_close(whole[0].entropy_N, chunked[0].entropy_N, atol=1e-5, rtol=1e-5)
    assert_same(whole[1], chunked[1])


def test_logprobs_carry_gradients_in_the_order_of_the_samples(qwen3):
    policy = load_policy(qwen3, train_tokens=20)
    samples = drawn(policy)
    logprobs_N = policy.logprobs(samples)
    old_N = torch.tensor([logprob for s in samples for logprob in s.logprobs])
    torch.testing.assert_close(logprobs_N.detach(), old_N, atol=1e-4, rtol=0)
    logprobs_N.sum().backward()
    assert all(p.grad is not None for p in policy.parameters.values())


@pytest.mark.parametrize("loss", [Clipped(), Clipped(needs_entropy=True, needs_reference=True)])
@pytest.mark.parametrize("kind", KINDS)
def test_slopes_along_the_gradient_add_up_to_its_square(model_dirs, kind, loss):
    policy = load_policy(model_dirs[kind], train_tokens=30)
    samples = drawn(policy)
    tokens, found = accumulated(policy, samples, loss)
    slopes_N = policy.directional_derivatives(samples, loss, list(found.values()))
    square = sum(g.double().square().sum() for g in found.values())
    assert slopes_N.shape == tokens.losses_N.shape
    torch.testing.assert_close(slopes_N.double().sum(), square, rtol=1e-4, atol=0)
    only_first, first = accumulated(policy, samples[:1], loss)
    inner = sum((first[name].double() * found[name].double()).sum() for name in found)
    torch.testing.assert_close(slopes_N[: len(only_first.losses_N)].double().sum(), inner, rtol=1e-3, atol=1e-6)


def test_the_reference_is_the_frozen_start(qwen3):
    policy = load_policy(qwen3, lr=1e-2)
    samples = drawn(policy)
    before = policy.forward_backward(samples, Clipped(needs_reference=True))
    torch.testing.assert_close(before.reference_N, before.logprobs_N, atol=1e-5, rtol=0)
    policy.optim_step(max_norm=None)
    after = policy.forward_backward(samples, Clipped(needs_reference=True))
    assert (after.logprobs_N - before.logprobs_N).abs().max() > 1e-2
    torch.testing.assert_close(after.reference_N, before.reference_N, atol=0, rtol=0)


def test_apply_clips_and_reports_both_norms(qwen3):
    """Trap 13."""
    policy = load_policy(qwen3, lr=1e-2)
    samples = drawn(policy)
    _, found = accumulated(policy, samples, Clipped())
    norm = float(torch.sqrt(sum(g.square().sum() for g in found.values())))
    weights = {name: p.detach().clone() for name, p in policy.parameters.items()}
    before, after = policy.optim_step(max_norm=norm / 2, lr_scale=0.5)
    assert before == pytest.approx(norm, rel=1e-5) and after == pytest.approx(norm / 2, rel=1e-5)
    # AdamW's first step moves every weight with a clear gradient by lr * lr_scale.
    moved = torch.cat([(p - weights[n]).abs()[found[n].abs() > 1e-4] for n, p in policy.parameters.items()])
    torch.testing.assert_close(moved, torch.full_like(moved, 5e-3), rtol=1e-2, atol=0)
    assert all(p.grad is None for p in policy.parameters.values())
    assert policy.optim_step(max_norm=1.0)[0] == 0.0


def test_a_gradient_that_is_not_finite_never_steps(qwen3):
    policy = load_policy(qwen3)
    policy.forward_backward([replace(drawn(policy)[0], advantage=float("nan"))], Clipped())
    weights = [p.detach().clone() for p in policy.parameters.values()]
    with pytest.raises(PolicyError, match="no step was made"):
        policy.optim_step(max_norm=1.0)
    assert all(torch.equal(p, w) for p, w in zip(policy.parameters.values(), weights, strict=True))


def test_set_gradients_replaces_them(qwen3):
    policy = load_policy(qwen3)
    samples = drawn(policy)
    _, first = accumulated(policy, samples[:7], Clipped())
    _, second = accumulated(policy, samples[7:], Clipped())
    policy.set_gradients(first[name] + second[name] for name in first)
    summed = gradients(policy)
    assert_same(summed, accumulated(policy, samples, Clipped())[1])


def test_a_parameter_without_gradient_is_an_error(qwen3):
    """Trap 9: what would be saved and never trained is said at once."""
    policy = load_policy(qwen3)
    policy.parameters["stray"] = torch.nn.Parameter(torch.zeros(3))
    with pytest.raises(PolicyError, match="'stray'"):
        policy.forward_backward(drawn(policy), Clipped())


def test_samples_that_cannot_be_trained_on_are_refused(qwen3):
    policy = load_policy(qwen3)
    sample = drawn(policy)[0]
    with pytest.raises(PolicyError, match="greedily"):
        policy.forward_backward([replace(sample, temperature=0.0)], Clipped())
    with pytest.raises(PolicyError, match="log-probabilities"):
        policy.forward_backward([replace(sample, logprobs=sample.logprobs[:-1])], Clipped())
    with pytest.raises(PolicyError, match="empty completion"):
        policy.forward_backward([replace(sample, completion_ids=(), logprobs=())], Clipped())


def test_training_raises_the_probability_of_what_was_good(qwen3):
    policy = load_policy(qwen3, lr=1e-3)
    with torch.no_grad():
        wanted = int(policy.model(input_ids=torch.tensor([[5, 6, 7]])).logits[0, -1].topk(2).indices[1])
    for step in range(12):
        asked = [Request((5, 6, 7), 1, 1.0, 1000 * step + k) for k in range(64)]
        answers = policy.sample(asked)
        reward = np.array([float(c.ids[0] == wanted) for c in answers])
        samples = [
            Sample(r.prompt_ids, c.ids, c.logprobs, 1.0, advantage, 1 / 64)
            for r, c, advantage in zip(asked, answers, (reward - reward.mean()).tolist(), strict=True)
        ]
        policy.forward_backward(samples, Clipped())
        policy.optim_step(max_norm=1.0)
        if step == 0:
            first = reward.mean()
    assert reward.mean() > first + 0.2
