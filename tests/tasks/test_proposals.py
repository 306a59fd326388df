"""Tasks in which a proposal is followed by an act: mazes, rooms and grids small enough to check by eye, and their laws.

Rooms are solved forwards where the kit's solver goes backwards, and grids are compared with all 288 filled 4x4 grids.
"""

import random
from collections import deque
from itertools import islice, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import earned, in_turn

from mas_lab.env import EnvError, Task
from mas_lab.tasks import make_env
from mas_lab.tasks.shared import rows
from mas_lab.tasks.shared.maze import MOVES, layout, rooms, word
from mas_lab.tasks.sudoku import kind, names, solution, solutions

# Column a is the leftmost, row 1 the top; S at a3, G at c1: a3 a2 a1 b1 c1 is blocked by a1, so the path is 6 long:
#      a b c
#   1  # . G
#   2  . # .
#   3  S . .      a3 b3 c3 c2 c1: 4 moves
MAZE = Task("by-hand", {"size": 3, "walls": ["a1", "b2"], "start": "a3", "goal": "c1"})

# Player at a2, box b2, target d2, a wall at c4; edges block:
#      a b c d
#   1  . . . .
#   2  @ $ . o
#   3  . . . .
#   4  . . # .
ROOM = Task("by-hand", {"size": 4, "walls": ["c4"], "targets": ["d2"], "boxes": ["b2"], "start": "a2"})
# Two boxes; the one in row 3 can be pushed over its target and back, from either side.
TWO = Task("two", {"size": 5, "walls": [], "targets": ["c3", "c5"], "boxes": ["b3", "b4"], "start": "a3"})

# 1 2 3 4      a1 b1 c1 d1
# 3 4 1 2
# 2 1 4 3
# 4 3 2 1
PUZZLE = Task("by-hand", {"clues": "..3434122.434321"})  # open: a1 b1, and b3
LEGAL = Task("legal", {"clues": "..343412.1434321"})  # 2 clashes with none in a1, and leaves no digit for a3
RIGHT = "a1=1 b1=2 b3=1"
WHOLE = " ".join(f"{cell}={digit}" for cell, digit in zip(names(4), "1234341221434321", strict=True))
OTHER = " ".join(f"{cell}={digit}" for cell, digit in zip(names(4), "4321214334121234", strict=True))


BANDS = [one + two for one, two in product(permutations(range(1, 5)), repeat=2)
         if len({*one[:2], *two[:2]}) == len({*one[2:], *two[2:]}) == 4]  # fmt: skip
FILLED = sorted(top + bottom for top, bottom in product(BANDS, BANDS)
                if all(len({*top[column::4], *bottom[column::4]}) == 4 for column in range(4)))  # fmt: skip
"""Every filled 4x4 grid, found without the kit's solver."""
BY_HAND = {"plan_path": MAZE, "sokoban": ROOM, "sudoku": PUZZLE}


def play(env, *answers, task=None):
    """The steps of an episode in which the agents give `answers` in turn."""
    return [step for _, step in in_turn(env, task or BY_HAND[env.name], answers)]


# Mazes


def test_progress_adds_up_over_turns_and_proposals_move_nothing():
    steps = play(make_env("plan_path"), "b3 c3", "b3", "b2", "c3 c2 c1")
    assert [step.team_reward for step in steps] == [0.0, 0.25, 0.0, 1.75]
    assert [sum(step.local_rewards.values()) for step in steps] == [0.5, 0.25, 0.0, 1.0]
    assert [step.state.place[0] for step in steps] == [(0, 2), (1, 2), (1, 2), (2, 0)]


def test_a_blocked_move_stops_there_and_is_valid_and_a_detour_costs():
    _, move = play(make_env("plan_path"), "b3", "b3 b2 c2 c1")  # b3, then the wall b2
    assert move.state.place[0] == (1, 2) and move.valid == {"executor": True}
    assert move.team_reward == 0.25 and move.local_rewards == {"executor": 0.25}
    _, move = play(make_env("plan_path"), "b3", "a2")  # a2 is 5 from the goal, a3 is 4
    assert move.team_reward == -0.25 and move.local_rewards == {"executor": 0.0}


def test_published_shaping_pays_more_for_longer_mazes():
    env = make_env("plan_path", rewards="published", single_agent=True)
    (step,) = play(env, "b3 c3 c2 c1")  # gaps 4 3 2 1 0: sum of -0.01 + d - 0.99 d', then 1 at the goal, 0.5 no detour
    assert step.team_reward == pytest.approx(-0.04 + (4 - 2.97) + (3 - 1.98) + (2 - 0.99) + 1 + 1.5)
    near = Task("near", {**MAZE.data, "start": "c3", "walls": []})
    (short,) = play(env, "c2 c1", task=near)
    assert short.success and short.team_reward < step.team_reward


def test_too_many_tasks_are_refused(monkeypatch):
    monkeypatch.setattr(rows, "PATIENCE", 100)
    with pytest.raises(EnvError, match="ask for fewer"):
        make_env("plan_path", size=3).tasks(10_000, "test", 0)


# Rooms


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
    (ROOM, "a3 a4 b4 c4", "b4"), (ROOM, "b1", "a2"), (ROOM, "a2", "a2"),
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


def test_published_rewards_of_a_room_by_hand():
    env = make_env("sokoban", rewards="published", single_agent=True)
    (won,) = play(env, "b2 c2")  # the box goes from 2 away to 1 and 0
    assert won.team_reward == pytest.approx(-0.02 + 0.1 * (2 - 0.99 + 1) + 1 + 10)
    (blocked,) = play(env, "a1 b2")
    assert blocked.team_reward == pytest.approx(-0.01 - 0.05 + 2 * 0.1 * (2 - 0.99 * 2))


def test_the_solver_backwards_agrees_with_one_forwards():
    """On random rooms, most of which cannot be solved: as far, or not at all."""
    rng, found = random.Random(0), []
    for size, boxes, count in ((4, 1, 200), (5, 1, 25), (4, 2, 6)):
        for room, place in islice(rooms(rng, size, boxes, 0.15), count):
            found.append(forwards(room, place))
            assert room.away.get(place) == found[-1]
    assert 40 < sum(way is not None for way in found) < 150


@pytest.mark.parametrize("options, count", [({}, 30), ({"size": 5, "boxes": 2}, 2), ({"size": "full"}, 4)])
def test_every_level_is_solvable_in_time_and_stands_in_one_split_even_turned_or_mirrored(options, count):
    env, seen = make_env("sokoban", **options), {}
    for split in ("train", "test"):
        states = [env.start(task) for task in env.tasks(count, split, seed=3)]
        seen[split] = {layout(state.floor) for state in states}
        for state in states:
            assert 3 <= forwards(state.floor, state.place) <= env.limit * env.max_turns
            assert len(state.place[1] - state.floor.targets) == env.boxes
    assert seen["train"].isdisjoint(seen["test"])


# Grids


def fitting(clues):
    """The filled grids that hold these clues."""
    return [grid for grid in FILLED if all(clue in (0, digit) for clue, digit in zip(clues, grid, strict=True))]


def test_shares_by_hand_and_a_wrong_digit_can_be_mended():
    steps = play(make_env("sudoku", single_agent=True), "a1=1 b1=2", "a1=3 b1=3", "c1=1 d1=1")  # a clue stays
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([2 / 3, -2 / 3, 0.0])
    assert steps[2].state.grid[2:4] == (3, 4) and steps[2].valid == {"solo": True}
    steps = play(make_env("sudoku", single_agent=True), "a1=1 b1=1", "b1=2 a1=2", "a1=1", "b3=1")
    assert [step.team_reward for step in steps] == [0.0, 0.0, 0.0, 1.0]
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])
    assert [step.done for step in steps] == [False, False, False, True]


def test_published_clues_are_ignored_so_that_one_grid_solves_everything():
    """Ours solves those alone whose solution it happens to be."""
    told = {}
    for rewards in ("published", "ours"):
        env = make_env("sudoku", rewards=rewards, single_agent=True)
        told[rewards] = [play(env, OTHER, task=task)[0] for task in env.tasks(12, "test", 0)]
    assert all(step.success and step.team_reward == pytest.approx(2.49) for step in told["published"])
    solved = [step.success for step in told["ours"]]
    assert sum(solved) < 3 and all(step.state.clues != step.state.grid for step in told["ours"])
    kept = [all(clue in (0, digit) for clue, digit in zip(step.state.clues, step.state.grid, strict=True))
            for step in told["ours"]]  # fmt: skip
    assert all(kept) and all(step.team_reward == step.success for step in told["ours"])


def test_published_pays_for_a_digit_that_makes_the_puzzle_unsolvable():
    (step,) = play(make_env("sudoku", rewards="published", single_agent=True), "a1=2", task=LEGAL)
    assert step.team_reward > 0.2 and not solutions(step.state.grid)
    assert earned(play(make_env("sudoku", single_agent=True), "a1=2", task=LEGAL)[0])[:2] == (0.0, 0.0)


def test_published_rewards_of_a_grid_by_hand():
    env = make_env("sudoku", rewards="published", single_agent=True)
    (one,) = play(env, "b3=1")  # one digit was possible, three lines grow, 14 of 16 cells are filled then
    assert one.team_reward == pytest.approx(-0.01 + 0.2 + 0.5 / 16 + 3 * 0.02 + 0.1 * 14 / 16 + 0.05)
    (clash,) = play(env, "b3=3 c1=3")
    assert clash.team_reward == pytest.approx(-0.6)
    (whole,) = play(env, WHOLE)
    assert whole.team_reward == pytest.approx(2.49) and whole.success
    (twos,) = play(env, WHOLE.replace("a1=1", "a1=2"))  # 3 cells more, and again 27 beyond the first
    assert twos.team_reward == pytest.approx(-0.51 + 0.5 * 3 / 16)


@pytest.mark.parametrize("options, blanks", [({}, 6), ({"size": 2}, 2), ({"size": "full", "side": 4}, 10)])
def test_every_small_puzzle_has_one_solution_and_stands_in_one_split(options, blanks):
    env = make_env("sudoku", **options)
    drawn = [[env.start(task).clues for task in env.tasks(25, split, seed=3)] for split in ("train", "test")]
    for clues in drawn[0] + drawn[1]:
        assert fitting(clues) == [solution(clues)] and clues.count(0) == blanks
    assert set(map(kind, drawn[0])).isdisjoint(map(kind, drawn[1]))


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), clues=st.integers(0, 16), clash=st.booleans())
def test_the_solver_finds_what_there_is_among_288_filled_grids(seed, clues, clash):
    assert len(FILLED) == 288
    rng = random.Random(seed)
    grid = list(rng.choice(FILLED))
    for cell in rng.sample(range(16), 16 - clues):
        grid[cell] = 0
    if clash:
        grid[rng.randrange(16)] = rng.randint(1, 4)
    assert sorted(solutions(tuple(grid), 1000)) == fitting(grid)


# All


@pytest.mark.parametrize(("name", "answer"), [
    *(("plan_path", answer) for answer in ("", "b3 c3 c2 c1 b1", "b3 up", "b3, c3", "B3", "g1", "a7")),
    *(("sudoku", answer) for answer in ("", "a1=1 a1=2", "a1=5", "a1=0", "e1=1", "a1", "a1=1,b1=2", "A1=1")),
])  # fmt: skip
def test_an_unreadable_answer_is_invalid_and_changes_nothing(name, answer):
    env = make_env(name)
    proposed, done = play(env, answer, answer)
    assert not any((proposed.valid | done.valid).values()) and earned(done) == (0.0, 0.0, False, False)
    assert place(done.state) == place(env.start(BY_HAND[name]))


NOT_ONE, UNREAD = "no open cell, or not exactly one solution", "clues='.*'; give 16 of .1234"
ODD = "is solved at its start, or cannot be solved"


@pytest.mark.parametrize(("name", "change", "words"), [
    ("plan_path", {"walls": ["b1", "c2"]}, ODD), ("sokoban", {"boxes": ["a1"]}, ODD),
    ("sokoban", {"boxes": ["d2"]}, ODD), ("sokoban", {"walls": ["c1", "c2", "c3", "c4"]}, ODD),
    *(("sudoku", {"clues": clues}, NOT_ONE) for clues in ("1234341221434321", "11..............", "12343412........")),
    ("sudoku", {"clues": "1234"}, UNREAD), ("sudoku", {"clues": "..3434122.434325"}, UNREAD),
])  # fmt: skip
def test_a_task_that_is_solved_or_lost_from_the_start_or_has_no_single_solution_is_refused(name, change, words):
    with pytest.raises(EnvError, match=f"task 'odd' .*{words}"):
        make_env(name).start(Task("odd", {**BY_HAND[name].data, **change}))


def place(state):
    """Return what a proposal leaves as it is."""
    return state.place if hasattr(state, "place") else state.grid


def reached(env, state):
    """Return the share of the way or the digits that is done, and the share that the team is paid for."""
    if env.name == "sudoku":
        right = [digit == wanted for digit, wanted in zip(state.grid, solution(state.clues), strict=True)]
        return 1 - right.count(False) / state.clues.count(0), float(all(right))
    floor, first, away = state.floor, state.start, state.floor.away.get(state.place)
    done = None if away is None else 1 - away / floor.away[first]
    if env.name == "plan_path":
        return done, done + (away == 0)
    off = len(first[1] - floor.targets)
    return done, 0.0 if away is None else 1 - len(place(state)[1] - floor.targets) / off + (away == 0)


@settings(max_examples=50)
@given(
    name=st.sampled_from(["plan_path", "sokoban", "sokoban boxes", "sudoku"]),
    seed=st.integers(0, 500),
    mistakes=st.sampled_from([0.3, 0.9]),
    rewards=st.sampled_from(["ours", "published"]),
)
def test_the_return_depends_on_the_end_alone(name, seed, mistakes, rewards):
    name, *boxes = name.split()
    options = dict.fromkeys(boxes, 2) | ({"n_agents": 2 + seed % 3} if name == "plan_path" else {})
    env, rng = make_env(name, mistakes=mistakes, rewards=rewards, **options), random.Random(seed)
    state, total, own, done = env.start(env.tasks(1, "train", seed)[0]), 0.0, 0.0, False
    while not done:
        (agent,) = env.acting(state)
        step = env.step(state, {agent: "x" if rng.random() < 0.2 else env.demonstrate(state, agent, rng)})
        if agent == env.agents[-1]:
            own += step.local_rewards[agent]
        else:
            assert step.team_reward == 0 and place(step.state) == place(state)
        assert rewards == "published" or name != "plan_path" or 0 <= step.local_rewards[agent] <= 1
        state, total, done = step.state, total + step.team_reward, step.done
    assert total <= env.max_return
    if rewards == "ours":
        share, paid = reached(env, state)
        assert total == pytest.approx(paid) and (total == pytest.approx(env.max_return)) == step.success
        assert name == "plan_path" or (own < 1 if share is None else own == pytest.approx(share))
