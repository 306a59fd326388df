"""The introductions: rewards by hand over one turn and two, what the reviewer says, the published formula's holes."""

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_lab as lab
from mas_lab.check.env import check_env
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env
from mas_lab.tasks.arxiv_intro import ANEW, ArxivIntro
from mas_lab.tasks.shared.rows import SPLITS, abstract
from mas_lab.tasks.shared.wording import TRANSITIONS

ABSTRACTS = str(data_dir() / "arxiv" / "abstracts.jsonl")
SOURCE = (
    "old farmer sold boat near river . young sailor broke clock near market . tall teacher found lamp near forest . "
    "quiet doctor hid map near tower . proud baker bought bell near beach ."
)
BACKGROUND = "old farmer sold boat near river young sailor broke clock"
METHOD = "young sailor broke clock near market so tall teacher found lamp near forest"


def played(*turns, source=SOURCE, **options):
    env = ArxivIntro(max_turns=len(turns), **options)
    state, steps = env.start(Task("t", {"source": source})), []
    for background, method in turns:
        steps.append(env.step(state, {"background": background, "method": method}))
        state = steps[-1].state
    assert env.acting(state) == ()
    return steps


def test_the_reward_by_hand():
    (step,) = played((BACKGROUND, METHOD))
    # lengths 10 and 13: 1.3; different words 10 and 12 ("near" twice): 1.2; J = 4 / 12 of the content words
    expected = {
        "lengths": 0.5,
        "ratio": pytest.approx(1.0),
        "unique": 0.5,
        "style": pytest.approx(0.76),
        "faithful": 1.0,
    }
    assert step.info == expected
    assert step.team_reward == pytest.approx(2.76) and step.success and step.done
    assert step.local_rewards == {"background": 1.0, "method": 1.0}


def test_a_method_as_long_as_the_background_earns_part_of_the_ratio():
    (step,) = played((BACKGROUND, "young sailor broke clock near market so tall teacher lamp"))
    assert step.info["ratio"] == pytest.approx((10 / 10 - 0.8) / 0.5)
    (step,) = played((METHOD, "young sailor broke clock near market so tall teacher"))  # 9 / 13: the gate is shut
    assert (step.info["ratio"], step.info["style"], step.team_reward) == (0.0, 0.0, 0.5)


def test_two_turns_pay_what_was_gained():
    first, second = played(("old farmer", METHOD), (BACKGROUND, METHOD))
    assert (first.team_reward, first.done, first.success) == (0.0, False, False)
    assert second.team_reward == pytest.approx(2.76) and second.success
    same = played((BACKGROUND, METHOD), (BACKGROUND, METHOD))
    assert [step.team_reward for step in same] == pytest.approx([2.76, 0.0])
    worse = played((BACKGROUND, METHOD), ("old farmer", METHOD))
    assert [step.team_reward for step in worse] == pytest.approx([2.76, -2.76]) and not worse[-1].success


def test_hole_the_same_draft_is_paid_twice():
    published = played((BACKGROUND, METHOD), (BACKGROUND, METHOD), rewards="published")
    assert published[0].team_reward == published[1].team_reward > 2.5
    assert ArxivIntro(max_turns=2, rewards="published").max_return == 6.0 and ArxivIntro(max_turns=2).max_return == 3.0


TAIL = " ".join(phrases[0] for phrases in TRANSITIONS.values())


def test_hole_invented_words_with_a_tail_of_transitions():
    invented = [f"q{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(150)]
    background, method = " ".join(invented[:130]), " ".join([*invented[:150], TAIL])
    (published,) = played((background, method), size="full", rewards="published")
    (ours,) = played((background, method), size="full")
    assert published.team_reward > 2.6 and published.success
    assert ours.team_reward == 0.0 and not ours.success


def test_hole_an_introduction_to_another_abstract():
    other = "poor hunter lost bell near castle . happy child built basket near village . lonely singer cleaned chair ."
    assert played((BACKGROUND, METHOD), source=other, rewards="published")[0].team_reward > 2.4
    assert played((BACKGROUND, METHOD), source=other)[0].team_reward == 0.0


def test_hole_a_transition_inside_a_word():
    plain = METHOD.replace(" so ", " masonry ")
    assert played((BACKGROUND, plain), rewards="published")[0].info["style"] > 0.7
    assert played((BACKGROUND, plain))[0].info["style"] == pytest.approx(0.6)


@pytest.mark.parametrize(("drafts", "said"), [
    ((BACKGROUND, METHOD), ("fine", "fine")),
    (("old farmer", METHOD), ("short", "long")),
    ((f"{BACKGROUND} {METHOD} {METHOD}", METHOD), ("long", "short")),
    ((BACKGROUND.replace("boat", "wagon"), METHOD), ("invented", "fine")),
    ((BACKGROUND, METHOD.replace(" so ", " poor ").replace("poor", "quiet")), ("fine", "link")),
    ((BACKGROUND, "so quiet doctor hid map near tower proud baker bought bell near beach"), ("apart", "apart")),
    ((BACKGROUND, f"{METHOD} quiet doctor hid map"), ("short", "long")),
])  # fmt: skip
def test_the_reviewer_tells_each_what_its_own_part_lacks(drafts, said):
    env = ArxivIntro(max_turns=2)
    state = env.step(env.start(Task("t", {"source": SOURCE})), dict(zip(env.agents, drafts, strict=True))).state
    for agent, draft, word in zip(env.agents, drafts, said, strict=True):
        assert env.observe(state, agent)[0]["content"] == f"{SOURCE} draft {draft} {word} {agent}"


def test_nobody_sees_what_the_other_writes():
    env = ArxivIntro(max_turns=2)
    state = env.start(Task("t", {"source": SOURCE}))
    assert env.acting(state) == ("background", "method")
    assert env.observe(state, "method") == [{"role": "user", "content": f"{SOURCE} method"}]
    state = env.step(state, {"background": BACKGROUND, "method": METHOD}).state
    assert BACKGROUND not in env.observe(state, "method")[0]["content"]


def test_a_single_agent_writes_both():
    env = ArxivIntro(single_agent=True, max_turns=2)
    state = env.start(Task("t", {"source": SOURCE}))
    good = env.step(state, {"solo": f"{BACKGROUND} ||| {METHOD}"})
    assert good.team_reward == played((BACKGROUND, METHOD))[0].team_reward and good.valid == {"solo": True}
    assert env.observe(good.state, "solo")[0]["content"].endswith(f"draft {BACKGROUND} fine draft {METHOD} fine solo")
    for text in (BACKGROUND, f"{BACKGROUND} |||", ""):
        bad = env.step(state, {"solo": text})
        assert (bad.team_reward, bad.valid, bad.local_rewards) == (0.0, {"solo": False}, {"solo": 0.0})


@pytest.mark.parametrize(
    "options",
    [{}, {"max_turns": 2}, {"max_turns": 2, "rewards": "published"}, {"single_agent": True, "max_turns": 2},
     {"size": 3}, {"size": "full", "data": ABSTRACTS, "max_turns": 2}], ids=str,
)  # fmt: skip
def test_the_contract_holds(options):
    env = make_env("arxiv_intro", **options)
    assert make_env(**spec(env)) == env
    check_env(env, tasks=2)


@pytest.mark.parametrize(
    "options", [{"size": "huge"}, {"size": 2}, {"max_turns": 3}, {"rewards": "mine"}, {"mistakes": 2}]
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="arxiv_intro: "):
        ArxivIntro(**options)


spoken = st.lists(st.sampled_from(ArxivIntro().words), max_size=30).map(" ".join) | st.text(max_size=60)


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


def test_demonstrations_leave_room():
    env, rng, earned = ArxivIntro(), random.Random(0), []
    for task in env.tasks(200, "train", 0):
        state = env.start(task)
        earned.append(env.step(state, {agent: env.demonstrate(state, agent, rng) for agent in env.agents}).team_reward)
    assert 0.2 < sum(earned) / 200 / 3 < 0.6


def test_splits_share_no_text():
    found = {split: {t.data["source"] for s in range(10) for t in ArxivIntro().tasks(20, split, s)} for split in SPLITS}
    assert [len(texts) for texts in found.values()] == [200, 200, 200] and len(set.union(*found.values())) == 600


def test_abstracts_are_read_from_a_file(tmp_path):
    env = ArxivIntro(size="full", data=ABSTRACTS)
    train, test = env.tasks(6, "train", 0), env.tasks(2, "test", 0)
    assert not {t.id for t in train} & {t.id for t in test}
    system, user = env.observe(env.start(train[0]), "background")
    assert "128 to 256 are accepted" in system["content"] and user["content"] == train[0].data["source"]
    (tmp_path / "a.jsonl").write_text(json.dumps({"abstract_text": "one"}) + "\n{")
    with pytest.raises(EnvError, match=r"arxiv_intro: .*a\.jsonl, line 2: "):
        ArxivIntro(size="full", data=str(tmp_path / "a.jsonl")).tasks(1, "train", 0)
    assert abstract({"summary": " a\n b "}) == "a b"
    with pytest.raises(EnvError, match=r"\['title'\]"):
        abstract({"title": "x"})


def test_full_size_a_second_turn_shows_the_draft_and_asks_for_the_whole():
    env = ArxivIntro(size="full", data=ABSTRACTS, max_turns=2)
    (task,) = env.tasks(1, "train", 0)
    state = env.step(env.start(task), {"background": "far too little", "method": "less"}).state
    _, user = env.observe(state, "background")
    told = f"\n\nYour draft:\n\nfar too little\n\nThe reviewer: It is too short.\n\n{ANEW}"
    assert user["content"] == task.data["source"] + told


def test_the_pocket_model_knows_every_word_and_plays_both_forms():
    from transformers import AutoTokenizer

    env = ArxivIntro(max_turns=2)
    known = AutoTokenizer.from_pretrained(data_dir() / "pocket" / env.pocket).get_vocab()
    assert set(env.words) <= set(known)
    team = lab.Team.shared(lab.load_policy("arxiv_intro"), env.agents)
    turns = lab.rollout(env, team, env.tasks(8, "test", 0), lab.joint(2), seed=0)
    assert turns["valid"].mean() > 0.9 and turns.groupby("depth")["team_reward"].mean()[0] > 0.3


def test_the_lengths_that_the_full_prompts_ask_for_pay_in_full():
    data = ABSTRACTS
    wanted, asked = make_env("arxiv_intro", size="full").wanted, []
    for single_agent in (False, True):
        env = make_env("arxiv_intro", size="full", data=data, single_agent=single_agent)
        state = env.start(*env.tasks(1, "train", 0))
        told = [env.observe(state, agent)[0]["content"] for agent in env.agents]
        assert all(f"{wanted.least} to {wanted.most} " in text for text in told)
        asked.append([sorted(map(int, re.findall(r"about (\d+) words", text))) for text in told])
    team, solo = asked
    assert len(team) == 2 and len(solo) == 1
    for lengths in [*team, *solo]:
        first, second = lengths
        assert wanted.least <= first < second <= wanted.most and wanted.ratio[1] <= second / first <= wanted.ratio[2]
