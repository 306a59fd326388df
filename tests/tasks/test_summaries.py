"""Summaries and introductions: rewards by hand, part by part, and the published formulas' holes, each scored."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import together

from mas_lab.env import Task
from mas_lab.tasks import make_env
from mas_lab.tasks.arxiv_intro import ArxivIntro
from mas_lab.tasks.shared import wording
from mas_lab.tasks.tldr import TLDR

SOURCE = (
    "the old farmer sold the boat near the river . the young sailor broke the clock near the market . "
    "the tall teacher found the lamp near the forest . the quiet doctor hid the map near the tower ."
)
SHORT = "old farmer sold boat river"
DETAILED = "old farmer sold boat river so young sailor broke clock market"


def score(short, detailed, source=SOURCE, **options):
    env = TLDR(**options)
    return env.step(env.start(Task("t", {"source": source})), {"short": short, "detailed": detailed})


def test_the_reward_by_hand():
    step = score(SHORT, DETAILED)
    # lengths 5 and 11; 11 / 5 = 2.2; J = 5 / 10 > 0.2; one category of transitions: 0.4
    assert step.info == {"lengths": 0.5, "ratio": 1.0, "unique": 0.5, "style": pytest.approx(0.76), "faithful": 1.0}
    assert step.team_reward == pytest.approx(0.5 + 1 + 0.5 + 0.4 * 0.4 + 0.6)
    assert step.success and step.done and step.local_rewards == {"short": 1.0, "detailed": 1.0}


def test_a_gate_that_shuts_stops_the_rest():
    assert score("old farmer sold", DETAILED).info["lengths"] == 0.0  # 3 words
    too_close = score(SHORT, SHORT)  # ratio 1.0 < 1.1
    assert (too_close.team_reward, too_close.info["ratio"], too_close.info["unique"]) == (0.5, 0.0, 0.0)
    half = score(SHORT, "old farmer sold boat river young clock")  # 7 / 5 = 1.4: 0.6 of the ratio; unique 1.4: 1 / 7
    assert half.info["ratio"] == pytest.approx(0.6) and half.info["unique"] == pytest.approx(0.5 / 7)
    # J = 5 / 7, enough; no transition
    assert half.team_reward == pytest.approx(0.5 + 0.6 + 0.5 / 7 + 0.6)


def test_invented_words_cost_what_the_less_faithful_writer_has():
    step = score("old farmer sold violin river", DETAILED)
    assert step.info["faithful"] == pytest.approx(4 / 5)
    both = score("old farmer sold violin river", DETAILED.replace("clock", "wagon").replace("market", "castle"))
    assert both.info["faithful"] == pytest.approx(8 / 10)
    worse = score("old farmer violin wagon castle", DETAILED)
    assert worse.info["faithful"] == pytest.approx(2 / 5)


INVENTED = "qaaaa qbbbb qcccc qdddd qeeee qffff qgggg qhhhh"
OTHER = "the poor hunter lost the bell near the beach . the happy child bought the basket near the village ."
TAIL = " ".join(phrases[0] for phrases in wording.TRANSITIONS.values())


@pytest.mark.parametrize(("short", "detailed", "source", "size", "theirs", "ours"), [
    (INVENTED, f"{INVENTED} {TAIL}", SOURCE, "full", 2.98, 0.0),  # 8 words, and 17 more that connect nothing
    (SHORT, DETAILED, OTHER, "pocket", 2.76, 0.0),  # a summary of another text
    ("farmer " * 8, "farmer boat " * 9, SOURCE, "full", 2.6, 0.6),  # 2 different words among 18
])  # fmt: skip
def test_holes_of_the_published_formula(short, detailed, source, size, theirs, ours):
    published = score(short, detailed, source, size=size, rewards="published")
    assert published.team_reward == pytest.approx(theirs, abs=0.01)
    step = score(short, detailed, source, size=size)
    assert step.team_reward == pytest.approx(ours, abs=0.2) and not step.success


def test_transitions_count_where_they_connect_and_filler_costs():
    faithful = DETAILED.replace(" so ", " ")
    tail = f"{faithful} also namely so but then indeed overall likewise although if when"
    published = score(SHORT, tail, rewards="published")
    assert published.info["style"] > 0.4 * 0.85 + 0.6 - 1e-9  # ten or more categories
    assert wording.transitions(tail, SOURCE) == set() and wording.transitions(DETAILED, SOURCE) == {"cause-effect"}
    assert wording.faithfulness("the the the the farmer", SOURCE, 1.0, 0.4) == pytest.approx(0.2 / 0.4)
    assert wording.faithfulness("so but then", SOURCE, 1.0, 0.4) == 0.0
    endless = f"{SHORT} {'x' * 40}"
    assert score(SHORT, endless, rewards="published").info["ratio"] == 1.0
    assert score(SHORT, endless).info["ratio"] == pytest.approx((6 / 5 - 1.1) / 0.5)


@settings(max_examples=30)
@given(st.integers(0, 10**6))
def test_words_that_the_text_lacks_never_pay(seed):
    rng, env = random.Random(seed), TLDR()
    state = env.start(env.tasks(1, "train", seed)[0])
    actions = {agent: env.demonstrate(state, agent, rng) for agent in env.agents}
    invented = {agent: f"{text} zebra" for agent, text in actions.items()}
    before, after = env.step(state, actions).info["faithful"], env.step(state, invented).info["faithful"]
    assert after < before or before == 0.0


@pytest.mark.parametrize("name", ["tldr", "arxiv_intro"])
def test_a_single_agent_writes_both_texts(name):
    env, team = make_env(name, single_agent=True), make_env(name)
    (task,) = env.tasks(1, "train", 0)
    said = {agent: team.demonstrate(team.start(task), agent, random.Random(0)) for agent in team.agents}
    good = env.step(env.start(task), {"solo": " ||| ".join(said.values())})
    assert good.team_reward == team.step(team.start(task), said).team_reward and good.valid == {"solo": True}
    for text in (f"{SHORT} ||| ", f"{SHORT} ||| {DETAILED} ||| {SHORT}"):
        bad = env.step(env.start(task), {"solo": text})
        assert (bad.team_reward, bad.valid, bad.local_rewards) == (0.0, {"solo": False}, {"solo": 0.0})


# Introductions

ABSTRACT = (
    "old farmer sold boat near river . young sailor broke clock near market . tall teacher found lamp near forest . "
    "quiet doctor hid map near tower . proud baker bought bell near beach ."
)
BACKGROUND = "old farmer sold boat near river young sailor broke clock"
METHOD = "young sailor broke clock near market so tall teacher found lamp near forest"


def played(*turns, source=ABSTRACT, **options):
    return together(ArxivIntro(max_turns=len(turns), **options), Task("t", {"source": source}), turns)


def test_the_reward_of_an_introduction_by_hand():
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
