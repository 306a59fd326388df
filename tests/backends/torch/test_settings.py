"""Each agent's own settings: rank and learning rate of its adapter, kept with it; and the rate of a model
for which none is named.
"""

import json
import shutil

import pytest
import torch

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy, restore_policies
from mas_lab.backends.torch.source import Source
from mas_lab.policy import PolicyError, Request, Sample

ASKED = [Request((4, 9, 6), 6, 1.0, seed) for seed in range(8)]


def ranks(policy) -> set[int]:
    return {p.shape[0] for name, p in policy.parameters.items() if "lora_A" in name}


def step(policy) -> None:
    said = policy.sample(ASKED)
    samples = [
        Sample(r.prompt_ids, c.ids, c.logprobs, 1.0, (-1.0) ** i, 0.1)
        for i, (r, c) in enumerate(zip(ASKED, said, strict=True))
    ]
    policy.forward_backward(samples, lab.clipped(0.2))
    policy.optim_step(1.0)


def test_each_adapter_has_its_own_rank_and_rate(qwen3):
    base = load_base(qwen3, adapters=3, rank=8, lr=1e-2)
    solver, verifier, fixer = (
        base.adapter("solver"),
        base.adapter("verifier", rank=2, lr=5e-3),
        base.adapter("fixer", 4),
    )
    assert [ranks(policy) for policy in (solver, verifier, fixer)] == [{8}, {2}, {4}]
    assert [policy.lr for policy in (solver, verifier, fixer)] == [1e-2, 5e-3, 1e-2]
    for policy in (solver, verifier, fixer):
        others = {id(p) for other in base.policies.values() if other is not policy for p in other.parameters.values()}
        assert not others & {id(p) for p in policy.parameters.values()}
        before = {name: p.detach().clone() for name, p in policy.parameters.items()}
        step(policy)
        moved = max((p - before[name]).abs().max().item() for name, p in policy.parameters.items())
        assert moved == pytest.approx(policy.lr, rel=1e-3)  # Adam's first step is the learning rate
    assert base.adapter("verifier", rank=2) is verifier
    assert all(policy.adapter in verifier.model.peft_config for policy in base.policies.values())
    assert len(verifier.model.peft_config) == 3


def test_a_mixed_batch_of_unlike_ranks_is_what_each_says_alone(qwen3):
    base = load_base(qwen3, adapters=2, rank=8, lr=1e-2)
    policies = [base.adapter("solver"), base.adapter("verifier", rank=1)]
    for policy in policies:
        step(policy)
    tickets = [policy.engine.submit(policy, ASKED) for policy in policies]
    answers = dict(policies[0].engine.ready())
    for policy, own in zip(policies, tickets, strict=True):
        assert [answers[ticket].ids for ticket in own] == [c.ids for c in policy.sample(ASKED)]


def test_a_single_adapter_may_have_a_rank_of_its_own(qwen3):
    policy = load_base(qwen3, adapters=1, rank=8).adapter("solver", rank=3)
    step(policy)
    assert ranks(policy) == {3}


def test_ranks_and_rates_survive_saving(qwen3, tmp_path):
    base = load_base(qwen3, adapters=2, rank=8, lr=1e-2)
    team = lab.Team({"solver": base.adapter("solver"), "verifier": base.adapter("verifier", rank=2, lr=5e-3)})
    for agent in team:
        step(team[agent])
        team[agent].save(tmp_path / agent)
    restored = restore_policies({agent: tmp_path / agent for agent in team})
    assert ranks(restored["verifier"]) == {2} and restored["verifier"].lr == 5e-3
    assert ranks(restored["solver"]) == {8} and restored["solver"].lr == 1e-2
    assert restored["solver"].shared is restored["verifier"].shared
    for agent in team:
        assert restored[agent].describe() == team[agent].describe()
        for policy in (team[agent], restored[agent]):
            step(policy)
        pairs = zip(team[agent].parameters.values(), restored[agent].parameters.values(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


def test_ranks_that_cannot_be_had_are_refused(qwen3):
    base = load_base(qwen3, adapters=2, rank=4)
    with pytest.raises(PolicyError, match=r"agent 'solver' asks for rank 8; the base was loaded with rank=4"):
        base.adapter("solver", rank=8)
    base.adapter("solver", rank=2)
    with pytest.raises(PolicyError, match=r"agent 'solver' asks for rank 3; its adapter was made before"):
        base.adapter("solver", rank=3)


RATES = {"full": 4e-4, "lora": 3e-3}


@pytest.fixture
def of_ones_own(qwen3, tmp_path):
    """A folder of one's own that is a pocket model by its provenance."""
    folder = tmp_path / "own"
    shutil.copytree(qwen3, folder)
    (folder / "provenance.json").write_text(json.dumps({"learning_rate": RATES}))
    return folder


def test_a_folder_s_learning_rates_are_those_of_its_provenance(of_ones_own):
    assert load_policy(of_ones_own).lr == 4e-4 and load_policy(of_ones_own, lora=2).lr == 3e-3
    assert load_base(of_ones_own, rank=2).adapter("solver").lr == 3e-3


def test_an_explicit_learning_rate_wins(of_ones_own):
    assert load_policy(of_ones_own, lr=0.5).lr == 0.5 and load_policy(of_ones_own, lora=2, lr=0.25).lr == 0.25


def test_a_model_that_is_no_pocket_model_learns_as_slowly_as_large_ones_do(qwen3):
    assert load_policy(qwen3).lr == 1e-6 and load_policy(qwen3, lora=2).lr == 2e-5


def test_what_a_policy_saved_goes_on_at_the_rate_that_it_had(of_ones_own, tmp_path):
    load_policy(of_ones_own, lr=2e-4).save(tmp_path / "saved")
    assert load_policy(tmp_path / "saved").lr == 2e-4 and load_policy(tmp_path / "saved", lora=2).lr == 3e-3


@pytest.mark.parametrize("name", ["plan_path", "math", "math_small", "tldr"])
def test_the_shipped_models_name_their_rates(name):
    source = Source.find(name)
    assert (source.default_lr(lora=False), source.default_lr(lora=True)) == (1e-3, 5e-3)


@pytest.mark.parametrize("broken", ["{}", "[1]", "not json", '{"learning_rate": {"full": "fast"}}',
                                    '{"learning_rate": {"full": 0}}'])  # fmt: skip
def test_a_pocket_model_that_names_no_rate_is_refused_unless_one_is_passed(of_ones_own, broken):
    (of_ones_own / "provenance.json").write_text(broken)
    with pytest.raises(PolicyError, match=r"own/provenance.json names no learning rate; write .* or pass lr="):
        load_policy(of_ones_own)
    assert load_policy(of_ones_own, lr=0.5).lr == 0.5


@pytest.fixture
def with_code(qwen3, tmp_path):
    """A model whose config and tokenizer bring code along; what it would do can be seen."""
    shutil.copytree(qwen3, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    told = json.loads(path.read_text()) | {
        "auto_map": {"AutoConfig": "theirs.Config", "AutoModelForCausalLM": "theirs.Net"}
    }
    path.write_text(json.dumps(told))
    (tmp_path / "model" / "theirs.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    return tmp_path / "model"


def test_code_that_comes_with_a_model_is_not_run(with_code):
    load_policy(with_code).sample(ASKED[:1])
    assert not (with_code.parent / "ran").exists()


def test_a_model_that_cannot_be_had_without_its_code_is_refused_and_nobody_is_asked(with_code, monkeypatch):
    path = with_code / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "theirs"}))
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    with pytest.raises(PolicyError, match="wants code of its own to be run, which is not done here"):
        load_policy(with_code)
    assert not (with_code.parent / "ran").exists()


def test_sgd_steps_against_the_clipped_gradient_and_by_nothing_else(qwen3):
    """AdamW divides the size of a gradient out, SGD does not."""
    policy = load_policy(qwen3, lr=0.1, optimizer="sgd")
    before = {name: p.detach().clone() for name, p in policy.parameters.items()}
    said = policy.sample(ASKED)
    samples = [Sample(r.prompt_ids, c.ids, c.logprobs, 1.0, 1.0, 0.1) for r, c in zip(ASKED, said, strict=True)]
    policy.forward_backward(samples, lab.reinforce())
    gradients = {name: gradient.clone() for name, gradient in policy.gradients()}
    norm, clipped = policy.optim_step(0.5, lr_scale=0.5)
    assert norm > 0.5 and clipped == pytest.approx(0.5)
    for name, parameter in policy.parameters.items():
        expected = before[name] - 0.05 * gradients[name] * 0.5 / norm
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-5, atol=1e-7)


def test_an_optimizer_that_is_not_known_is_refused_and_the_usual_one_needs_no_word(qwen3):
    with pytest.raises(PolicyError, match="optimizer 'adam'; known: adamw, sgd"):
        load_policy(qwen3, optimizer="adam")
    assert "optimizer" not in load_policy(qwen3).describe()["options"], "earlier checkpoints go on"
    assert load_policy(qwen3, optimizer="sgd").describe()["options"]["optimizer"] == "sgd"
