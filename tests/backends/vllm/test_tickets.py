"""Test the tickets of an engine without vLLM: each answer, error and cancellation meets its own request."""

import pytest

import mas_lab as lab
from mas_lab.backends.vllm.engine import EngineError, VllmEngine
from mas_lab.policy import Request


class Echo(VllmEngine):
    """Answers all that was sent at the first `ready`: a token that is the request's seed, an error for seed 13."""

    def __init__(self, model):
        model.options = type("Options", (), {"sleep": False, "tolerance": None})
        super().__init__(model)
        self.sent, self.aborted = [], []

    def sync_weights(self, policy): ...

    def _send(self, ticket, policy, request):
        self.sent.append((ticket, request.seed))

    def _receive(self):
        sent, self.sent = self.sent, []
        return [(ticket, EngineError("lost", ticket) if seed == 13 else [seed], [-0.5])
                for ticket, seed in sent if ticket in self._asked]  # fmt: skip

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
    assert not engine._asked
