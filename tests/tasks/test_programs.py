"""Programs in answers: one that the tier lacks something for is told of, and warned of once."""

import warnings

import pytest

from mas_lab.tasks import sandbox
from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.programs import Result, unjudged

LACKS = Result(sandbox.Outcome("unsupported", (None,), "ModuleNotFoundError: No module named 'heapq'"), (False,))
WRONG = Result(sandbox.Outcome("error", (None,), "ValueError: \ud800"), (False,))


def test_who_could_not_be_judged_is_said_and_warned_of_once(monkeypatch):
    monkeypatch.setattr(programs, "_warned", set())
    monkeypatch.setattr(sandbox, "tier", lambda: "monty")
    with pytest.warns(UserWarning, match=r"mine: task t-1, agent 'coder', turn 2: .*heapq.* pip install pyeryx"):
        told = unjudged(LACKS, "mine", "t-1", "coder", 2)
    assert told == [{"agent": "coder", "turn": 2, "error": "ModuleNotFoundError: No module named 'heapq'"}]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert unjudged(LACKS, "mine", "t-2", "coder", 0) and unjudged(WRONG, "other", "t-1", "coder", 0) == []


def test_only_what_a_program_decided_itself_is_remembered(monkeypatch):
    ended = [sandbox.Outcome("killed"), sandbox.Outcome("timeout", backstop=True), sandbox.Outcome("timeout")]
    monkeypatch.setattr(programs, "_known", {})
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: ended.pop(0))
    assert [programs.printed("1").outcome.status for _ in range(4)] == ["killed", "timeout", "timeout", "timeout"]
    assert not ended


def test_what_a_program_raised_can_be_written_to_a_file():
    WRONG.info["error"].encode()
    assert WRONG.info["status"] == "error" and not WRONG.unknown and LACKS.unknown
