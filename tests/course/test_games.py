"""The course's game is one by the laws of games, and pays who alone is right."""

import pytest

import mas_lab as lab
from mas_lab.course.games import Race

RIGHT, WRONG = "1 2 3 4 answer 4", "1 2 3 4 answer 5"


@pytest.mark.parametrize(
    "left, right, won", [(RIGHT, WRONG, 1), (WRONG, RIGHT, -1), (RIGHT, RIGHT, 0), (WRONG, WRONG, 0), ("?", RIGHT, -1)]
)
def test_who_alone_is_right_wins(left, right, won):
    env = Race()
    assert lab.check_env(env, tasks=2).set_index("check").loc["success is the first agent's win", "times"] > 0
    state = env.start(lab.Task("t", {"problem": "0 + 1 + 1 + 1 + 1"}))
    assert env.acting(state) == ("left", "right") and env.observe(state, "left") == env.observe(state, "right")
    step = env.step(state, {"left": left, "right": right})
    assert step.local_rewards == {"left": won, "right": -won} and step.team_reward == 0
    assert step.success == (won > 0) and step.done and env.acting(step.state) == ()
    assert step.valid == {"left": left != "?", "right": True}
