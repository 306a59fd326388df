"""Finisher: protocol, rewards by hand, and that a pocket model plays it."""

import random

import pytest
from plays import in_turn

from mas_lab.check.env import check_env
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env
from mas_lab.tasks.finisher import Finisher

PROBLEM = "9 - 7 * 5 + 7 - 2"  # 5


def play(*texts, low=0.8):
    return in_turn(Finisher(low=low), Task("t", {"problem": PROBLEM}), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.success, step.done) for agent, step in steps]


@pytest.mark.parametrize("draft", ["answer 4", "2 0 7 5 answer 4", "", "5", "answer answer 5"])
def test_a_wrong_draft_ends_it_with_nothing(draft):
    assert earned(play(draft)) == [("solver", 0.0, 0.0, False, True)]


@pytest.mark.parametrize("low", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("ending", ["answer 4", "what?"])
def test_a_wrong_ending_still_pays_low(ending, low):
    assert earned(play("answer 5", ending, low=low)) == [
        ("solver", 0.0, 1.0, False, False),
        ("finisher", low, 0.0, False, True),
    ]


def test_a_right_ending_pays_in_full():
    assert earned(play("answer 5", "2 0 7 5 answer 5"))[-1] == ("finisher", 1.0, 1.0, True, True)


def test_the_finisher_answers_anew():
    [(_, step)] = play("2 0 7 5 answer 5")
    env = Finisher()
    assert env.observe(step.state, "finisher") == [{"role": "user", "content": f"solve {PROBLEM}"}]
    assert env.observe(step.state, "finisher") == env.observe(env.start(Task("t", {"problem": PROBLEM})), "solver")


def test_what_cannot_be_read_is_invalid():
    assert [step.valid for _, step in play("answer 5", "five")] == [{"solver": True}, {"finisher": False}]


@pytest.mark.parametrize("low", [0.0, 0.8])
def test_the_contract_holds(low):
    env = make_env("finisher", low=low)
    assert env.agents == ("solver", "finisher") and make_env(**spec(env)) == env
    check_env(env, tasks=2)


@pytest.mark.parametrize("low", [-0.1, 1, 1.5, float("nan")])
def test_a_wrong_ending_must_be_worth_less_than_a_right_one(low):
    with pytest.raises(ValueError, match=f"finisher: low={low}; a wrong ending is worth at least 0"):
        make_env("finisher", low=low)


def test_splits_share_no_chain():
    env = Finisher()
    found = {split: {task.data["problem"] for task in env.tasks(300, split, 0)} for split in ("train", "test")}
    assert all(len(chains) == 300 for chains in found.values()) and not found["train"] & found["test"]
    with pytest.raises(EnvError, match="finisher: split='dev'"):
        env.tasks(1, "dev", 0)


def test_demonstrations_are_right_about_half_the_time():
    env, rng = Finisher(), random.Random(0)
    right = 0.0
    for task in env.tasks(400, "train", 0):
        state = env.start(task)
        right += env.step(state, {"solver": env.demonstrate(state, "solver", rng)}).local_rewards["solver"]
    assert 0.4 < right / 400 < 0.6


def test_the_pocket_model_knows_every_word():
    from transformers import AutoTokenizer

    env = Finisher()
    known = AutoTokenizer.from_pretrained(data_dir() / "pocket" / env.pocket).get_vocab()
    assert set(env.words) <= set(known)
