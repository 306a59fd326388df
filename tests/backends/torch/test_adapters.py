"""Several adapters over one base: mixed batches, and that nobody's step touches anybody else."""

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from mas_lab.backends.loading import load_base, load_policy
from mas_lab.policy import PolicyError, Request, Sample

AGENTS = ("solver", "verifier", "fixer")


class Reinforce:
    needs_entropy = False
    needs_reference = False

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N):
        return -advantages_N * logprobs_N


class ToReference(Reinforce):
    needs_reference = True


@pytest.fixture(params=["auto", "padded"])
def base(request, qwen3):
    """Three adapters that differ clearly from the base and from each other."""
    base = load_base(qwen3, adapters=3, rank=4, lr=1e-2, packing=request.param)
    with torch.no_grad():
        for i, agent in enumerate(AGENTS):
            torch.manual_seed(i)
            for parameter in base.adapter(agent).parameters.values():
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return base


def requests(n=12, seed=0):
    rng = np.random.default_rng(seed)
    prompts = [tuple(rng.integers(4, 60, length).tolist()) for length in (4, 9, 6)]
    return [Request(prompts[i % 3], 6, 1.0, int(rng.integers(2**62))) for i in range(n)]


def samples(policy, seed=0):
    rng = np.random.default_rng(seed)
    asked = requests(seed=seed)
    return [
        Sample(r.prompt_ids, c.ids, c.logprobs, 1.0, float(rng.normal()), 0.02)
        for r, c in zip(asked, policy.sample(asked), strict=True)
    ]


def weights(policy):
    return {name: parameter.detach().clone() for name, parameter in policy.parameters.items()}


def test_a_mixed_batch_is_what_each_adapter_says_alone(base):
    policies = [base.adapter(agent) for agent in AGENTS]
    asked = [requests(seed=i) for i in range(3)]
    tickets = [policy.engine.submit(policy, asked[i]) for i, policy in enumerate(policies)]
    answers = dict(policies[0].engine.ready())
    said = []
    for i, policy in enumerate(policies):
        alone = policy.sample(asked[i])
        together = [answers[ticket] for ticket in tickets[i]]
        assert [c.ids for c in together] == [c.ids for c in alone]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
        said.append([c.ids for c in policies[i].sample(asked[0])])
    assert said[0] != said[1] != said[2] != said[0]


def test_a_mixed_batch_is_what_peft_says(base):
    """Sampled log-probabilities against PEFT's own forward pass with that adapter active."""
    for agent in AGENTS:
        policy = base.adapter(agent)
        policy.model.set_adapter(policy.adapter)
        for request, completion in zip(requests(4), policy.sample(requests(4)), strict=True):
            ids = torch.tensor([[*request.prompt_ids, *completion.ids]])
            with torch.no_grad():
                logits = policy.model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1]
            expected = torch.log_softmax(logits, -1).gather(1, torch.tensor(completion.ids)[:, None])[:, 0]
            np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-4)


def test_trained_logprobs_are_the_sampled_ones_for_each_adapter(base):
    for agent in AGENTS:
        policy = base.adapter(agent)
        drawn = samples(policy)
        old_N = torch.tensor([logprob for s in drawn for logprob in s.logprobs])
        assert ((policy.logprobs(drawn).detach() - old_N).exp() - 1).abs().max() < 1e-4


def test_a_step_moves_its_own_adapter_and_nothing_else(base):
    first, second, third = (base.adapter(agent) for agent in AGENTS)
    own, others = weights(first), [weights(second), weights(third)]
    frozen = {n: p.detach().clone() for n, p in base.shared.net.named_parameters() if "lora_" not in n}
    second.forward_backward(samples(second), Reinforce())
    pending = {name: gradient.clone() for name, gradient in second.gradients()}
    first.forward_backward(samples(first), Reinforce())
    first.optim_step(max_norm=1.0)
    assert all(not torch.equal(p, own[name]) for name, p in first.parameters.items())
    for policy, before in zip((second, third), others, strict=True):
        assert all(torch.equal(p, before[name]) for name, p in policy.parameters.items())
    assert all(torch.equal(p, frozen[n]) for n, p in base.shared.net.named_parameters() if n in frozen)
    assert all(torch.equal(gradient, pending[name]) for name, gradient in second.gradients())
    second.optim_step(max_norm=1.0)
    assert any(not torch.equal(p, others[0][name]) for name, p in second.parameters.items())


def test_every_lora_parameter_is_in_exactly_one_optimizer(base):
    """Trap 9."""
    owners: dict[int, int] = {}
    for agent in AGENTS:
        for group in base.adapter(agent).optimizer.param_groups:
            for parameter in group["params"]:
                owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    lora = [parameter for name, parameter in base.shared.net.named_parameters() if "lora_" in name]
    assert len(lora) == 3 * 2 * 7 * 2
    assert [owners[id(parameter)] for parameter in lora] == [1] * len(lora)
    assert len(owners) == len(lora)


def test_every_parameter_of_an_adapter_gets_a_gradient(base):
    """Also after another adapter was the last to train."""
    for agent in (*AGENTS, AGENTS[0]):
        policy = base.adapter(agent)
        policy.forward_backward(samples(policy), Reinforce())
        assert all(gradient.abs().max() > 0 for _, gradient in policy.gradients())
        policy.set_gradients(None)


def test_the_reference_is_the_base_without_adapters(base, qwen3):
    policy = base.adapter("solver")
    drawn = samples(policy)
    reference_N = policy.forward_backward(drawn, ToReference()).reference_N
    torch.testing.assert_close(reference_N, load_policy(qwen3).logprobs(drawn).detach(), atol=1e-5, rtol=0)
    assert (reference_N - policy.logprobs(drawn).detach()).abs().max() > 0.1


def test_a_new_adapter_says_what_the_base_says(qwen3):
    policy = load_policy(qwen3, lora=4)
    assert [c.ids for c in policy.sample(requests())] == [c.ids for c in load_policy(qwen3).sample(requests())]
    assert sum(p.requires_grad for p in policy.model.parameters()) == len(policy.parameters) == 28


def test_seeds_decide_how_adapters_start(qwen3):
    def start(seed, agent):
        base = load_base(qwen3, adapters=2, rank=4, seed=seed)
        base.adapter("other")
        return [p.detach() for p in base.adapter(agent).parameters.values()]

    state = torch.get_rng_state()
    again, same, other = start(0, "a"), start(0, "a"), start(1, "b")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(x, y) for x, y in zip(again, same, strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(again, other, strict=True))


def test_more_adapters_than_announced_is_an_error(qwen3):
    base = load_base(qwen3, adapters=2, rank=4)
    assert base.adapter("a") is base.adapter("a") and base.adapter("a") is not base.adapter("b")
    with pytest.raises(PolicyError, match=r"agent 'c' asks for an adapter; .*adapters=2, taken by a, b"):
        base.adapter("c")


def test_slopes_of_an_adapter_add_up(base):
    policy = base.adapter("verifier")
    drawn = samples(policy)
    policy.forward_backward(drawn, Reinforce())
    gradient = [g.clone() for _, g in policy.gradients()]
    total = policy.directional_derivatives(drawn, Reinforce(), gradient).double().sum()
    torch.testing.assert_close(total, sum(g.double().square().sum() for g in gradient), rtol=1e-4, atol=0)


def test_plain_peft_loads_a_saved_adapter(base, qwen3, tmp_path):
    policy = base.adapter("fixer")
    policy.save(tmp_path)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(qwen3), tmp_path).eval()
    drawn = samples(policy)[0]
    with torch.no_grad():
        logits = plain(input_ids=torch.tensor([[*drawn.prompt_ids, *drawn.completion_ids]])).logits[0]
    logprobs = torch.log_softmax(logits[len(drawn.prompt_ids) - 1 : -1], -1)
    picked = logprobs.gather(1, torch.tensor(drawn.completion_ids)[:, None])[:, 0]
    np.testing.assert_allclose(picked.numpy(), drawn.logprobs, atol=1e-4)
