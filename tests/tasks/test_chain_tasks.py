"""The five teaching tasks of chains (cascade, finisher, ladder, paid_help, stakes): protocol and rewards by hand."""

import pandas as pd
import pytest
from plays import in_turn

from mas_lab.env import Task
from mas_lab.recipes import RECIPES
from mas_lab.tasks.cascade import Cascade
from mas_lab.tasks.finisher import Finisher
from mas_lab.tasks.ladder import Ladder
from mas_lab.tasks.paid_help import PaidHelp
from mas_lab.tasks.stakes import Stakes

PROBLEMS = ["9 - 7 * 5 + 7 - 2", "1 + 1 + 1 + 1 + 1", "2 * 3 * 1 * 1 * 1", "8 - 1 + 0 + 0 + 0"]  # 5, 5, 6, 7
RIGHT = ["2 0 7 5 answer 5", "answer 5", "answer 6", "answer 7"]
HIGH, LOW = "1 + 1 + 0 + 0 + 0", "1 + 1 + 1 + 1 + 1"  # 2, 5
LADDER = Ladder(n_agents=4)


def play(env, *texts, problems=PROBLEMS):
    data = {"problems": problems} if env.chains_per_task > 1 else {"problem": problems[0]}
    return in_turn(env, Task("t", data), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.success, step.done) for agent, step in steps]


@pytest.mark.parametrize("tier", range(4))
def test_the_first_right_answer_of_a_cascade_ends_it_and_earns_the_pay_of_its_tier(tier):
    steps = earned(play(Cascade(), *["answer 0"] * tier, RIGHT[tier]))
    assert steps[-1] == (f"tier_{tier + 1}", (1.0, 0.7, 0.4, 0.1)[tier], 1.0, True, True)
    assert steps[:-1] == [(f"tier_{number + 1}", 0.0, 0.0, False, False) for number in range(tier)]


def test_a_cascade_without_a_right_answer_ends_with_nothing():
    steps = play(Cascade(), "answer 0", "what?", "", "answer 0")
    assert earned(steps)[-1] == ("tier_4", 0.0, 0.0, False, True)
    assert [step.valid for _, step in steps[:2]] == [{"tier_1": True}, {"tier_2": False}]


@pytest.mark.parametrize("passed", range(4))
def test_a_ladder_ends_at_the_top_or_at_the_first_wrong_answer_and_pays_the_share_passed(passed):
    assert earned(play(LADDER, *RIGHT))[-1] == ("stage_4", 1.0, 1.0, True, True)
    steps = play(LADDER, *RIGHT[:passed], "answer 1")
    assert earned(steps)[-1] == (f"stage_{passed + 1}", passed / 4, 0.0, False, True)


@pytest.mark.parametrize("low", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("ending", ["answer 4", "what?"])
def test_a_wrong_draft_ends_it_and_a_wrong_ending_still_pays_low_and_a_right_one_in_full(ending, low):
    assert earned(play(Finisher(low=low), "answer 4")) == [("solver", 0.0, 0.0, False, True)]
    steps = play(Finisher(low=low), "answer 5", ending)
    assert earned(steps) == [("solver", 0.0, 1.0, False, False), ("finisher", low, 0.0, False, True)]
    assert steps[1][1].valid == {"finisher": ending == "answer 4"}
    assert (
        Finisher().observe(steps[0][1].state, "finisher")[0]["content"] == f"solve {PROBLEMS[0]}"
    )  # without the draft
    assert earned(play(Finisher(low=low), "answer 5", RIGHT[0]))[-1] == ("finisher", 1.0, 1.0, True, True)


@pytest.mark.parametrize("pay", [0.2, 0.5, 1.0])
def test_help_is_worth_what_it_pays(pay):
    helped = earned(play(PaidHelp(pay=pay), "answer 4", "answer 5"))
    assert helped == [("solver", 0.0, 0.0, False, False), ("helper", pay, 1.0, True, True)]
    assert earned(play(PaidHelp(pay=pay), RIGHT[0])) == [("solver", 1.0, 1.0, True, True)]
    for wrong in ("answer 3", ""):
        steps = play(PaidHelp(pay=pay), "answer 4", wrong)
        assert earned(steps)[-1] == ("helper", 0.0, 0.0, False, True)
        assert steps[-1][1].valid == {"helper": bool(wrong)}


@pytest.mark.parametrize(("answer", "right"), [("answer 5", True), ("answer 4", False), ("", False)])
def test_in_a_low_task_a_right_solver_hands_on_to_the_clerk(answer, right):
    assert earned(play(Stakes(), "answer 5", problems=[PROBLEMS[0], HIGH])) == [("solver", 1.0, 1.0, True, True)]
    steps = play(Stakes(), "answer 5", answer, problems=[PROBLEMS[0], LOW])
    assert earned(steps) == [("solver", 0.0, 1.0, False, False), ("clerk", float(right), float(right), right, True)]


@pytest.mark.parametrize(("second", "answer", "reward", "right"), [
    (HIGH, "answer 5", 0.3 - 0.008, True), (HIGH, "2 0 7 5 answer 5", 0.3 - 0.024, True),
    (HIGH, "answer 4", -0.008, False), (LOW, "2 0 7 5 answer 5", 0.5 - 0.024, True), (LOW, "", 0.5, False),
])  # fmt: skip
def test_the_helper_earns_for_being_right_in_high_tasks_alone_and_pays_for_words(second, answer, reward, right):
    [_, (agent, step)] = play(Stakes(), "answer 3", answer, problems=[PROBLEMS[0], second])
    assert (agent, step.team_reward, step.success, step.done) == ("helper", pytest.approx(reward), right, True)
    assert step.local_rewards == {"helper": float(right)}


def test_a_scale_per_task_makes_words_as_important_as_being_right_and_one_per_agent_does_not():
    """The same four answers in a high and a low task: two right with six words, two wrong with two."""
    rows = []
    for name, second in (("high", HIGH), ("low", LOW)):
        for number, answer in enumerate([RIGHT[0], "answer 4"] * 2):
            [_, (_, step)] = play(Stakes(), "answer 3", answer, problems=[PROBLEMS[0], second])
            rows.append({"task": name, "episode": f"{name}{number}", "agent": "helper", "turn": 0, "depth": 0,
                         "team_reward": step.team_reward})  # fmt: skip
    turns = pd.DataFrame(rows)
    own = RECIPES["dr_mas"].advantages(turns)["advantage"]
    assert own.round(2).tolist() == [1, -1, 1, -1, -1, 1, -1, 1]  # in the low task the longer answer is punished
    pooled = RECIPES["own_pooled"].advantages(turns)["advantage"]
    assert (pooled[:4].abs() > 15 * pooled[4:].abs().to_numpy()).all() and (pooled * own > 0).all()
