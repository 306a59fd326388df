"""Mazes small enough to check by eye, and the laws of the rewards on random walks."""

import pytest
from plays import in_turn

from mas_lab.env import EnvError, Task
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.maze import distances

# Column a is the leftmost, row 1 the top; S at a3, G at c1: a3 a2 a1 b1 c1 is blocked by a1, so the path is 6 long:
#      a b c
#   1  # . G
#   2  . # .
#   3  S . .      a3 b3 c3 c2 c1: 4 moves
MAZE = Task("by-hand", {"size": 3, "walls": ["a1", "b2"], "start": "a3", "goal": "c1"})


def play(env, *answers, task=MAZE):
    """The steps of an episode in which the agents give `answers` in turn."""
    return [step for _, step in in_turn(env, task, answers)]


def test_a_perfect_answer_reaches_max_return():
    plan, move = play(make_env("plan_path", size=3), "b3 c3 c2 c1", "b3 c3 c2 c1")
    assert (plan.team_reward, plan.local_rewards, plan.done, plan.success) == (0.0, {"planner": 1.0}, False, False)
    assert (move.team_reward, move.local_rewards, move.done, move.success) == (2.0, {"executor": 1.0}, True, True)


def test_progress_adds_up_over_turns_and_proposals_move_nothing():
    steps = play(make_env("plan_path"), "b3 c3", "b3", "b2", "c3 c2 c1")
    assert [step.team_reward for step in steps] == [0.0, 0.25, 0.0, 1.75]
    assert [sum(step.local_rewards.values()) for step in steps] == [0.5, 0.25, 0.0, 1.0]
    assert [step.state.at for step in steps] == [(0, 2), (1, 2), (1, 2), (2, 0)]


def test_a_blocked_move_stops_there_and_is_valid_and_a_detour_costs():
    _, move = play(make_env("plan_path"), "b3", "b3 b2 c2 c1")  # b3, then the wall b2
    assert move.state.at == (1, 2) and move.valid == {"executor": True}
    assert move.team_reward == 0.25 and move.local_rewards == {"executor": 0.25}
    _, move = play(make_env("plan_path"), "b3", "a2")  # a2 is 5 from the goal, a3 is 4
    assert move.team_reward == -0.25 and move.local_rewards == {"executor": 0.0}


@pytest.mark.parametrize("answer", ["", "b3 c3 c2 c1 b1", "b3 up", "executor", "b3, c3", "B3", "U", "g1", "a7"])
def test_an_unreadable_answer_is_invalid_and_moves_nothing(answer):
    plan, move = play(make_env("plan_path"), answer, answer)
    assert plan.valid == {"planner": False} and move.valid == {"executor": False}
    assert move.state.at == (0, 2) and (move.team_reward, move.local_rewards["executor"]) == (0.0, 0.0)


def test_published_shaping_pays_more_for_longer_mazes():
    env = make_env("plan_path", rewards="published", single_agent=True)
    (step,) = play(env, "b3 c3 c2 c1")  # gaps 4 3 2 1 0: sum of -0.01 + d - 0.99 d', then 1 at the goal, 0.5 no detour
    assert step.team_reward == pytest.approx(-0.04 + (4 - 2.97) + (3 - 1.98) + (2 - 0.99) + 1 + 1.5)
    near = Task("near", {**MAZE.data, "start": "c3", "walls": []})
    (short,) = play(env, "c2 c1", task=near)
    assert short.success and short.team_reward < step.team_reward


def test_a_task_without_a_path_is_refused():
    with pytest.raises(EnvError, match="'walled' has no path from a3 to c1"):
        make_env("plan_path").start(Task("walled", {**MAZE.data, "walls": ["b1", "c2"]}))


@pytest.mark.parametrize("options", [{}, {"size": 3}, {"size": "full"}])
def test_mazes_are_solvable_in_time_not_trivial_and_in_one_split(options):
    env = make_env("plan_path", **options)
    tasks = {split: env.tasks(60, split, seed=3) for split in ("train", "test")}
    for task in tasks["test"]:
        state = env.start(task)
        assert 3 <= distances(state.maze)[state.at] <= env.limit * env.max_turns
    layouts = [{tuple(task.data["walls"]) for task in drawn} for drawn in tasks.values()]
    assert layouts[0].isdisjoint(layouts[1])


def test_too_many_tasks_are_refused():
    with pytest.raises(EnvError, match="ask for fewer"):
        make_env("plan_path", size=3).tasks(10_000, "test", 0)
