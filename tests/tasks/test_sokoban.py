"""Rooms small enough to check by eye, a solver that goes forwards where the kit's goes backwards, and reward laws."""

import random
from collections import deque
from itertools import islice

import pytest
from plays import earned, in_turn

from mas_lab.env import EnvError, Task
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.maze import MOVES, Room, layout, rooms, word

# Player at a2, box b2, target d2, a wall at c4; edges block:
#      a b c d
#   1  . . . .
#   2  @ $ . o
#   3  . . . .
#   4  . . # .
ROOM = Task("by-hand", {"size": 4, "walls": ["c4"], "targets": ["d2"], "boxes": ["b2"], "start": "a2"})
# Two boxes; the one in row 3 can be pushed over its target and back, from either side.
TWO = Task("two", {"size": 5, "walls": [], "targets": ["c3", "c5"], "boxes": ["b3", "b4"], "start": "a3"})


def play(env, *answers, task=ROOM):
    """The steps of an episode in which the agents give `answers` in turn."""
    return [step for _, step in in_turn(env, task, answers)]


def forwards(room, place):
    """Moves to a solution, by trying; None if there is none."""
    away, queue = {place: 0}, deque([place])
    while queue:
        now = queue.popleft()
        if now[1] == room.targets:
            return away[now]
        for after in (room.after(now, move) for move in MOVES):
            if after not in away:
                away[after] = away[now] + 1
                queue.append(after)
    return None


def test_a_perfect_answer_reaches_max_return():
    plan, move = play(make_env("sokoban"), "b2 c2", "b2 c2")
    assert earned(plan) == (0.0, 1.0, False, False) and plan.state.place[0] == (0, 1)
    assert earned(move) == (2.0, 1.0, True, True) and move.state.place == ((2, 1), frozenset({(3, 1)}))


def test_local_is_the_way_that_was_made_good():
    env = make_env("sokoban", single_agent=True)
    steps = play(env, "a1", "b1 a1", "a2", "b2 b3")
    assert [step.local_rewards["solo"] for step in steps] == [-0.5, 0.0, 0.5, 0.0]
    # 2 moves away, then 3; there and back; back to 2; a push (1 away) and a step aside (2 away)
    assert [step.team_reward for step in steps] == [0.0] * 4 and steps[3].done and not steps[3].success


def test_a_lost_game_ends_there():
    plan, move = play(make_env("sokoban"), "a3 b3 b2 c2", "a3 b3 b2 c2")  # the box goes up to the edge, and stays there
    assert earned(plan) == (0.0, -2.0, False, False)
    assert earned(move) == (0.0, -2.0, False, True) and move.state.place == ((1, 1), frozenset({(1, 0)}))


@pytest.mark.parametrize("task, answer, at", [
    (ROOM, "a1 b1 c1 d1", "d1"), (ROOM, "a3 a4 b4 c4", "b4"), (ROOM, "b1", "a2"), (ROOM, "a2", "a2"),
    (TWO, "a4 a5 b5 b4 b3", "b5"), (TWO, "b3 c3 d3 e3", "d3"),
])  # fmt: skip
def test_what_blocks_stops_the_moves_and_is_valid(task, answer, at):
    """The edge, a wall, a cell that is not beside, standing still; two boxes in a row, a box at the edge."""
    (step,) = play(make_env("sokoban", size=5, boxes=2, single_agent=True), answer, task=task)
    assert word(step.state.place[0]) == at and step.valid == {"solo": True}


def test_published_pays_for_a_box_that_is_pushed_off_and_on_and_ours_does_not():
    told = {}
    for rewards in ("ours", "published"):
        env = make_env("sokoban", size=5, boxes=2, rewards=rewards, single_agent=True, max_turns=9)
        steps = play(env, "b3", "c3", "c2 d2 e2 e3 d3", "c3", "c2 b2 a2 a3 b3", "c3", "c2 d2 e2 e3 d3", task=TWO)
        told[rewards] = [step.team_reward for step in steps]
        assert steps[-1].state.place[1] == {(2, 2), (1, 3)} and not steps[-1].done
    assert told["ours"] == [0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5] and sum(told["ours"]) == 0.5
    cycles = [sum(told["published"][1:3]), sum(told["published"][3:5]), sum(told["published"][5:])]
    assert min(cycles) > 0.4


def test_published_pays_for_a_box_that_is_lost_nearer_to_its_target():
    lose = Task("corner", {**ROOM.data, "targets": ["d1"], "boxes": ["b3"], "start": "a3", "walls": ["d2"]})
    told = [play(make_env("sokoban", rewards=rewards, single_agent=True), "b3 c3", task=lose)[0]
            for rewards in ("published", "ours")]  # fmt: skip
    assert all(step.done and not step.success for step in told)  # below the wall d2 nothing leads up to d1
    assert told[0].team_reward == pytest.approx(-0.02 + 0.1 * (4 - 0.99 * 3 + 3 - 0.99 * 2)) and told[0].team_reward > 0
    assert earned(told[1])[0] == 0.0 and earned(told[1])[1] < 0


def test_published_rewards_by_hand():
    env = make_env("sokoban", rewards="published", single_agent=True)
    (won,) = play(env, "b2 c2")  # the box goes from 2 away to 1 and 0
    assert won.team_reward == pytest.approx(-0.02 + 0.1 * (2 - 0.99 + 1) + 1 + 10)
    (blocked,) = play(env, "a1 b2")
    assert blocked.team_reward == pytest.approx(-0.01 - 0.05 + 2 * 0.1 * (2 - 0.99 * 2))


@pytest.mark.parametrize("change", [{"boxes": ["a1"]}, {"boxes": ["d2"]}, {"walls": ["c1", "c2", "c3", "c4"]}])
def test_a_task_that_is_solved_or_lost_from_the_start_is_refused(change):
    with pytest.raises(EnvError, match="sokoban: task 'odd' is solved at its start, or cannot be solved"):
        make_env("sokoban").start(Task("odd", {**ROOM.data, **change}))


def test_the_solver_backwards_agrees_with_one_forwards():
    """On random rooms, most of which cannot be solved: as far, or not at all."""
    rng, found = random.Random(0), []
    for size, boxes, count in ((4, 1, 300), (5, 1, 60), (4, 2, 10)):
        for room, place in islice(rooms(rng, size, boxes, 0.15), count):
            found.append(forwards(room, place))
            assert room.away.get(place) == found[-1]
    assert 70 < sum(way is not None for way in found) < 200


@pytest.mark.parametrize("options, count", [({}, 120), ({"size": 5, "boxes": 2}, 3), ({"size": "full"}, 8)])
def test_every_level_is_solvable_in_time_and_stands_in_one_split_even_turned_or_mirrored(options, count):
    env, seen = make_env("sokoban", **options), {}
    for split in ("train", "test"):
        states = [env.start(task) for task in env.tasks(count, split, seed=3)]
        seen[split] = {layout(state.room) for state in states}
        for state in states:
            assert 3 <= forwards(state.room, state.place) <= env.limit * env.max_turns
            assert len(state.place[1] - state.room.targets) == env.boxes
    assert seen["train"].isdisjoint(seen["test"])


def test_a_room_turned_or_mirrored_has_the_same_layout():
    for room, _ in islice(rooms(random.Random(1), 5, 2, 0.2), 50):
        for turn in (lambda cell: (4 - cell[1], cell[0]), lambda cell: cell[::-1]):
            parts = (frozenset(map(turn, part)) for part in (room.walls, room.targets))
            assert layout(Room(5, *parts)) == layout(room)
