"""Cascade: protocol and rewards by hand."""

import pytest
from plays import in_turn

from mas_lab.check.env import check_env
from mas_lab.env import Task, spec
from mas_lab.tasks import make_env
from mas_lab.tasks.cascade import PAYS, Cascade

PROBLEMS = ["9 - 7 * 5 + 7 - 2", "1 + 1 + 1 + 1 + 1", "2 * 3 * 1 * 1 * 1", "8 - 1 + 0 + 0 + 0"]  # 5, 5, 6, 7
RIGHT = ["answer 5", "answer 5", "answer 6", "answer 7"]


def play(*texts):
    return in_turn(Cascade(), Task("t", {"problems": PROBLEMS}), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.success, step.done) for agent, step in steps]


@pytest.mark.parametrize("tier", range(4))
def test_the_first_right_answer_ends_it_and_earns_the_pay_of_its_tier(tier):
    steps = earned(play(*["answer 0"] * tier, RIGHT[tier]))
    assert steps[-1] == (f"tier_{tier + 1}", (1.0, 0.7, 0.4, 0.1)[tier], 1.0, True, True)
    assert steps[:-1] == [(f"tier_{number + 1}", 0.0, 0.0, False, False) for number in range(tier)]


def test_if_all_are_wrong_it_ends_with_nothing():
    assert earned(play("answer 0", "what?", "", "answer 0"))[-1] == ("tier_4", 0.0, 0.0, False, True)
    assert [step.valid for _, step in play("answer 0", "what?")] == [{"tier_1": True}, {"tier_2": False}]


def test_each_tier_answers_a_chain_of_its_own():
    steps, env = play("answer 0", "answer 0", "answer 0"), Cascade()
    prompts = [env.observe(step.state, env.acting(step.state)[0])[0]["content"] for _, step in steps]
    assert prompts == [f"solve {problem}" for problem in PROBLEMS[1:]]


def test_the_contract_holds():
    env = make_env("cascade")
    assert len(env.agents) == len(PAYS) and make_env(**spec(env)) == env
    check_env(env, tasks=2)
