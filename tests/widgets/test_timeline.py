"""Timeline: seconds of a step and idle shares follow from the costs, by hand; the picture has a lane per engine."""

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab

ROWS = [("a", 0, 1, 5, 1.0), ("a", 0, 1, 3, -1.0), ("b", 1, 2, 4, 0.5)]
"""Policy, depth, token of a prompt of ten, tokens of the completion, advantage."""
TURNS = pd.DataFrame([
    {"policy": policy, "agent": policy, "depth": depth, "prompt_ids": [prompt] * 10, "completion_ids": [1] * tokens,
     "advantage": advantage}
    for policy, depth, prompt, tokens, advantage in ROWS
])  # fmt: skip
COSTS = lab.Costs(prompt=1, decode=100, token=10, update=1000, train=10)
SAMPLES = {"a": 10 + 80 + 500, "b": 10 + 40 + 400}
LEARNS = {"a": 1000 + 180, "b": 1000 + 140}


@pytest.mark.parametrize(("staleness", "shared", "seconds"), [
    (0, False, 590 + 450 + 1180), (1, False, 1180), (3, False, 1180),
    (0, True, 590 + 450 + 1180 + 1140), (1, True, 1180 + 1140),
])  # fmt: skip
def test_seconds_of_a_step_by_hand(staleness, shared, seconds):
    """Apart, the slower learner decides; synchronous, rollout and update add up."""
    costs = lab.Costs(prompt=1, decode=100, token=10, update=1000, train=10, shared=shared)
    made = lab.Timeline(TURNS, lab.overlap(staleness, costs))
    assert made.seconds == pytest.approx(seconds)
    assert f"{seconds:.3g} s per step" in repr(made)


def test_seconds_do_not_depend_on_the_step_at_which_they_begin():
    """Two unlike steps in turn: an overlap is never slower, and synchronous seconds are the mean of both."""
    short = TURNS.assign(completion_ids=[[1]] * 3, step=1)
    tables = pd.concat([TURNS.assign(step=0), short])
    waits, ahead = (lab.Timeline(tables, lab.overlap(staleness, COSTS), steps=5).seconds for staleness in (0, 1))
    second = 2 * (10 + 100) + 20 + 10 + 1000 + 10 * 12
    assert waits == pytest.approx((590 + 450 + 1180 + second) / 2) and ahead < waits


@pytest.mark.parametrize("staleness", [0, 2])
def test_idle_shares_by_hand(staleness):
    """In the time of a step, each engine is busy for its own seconds; one that runs ahead is part of a step off."""
    made = lab.Timeline(TURNS, lab.overlap(staleness, COSTS), steps=40)
    busy = made.table.set_index("lane")["busy"]
    step = 1180 if staleness else 590 + 450 + 1180
    expected = {**{f"{name} samples": own for name, own in SAMPLES.items()},
                **{f"{name} learns": own for name, own in LEARNS.items()}}  # fmt: skip
    assert busy.to_dict() == pytest.approx({lane: own / step for lane, own in expected.items()}, rel=0.03)
    assert np.allclose(made.table["busy"] + made.table["idle"], 1)


def test_other_choices_are_compared():
    choices = lab.Timeline(TURNS, lab.overlap(0, COSTS)).choices(staleness=1, replicas=2)
    seconds = choices.set_index("choice")["seconds"].to_dict()
    assert seconds["one engine, synchronous"] == max(seconds.values()) == pytest.approx(3360)
    assert seconds["an engine each, staleness 1"] == pytest.approx(1180)
    slow = lab.Costs(prompt=100, decode=1, token=0, update=1, train=0)  # waves: 1005 and 1004; with two: 505
    rows = lab.Timeline(TURNS, lab.overlap(0, slow)).choices(1, 2).set_index("choice")
    assert rows.loc["an engine each, staleness 1", "seconds"] == pytest.approx(2009)
    assert rows.loc["the same, 2 replicas of a", "seconds"] == pytest.approx(2009 - 500)
    assert rows.loc["an engine each, staleness 1", "idle: a samples"] == pytest.approx(1 - 1005 / 2009, abs=0.01)


def test_a_frozen_policy_samples_and_never_learns():
    made = lab.Timeline(TURNS, lab.overlap(1, COSTS), frozen=["b"])
    assert set(made.events["lane"]) == {"a samples", "b samples", "a learns"}
    assert (made.events.query("policy == 'b'")["version"] == 0).all()


def test_a_policy_that_is_silent_in_the_first_step_learns_in_the_others():
    """Synchronous; in step 0 `a` samples alone for 590 s."""
    tables = [TURNS[TURNS["policy"] == "a"], TURNS]
    made = lab.Timeline(tables, lab.overlap(0, COSTS), steps=4)
    assert made.policies == ["a", "b"] and made.seconds == pytest.approx((590 + 1180 + 590 + 450 + 1180) / 2)
    assert "the same, 2 replicas of b" in set(made.choices()["choice"])


def test_where_nobody_learns_a_step_is_its_rollout():
    made = lab.Timeline(TURNS, lab.overlap(1, COSTS), frozen=["a", "b"])
    assert made.seconds == pytest.approx(590 + 450) and set(made.events["kind"]) == {"sample"}


def test_the_picture_has_a_lane_per_engine(tmp_path):
    made = lab.Timeline(TURNS, lab.overlap(1, COSTS))
    lanes = ["a samples", "b samples", "a learns", "b learns"]
    assert list(made.figure().layout.yaxis.ticktext) == lanes
    page = made.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(lane in page for lane in lanes) and "<svg" in page and "2 replicas of b" in page
    assert "<svg" in made._repr_html_()


def test_what_is_no_timeline_is_refused():
    with pytest.raises(ValueError, match=r"Timeline: steps=0 .*\(1 or more\)"):
        lab.Timeline(TURNS, steps=0)
    with pytest.raises(lab.TableError, match="nothing to show"):
        lab.Timeline([])
