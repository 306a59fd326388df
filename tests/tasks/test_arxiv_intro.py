"""The introductions: rewards by hand over one turn and two, what the reviewer says, the published formula's holes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import together

from mas_lab.env import Task
from mas_lab.tasks.arxiv_intro import ArxivIntro

SOURCE = (
    "old farmer sold boat near river . young sailor broke clock near market . tall teacher found lamp near forest . "
    "quiet doctor hid map near tower . proud baker bought bell near beach ."
)
BACKGROUND = "old farmer sold boat near river young sailor broke clock"
METHOD = "young sailor broke clock near market so tall teacher found lamp near forest"


def played(*turns, source=SOURCE, **options):
    return together(ArxivIntro(max_turns=len(turns), **options), Task("t", {"source": source}), turns)


def test_the_reward_by_hand():
    (step,) = played((BACKGROUND, METHOD))
    # lengths 10 and 13: 1.3; different words 10 and 12 ("near" twice): 1.2; J = 4 / 12 of the content words
    expected = {"lengths": 0.5, "ratio": 1, "unique": 0.5, "style": 0.76, "faithful": 1}
    assert step.info == pytest.approx(expected)
    assert step.team_reward == pytest.approx(2.76) and step.success and step.done
    assert step.local_rewards == {"background": 1.0, "method": 1.0}


def test_two_turns_pay_what_was_gained():
    first, second = played(("old farmer", METHOD), (BACKGROUND, METHOD))
    assert (first.team_reward, first.done, first.success) == (0.0, False, False)
    assert second.team_reward == pytest.approx(2.76) and second.success
    worse = played((BACKGROUND, METHOD), ("old farmer", METHOD))
    assert [step.team_reward for step in worse] == pytest.approx([2.76, -2.76]) and not worse[-1].success


def test_hole_the_same_draft_is_paid_twice():
    published = played((BACKGROUND, METHOD), (BACKGROUND, METHOD), rewards="published")
    assert published[0].team_reward == published[1].team_reward > 2.5
    assert ArxivIntro(max_turns=2, rewards="published").max_return == 6.0 and ArxivIntro(max_turns=2).max_return == 3.0


spoken = st.lists(st.sampled_from(ArxivIntro().words), max_size=30).map(" ".join) | st.text(max_size=60)


@settings(max_examples=40)
@given(st.lists(st.tuples(spoken, spoken), min_size=2, max_size=2), st.integers(0, 1000))
def test_a_return_is_the_worth_of_the_last_drafts(turns, seed):
    env = ArxivIntro(max_turns=2)
    state, earned = env.start(env.tasks(1, "train", seed)[0]), 0.0
    for background, method in turns:
        step = env.step(state, {"background": background, "method": method})
        state, earned = step.state, earned + step.team_reward
    alone = ArxivIntro().step(env.start(env.tasks(1, "train", seed)[0]), {"background": background, "method": method})
    assert earned == pytest.approx(alone.team_reward) and 0 <= alone.team_reward <= 3
    assert step.success == alone.success
