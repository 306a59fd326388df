"""What needs no vLLM: each answer, error and cancellation meets its own request; a model with wider heads says the
same, whole or through an adapter."""

import shutil

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import mas_lab as lab
from mas_lab.backends.loading import load_base, load_policy
from mas_lab.backends.vllm.engine import EngineError, VllmEngine
from mas_lab.backends.vllm.weights import Heads, save_for_vllm, tensors_for_vllm
from mas_lab.policy import PolicyError, Request


class Echo(VllmEngine):
    """Answers all that was sent at the first `ready`: a token that is the request's seed, an error for seed 13."""

    def __init__(self, model):
        model.options = type("Options", (), {"sleep": False, "tolerance": None})
        super().__init__(model)
        self.sent, self.aborted = [], []

    def _publish(self, policy): ...

    def _send(self, ticket, policy, request):
        self.sent.append((ticket, request.seed))

    def _receive(self):
        sent, self.sent = self.sent, []
        return [(ticket, EngineError("lost", ticket) if seed == 13 else [seed], [-0.5])
                for ticket, seed in sent if ticket in self._running]  # fmt: skip

    def _abort(self, tickets):
        self.aborted += tickets


def test_each_ticket_gets_its_answer_an_error_names_its_request_and_cancelled_ones_are_aborted(models):
    policy = lab.load_policy(models / "a")
    engine = policy.shared.engine = Echo(policy.shared)

    def ask(*seeds):
        return engine.submit(policy, [Request((4,), 1, 1.0, seed) for seed in seeds])

    def said(answers):
        return {ticket: completion.ids for ticket, completion in answers}

    answered, gone = ask(7, 8), ask(9)
    engine.cancel(gone)
    assert said(engine.ready()) == {answered[0]: (7,), answered[1]: (8,)} and engine.aborted == gone
    [broken] = ask(13)
    with pytest.raises(EngineError, match="lost") as refused:
        engine.ready()
    assert refused.value.ticket == broken
    assert engine.ready() == []
    more = ask(5, 6)
    assert engine.sample(policy, [Request((4,), 1, 1.0, 4)])[0].ids == (4,)
    assert said(engine.ready()) == {more[0]: (5,), more[1]: (6,)}
    assert not engine._running


class Sleeper(VllmEngine):
    """Notes its naps and what is sent to it, and has the trained weights."""

    def __init__(self, model):
        super().__init__(model)
        self.options = type("Options", (), {"sleep": True, "tolerance": None, "shared_dir": None})
        self.did = []

    def _start(self, folder): ...

    def _sleep(self, level):
        self.did.append(f"sleep {level}")

    def _wake(self):
        self.did.append("wake")

    def _take_weights(self, policy, path):
        self.did.append("weights")

    def _take_adapter(self, policy, path):
        self.did.append("adapter")

    def _score(self, policy, row):
        return [self._expected(policy, row).tolist()]


@pytest.mark.parametrize(
    "lora, expected",
    [(None, ["sleep 2", "wake", "weights"]), (4, ["adapter", "sleep 1"])],
    ids=["all weights are dropped and sent anew", "a base under adapters is kept"],
)
def test_an_engine_that_slept_serves_the_weights_again(models, lora, expected):
    policy = lab.load_policy(models / "a", lora=lora)
    engine = policy.shared.engine = Sleeper(policy.shared)
    engine.sync_weights(policy)
    engine.release_memory()
    engine.sync_weights(policy)  # the weights are the same
    assert engine.did == expected


IDS = torch.tensor([[4, 9, 10, 3, 7, 20, 33, 5, 61]])
SIZES = [32, 64, 80]


def logits(net):
    with torch.no_grad():
        return net.eval()(input_ids=IDS).logits


def test_a_pocket_model_with_wider_heads_is_the_same_model(tmp_path):
    policy = load_policy("plan_path")
    heads = Heads.fitting(policy.model.config, SIZES)
    assert (heads.size, heads.wide) == (24, 32)
    assert Heads.fitting(policy.model.config, [8, 24]) is None
    save_for_vllm(policy, tmp_path, heads)
    wide = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert wide.config.head_dim == 32
    ids = IDS % policy.model.config.vocab_size
    with torch.no_grad():
        torch.testing.assert_close(wide(input_ids=ids).logits, policy.model(input_ids=ids).logits, atol=2e-5, rtol=1e-5)
    loaded = dict(wide.named_parameters())
    sent = dict(tensors_for_vllm(policy, heads))
    assert sent.keys() == loaded.keys() and all(torch.equal(loaded[name], sent[name]) for name in sent)


def test_an_adapter_with_wider_heads_is_the_same_adapter(qwen3, tmp_path):
    base = load_base(qwen3, adapters=2, rank=4, lr=1e-2)
    policy = base.adapter("a")
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    heads = Heads.fitting(policy.shared.net.config, SIZES)
    assert (heads.size, heads.wide) == (8, 32)
    shutil.copytree(qwen3, tmp_path / "base")
    heads.widen_model(tmp_path / "base")
    save_for_vllm(policy, tmp_path / "adapter", heads)
    wide = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    policy.model.set_adapter(policy.adapter)
    torch.testing.assert_close(logits(wide), logits(policy.model), atol=2e-5, rtol=1e-5)
    with policy.model.disable_adapter():
        assert (logits(policy.model) - logits(wide)).abs().max() > 0.1


def test_heads_that_cannot_be_widened_are_refused(model_dirs):
    with pytest.raises(PolicyError, match=r"takes attention heads of 4; a qwen3's here have 8"):
        Heads.fitting(load_policy(model_dirs["qwen3"]).model.config, [4])
    with pytest.raises(PolicyError, match="only a Qwen3's can be widened"):
        Heads.fitting(load_policy(model_dirs["gemma2"]).model.config, SIZES)
