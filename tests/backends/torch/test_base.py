"""Several adapters over one base: mixed batches, and that nobody's step touches anybody else."""

import shutil

import numpy as np
import pytest
import torch
from backends.drawn import drawn, gap, requests, same, weights
from peft import PeftModel
from transformers import AutoModelForCausalLM

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy, restore_policies
from mas_lab.policy import PolicyError

AGENTS = ("solver", "verifier", "fixer")


@pytest.fixture(params=[{"packing": "auto"}, {"packing": "padded"}, {"plain": True}], ids=str)
def base(request, qwen3):
    """Three adapters that differ clearly from the base and from each other, one of a smaller rank."""
    base = load_base(qwen3, adapters=3, rank=4, lr=1e-2, **request.param)
    with torch.no_grad():
        for i, agent in enumerate(AGENTS):
            torch.manual_seed(i)
            for parameter in base.adapter(agent, rank=2 if i == 1 else None).parameters.values():
                parameter.copy_(torch.randn_like(parameter) * 0.2)
    return base


def test_a_mixed_batch_is_what_each_adapter_says_alone_and_what_peft_says(base):
    policies, asked = [base.adapter(agent) for agent in AGENTS], [requests(seed=i) for i in range(3)]
    tickets = [policy.engine.submit(policy, own) for policy, own in zip(policies, asked, strict=True)]
    answers, said = dict(base.shared.engine.ready()), []
    for policy, own, numbers in zip(policies, asked, tickets, strict=True):
        alone, together = policy.sample(own), [answers[ticket] for ticket in numbers]
        assert [c.ids for c in together] == [c.ids for c in alone]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)
        assert gap(policy, own, together) < 1e-4
        said.append([c.ids for c in policy.sample(asked[0])])
    assert said[0] != said[1] != said[2] != said[0]


def test_every_lora_parameter_gets_a_gradient_that_slopes_add_up_to(base):
    """Also after another adapter was the last to train."""
    for agent in (*AGENTS, AGENTS[0]):
        policy = base.adapter(agent)
        samples = drawn(policy)
        policy.forward_backward(samples, lab.reinforce())
        gradient = [gradient.clone() for _, gradient in policy.gradients()]
        assert all(part.abs().max() > 0 for part in gradient)
        total = policy.directional_derivatives(samples, lab.reinforce(), gradient).double().sum()
        torch.testing.assert_close(total, sum(part.double().square().sum() for part in gradient), rtol=1e-4, atol=0)
        policy.set_gradients(None)


def test_seeds_decide_how_adapters_start(qwen3):
    def start(seed, agent):
        base = load_base(qwen3, adapters=2, rank=4, seed=seed)
        base.adapter("other")
        return weights(base.adapter(agent))

    state = torch.get_rng_state()
    again, equal, other = start(0, "a"), start(0, "a"), start(1, "b")
    assert torch.equal(torch.get_rng_state(), state)
    assert same(again, equal) and not same(again, other)


def test_plain_peft_loads_a_saved_adapter(base, qwen3, tmp_path):
    policy = base.adapter("fixer")
    policy.save(tmp_path)
    net = AutoModelForCausalLM.from_pretrained(qwen3)
    members = {"model": PeftModel.from_pretrained(net, tmp_path).eval(), "activate": lambda self: None}
    plain = type("Plain", (), members)()
    assert gap(plain, requests(), policy.sample(requests())) < 1e-4


def test_adapters_start_from_saved_ones(qwen3, tmp_path):
    def alike(tensors, policy):
        return all(map(torch.equal, tensors.values(), policy.parameters.values()))

    first = load_policy(qwen3, lora=4, seed=1)
    with torch.no_grad():
        for parameter in first.parameters.values():
            parameter.add_(0.1)
    first.save(tmp_path / "warm")
    base = load_base(qwen3, adapters=2, rank=4, start=tmp_path / "warm")
    for agent in ("solver", "verifier"):
        policy = base.adapter(agent)
        assert alike(policy.parameters, first) and alike(policy.first_weights, first)
        assert policy.describe()["lora"]["start"] != load_policy(qwen3, lora=4).describe()["lora"].get("start")
    for agent in base.policies:
        base.adapter(agent).save(tmp_path / agent)
    shutil.rmtree(tmp_path / "warm")
    for agent, again in restore_policies({agent: tmp_path / agent for agent in base.policies}).items():
        assert alike(again.parameters, first)
        assert again.describe() == base.adapter(agent).describe()


def test_a_start_that_does_not_fit_is_refused(qwen3, models, tmp_path):
    load_policy(qwen3, lora=4).save(tmp_path / "warm")
    with pytest.raises(PolicyError, match=r"start='.*nowhere' is no folder of an adapter that policy.save wrote"):
        load_base(qwen3, start=tmp_path / "nowhere")
    with pytest.raises(PolicyError, match=r"is an adapter of '.*', and the base is '.*'"):
        load_base(models / "a", start=tmp_path / "warm")
    with pytest.raises(PolicyError, match=r"'rank': 4, .*, and this one has {'rank': 2"):
        load_policy(qwen3, lora=2, start=tmp_path / "warm")
    with pytest.raises(PolicyError, match="holds weights of an adapter; give lora="):
        load_policy(qwen3, start=tmp_path / "warm")
