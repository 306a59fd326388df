"""Stakes: protocol and rewards by hand, and the two scales that an agent's own rewards may be divided by."""

import pandas as pd
import pytest
from plays import in_turn

from mas_lab.check.env import check_env
from mas_lab.env import Task, spec
from mas_lab.recipes import RECIPES
from mas_lab.tasks import make_env
from mas_lab.tasks.stakes import Stakes

FIRST, HIGH, LOW = "9 - 7 * 5 + 7 - 2", "1 + 1 + 0 + 0 + 0", "1 + 1 + 1 + 1 + 1"  # 5, 2, 5


def play(second, *texts):
    return in_turn(Stakes(), Task("t", {"problems": [FIRST, second]}), texts)


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.success, step.done) for agent, step in steps]


def test_a_right_solver_ends_a_high_task():
    assert earned(play(HIGH, "answer 5")) == [("solver", 1.0, 1.0, True, True)]


@pytest.mark.parametrize(("answer", "right"), [("answer 5", True), ("answer 4", False), ("", False)])
def test_in_a_low_task_a_right_solver_hands_on_to_the_clerk(answer, right):
    steps = play(LOW, "answer 5", answer)
    assert earned(steps) == [("solver", 0.0, 1.0, False, False), ("clerk", float(right), float(right), right, True)]
    assert Stakes().observe(steps[0][1].state, "clerk")[0]["content"] == f"solve {LOW}"


@pytest.mark.parametrize(
    ("second", "answer", "reward", "right"),
    [
        (HIGH, "answer 5", 0.3 - 0.008, True),
        (HIGH, "2 0 7 5 answer 5", 0.3 - 0.024, True),
        (HIGH, "answer 4", -0.008, False),
        (LOW, "2 0 7 5 answer 5", 0.5 - 0.024, True),
        (LOW, "answer 4", 0.5 - 0.008, False),
        (LOW, "", 0.5, False),
    ],
)
def test_the_helper_earns_for_being_right_in_high_tasks_alone_and_pays_for_words(second, answer, reward, right):
    [_, (agent, step)] = play(second, "answer 3", answer)
    assert (agent, step.team_reward, step.success, step.done) == ("helper", pytest.approx(reward), right, True)
    assert step.local_rewards == {"helper": float(right)}


def test_the_helper_hears_what_was_tried():
    for said, tried in (("answer 4", "4"), ("what?", "none")):
        [(_, step)] = play(HIGH, said)
        assert Stakes().observe(step.state, "helper")[0]["content"] == f"tried {tried} solve {FIRST}"


def test_a_scale_per_task_makes_words_as_important_as_being_right_and_one_per_agent_does_not():
    """The same four answers in a high and a low task: two right with six words, two wrong with two."""
    answers = ["2 0 7 5 answer 5", "answer 4", "2 0 7 5 answer 5", "answer 4"]
    rows = [
        {"task": name, "episode": f"{name}{number}", "agent": "helper", "turn": 0, "depth": 0, "team_reward":
         play(second, "answer 3", answer)[-1][1].team_reward}
        for name, second in (("high", HIGH), ("low", LOW)) for number, answer in enumerate(answers)
    ]  # fmt: skip
    turns = pd.DataFrame(rows)
    own = RECIPES["dr_mas"].advantages(turns)["advantage"]
    assert own.round(2).tolist() == [1, -1, 1, -1, -1, 1, -1, 1], (
        "in the low task the longer answer is punished as much"
    )
    pooled = RECIPES["own_pooled"].advantages(turns)["advantage"]
    assert (pooled[:4].abs() > 15 * pooled[4:].abs().to_numpy()).all() and (pooled * own > 0).all()


def test_the_contract_holds():
    env = make_env("stakes")
    assert env.agents == ("solver", "clerk", "helper") and make_env(**spec(env)) == env
    check_env(env, tasks=2)
