"""How long the rest of a study will take: by what its like took, less the share that is done of what is under way."""

import pytest

from mas_lab.study import clock
from mas_lab.study.clock import Clock
from mas_lab.study.design import Cell


def cell(task, arm, seed):
    return Cell(task, arm, seed, None, "compare", {"task": task, "arm": arm, "seed": seed})


@pytest.fixture
def now(monkeypatch):
    """A clock that is set by hand."""
    moment = {"now": 0.0}
    monkeypatch.setattr(clock.time, "monotonic", lambda: moment["now"])
    return moment


def end(made, one, now, seconds):
    made.move(one.digest, 0, 10)
    now["now"] += seconds
    made.ended(one, {"curve": [{"success": 0.0}, {"success": 0.5}]}, None)


def test_the_time_left_is_that_of_the_like(now, capsys):
    slow, quick = [cell("slow", "a", seed) for seed in range(3)], [cell("quick", "a", seed) for seed in range(3)]
    with Clock("tiny", [*slow, *quick], workers=2) as made:
        assert made.left() == "time left: not known before one has ended"
        end(made, slow[0], now, 100)
        assert made.left() == "about 4 min left", "five of 100 s, two at a time"
        end(made, quick[0], now, 10)
        assert made.left() == "about 2 min left", "two of 100 s and two of 10 s, two at a time"
        made.move(slow[1].digest, 0, 10)
        now["now"] += 50
        made.move(slow[1].digest, 5, 10)
        assert made.left() == "about 85 s left", "(50 + 100 + 10 + 10) / 2"
        made.ended(slow[1], None, "ValueError: planned")
        assert made.left() == "about 60 s left", "a failure says nothing of how long one takes"
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1/6  slow, a, seed 0: success 0.000 -> 0.500; about 4 min left"
    assert "slow, a, seed 1: failed: ValueError: planned" in lines[-1]


def test_before_any_has_ended_the_pace_of_those_under_way_tells(now):
    one, other = cell("slow", "a", 0), cell("slow", "b", 0)
    with Clock("tiny", [one, other], workers=1) as made:
        made.move(one.digest, 0, 10)
        now["now"] += 30
        made.move(one.digest, 5, 10)
        assert made.left() == "about 2 min left", "30 s of this one, and 60 of the other"
