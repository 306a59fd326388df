"""Paid help: protocol, rewards by hand, and that a pocket model plays it."""

import random

import pytest
from plays import in_turn

from mas_lab.check.env import check_env
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env
from mas_lab.tasks.paid_help import PaidHelp

PROBLEM = "9 - 7 * 5 + 7 - 2"  # 5


def play(*texts, pay=0.2):
    return in_turn(PaidHelp(pay=pay), Task("t", {"problem": PROBLEM}), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.success, step.done) for agent, step in steps]


def test_a_right_answer_needs_no_help():
    steps = play("2 0 7 5 answer 5")
    assert earned(steps) == [("solver", 1.0, 1.0, True, True)]
    assert PaidHelp().acting(steps[-1][1].state) == ()


@pytest.mark.parametrize("pay", [0.2, 0.5, 1.0])
def test_help_is_worth_what_it_pays(pay):
    assert earned(play("answer 4", "answer 5", pay=pay)) == [
        ("solver", 0.0, 0.0, False, False),
        ("helper", pay, 1.0, True, True),
    ]


def test_wrong_help_pays_nothing_and_ends_it():
    assert earned(play("answer 4", "answer 3"))[-1] == ("helper", 0.0, 0.0, False, True)


def test_the_helper_hears_what_was_tried():
    env = PaidHelp()
    for said, told in (("answer 4", "4"), ("what?", "none")):
        [(_, step)] = play(said)
        assert step.valid == {"solver": said == "answer 4"}
        assert env.observe(step.state, "helper") == [{"role": "user", "content": f"tried {told} solve {PROBLEM}"}]
    assert env.observe(env.start(Task("t", {"problem": PROBLEM})), "solver")[0]["content"] == f"solve {PROBLEM}"


def test_unreadable_help_is_invalid_and_wrong():
    _, (agent, step) = play("answer 0", "")
    assert (step.valid, step.team_reward, step.success, step.done) == ({agent: False}, 0.0, False, True)


@pytest.mark.parametrize("pay", [0.2, 1.0])
def test_the_contract_holds(pay):
    env = make_env("paid_help", pay=pay)
    assert env.agents == ("solver", "helper") and make_env(**spec(env)) == env
    check_env(env, tasks=2)


@pytest.mark.parametrize("pay", [0, -0.2, 1.1, float("nan")])
def test_help_must_be_worth_something_and_at_most_the_whole(pay):
    with pytest.raises(ValueError, match=f"paid_help: pay={pay}; help is worth more than 0"):
        make_env("paid_help", pay=pay)


def test_splits_share_no_chain():
    env = PaidHelp()
    found = {split: {task.data["problem"] for task in env.tasks(300, split, 0)} for split in ("train", "test")}
    assert all(len(chains) == 300 for chains in found.values()) and not found["train"] & found["test"]
    with pytest.raises(EnvError, match="paid_help: split='dev'"):
        env.tasks(1, "dev", 0)


def test_demonstrations_are_right_about_half_the_time():
    env, rng = PaidHelp(), random.Random(0)
    right = 0.0
    for task in env.tasks(400, "train", 0):
        state = env.start(task)
        right += env.step(state, {"solver": env.demonstrate(state, "solver", rng)}).local_rewards["solver"]
    assert 0.4 < right / 400 < 0.6


def test_the_pocket_model_knows_every_word():
    from transformers import AutoTokenizer

    env = PaidHelp()
    known = AutoTokenizer.from_pretrained(data_dir() / "pocket" / env.pocket).get_vocab()
    assert set(env.words) <= set(known)
