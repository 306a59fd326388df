"""What needs no vLLM: each answer, error and cancellation meets its own request; a model with wider heads says the
same."""

import pytest
import torch
from transformers import AutoModelForCausalLM

import mas_lab as lab
from mas_lab.backends.vllm.engine import EngineError, VllmEngine
from mas_lab.backends.vllm.weights import widened
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


SIZES = [32, 64, 80]


def test_a_pocket_model_with_wider_heads_is_the_same_model(tmp_path):
    policy = lab.load_policy("plan_path")
    where = policy.shared.weights
    assert widened(where, tmp_path / "same", [8, 24]) == where
    wide = AutoModelForCausalLM.from_pretrained(widened(where, tmp_path / "wide", SIZES))
    assert wide.config.head_dim == 32
    ids = torch.tensor([[4, 9, 10, 3, 7, 20, 33, 5, 11]])
    with torch.no_grad():
        torch.testing.assert_close(wide(input_ids=ids).logits, policy.model(input_ids=ids).logits, atol=2e-5, rtol=1e-5)


def test_heads_that_cannot_be_widened_are_refused(model_dirs, tmp_path):
    for kind, sizes in (("qwen3", [4]), ("gemma2", SIZES)):
        with pytest.raises(PolicyError, match=rf"takes attention heads of {sizes[0]}.*those of this {kind} have 8"):
            widened(model_dirs[kind], tmp_path / kind, sizes)
