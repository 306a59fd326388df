"""Tickets of several threads at one engine, without vLLM: who gets which answer, and whose request an end is."""

import threading

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

    def publish(self, policy): ...
    def _start(self): ...
    def _push(self, policy): ...
    def _score(self, policy, rows): ...
    def _sleep(self): ...
    def _wake(self): ...

    def _send(self, ticket, policy, request):
        self.sent.append((ticket, request.seed))

    def _receive(self):
        sent, self.sent = self.sent, []
        return [(ticket, EngineError("lost", ticket) if seed == 13 else [seed], [-0.5])
                for ticket, seed in sent if ticket in self._asked]  # fmt: skip

    def _abort(self, tickets):
        self.aborted += tickets


def in_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    return found[0]


def test_each_thread_gets_its_own_answers_and_errors_and_cancels_its_own(models):
    policy = lab.load_policy(models / "a")
    engine = policy.shared.engine = Echo(policy.shared)

    def ask(*seeds):
        return engine.submit(policy, [Request((4,), 1, 1.0, seed) for seed in seeds])

    def said(answers):
        return {ticket: completion.ids for ticket, completion in answers}

    broken = ask(5, 6, 13)[2:]

    def another():
        theirs, gone = ask(7, 8), ask(9)
        engine.cancel(gone)
        return theirs, gone, engine.ready(), engine.ready()

    theirs, gone, answers, again = in_thread(another)
    assert said(answers) == {theirs[0]: (7,), theirs[1]: (8,)} and again == [] and engine.aborted == gone
    with pytest.raises(EngineError, match="lost") as refused:
        engine.ready()
    assert refused.value.ticket == broken[0]
    assert engine.ready() == []
    more = ask(5, 6)
    assert engine.sample(policy, [Request((4,), 1, 1.0, 4)])[0].ids == (4,)
    assert said(engine.ready()) == {more[0]: (5,), more[1]: (6,)}
    assert not engine._asked and not engine._asker
