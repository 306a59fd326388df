"""Grids filled by hand, uniqueness against all 288 filled 4x4 grids, and the laws of the rewards."""

import random
from itertools import islice, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import earned, in_turn

from mas_lab.env import EnvError, Task
from mas_lab.tasks import make_env
from mas_lab.tasks.sudoku import kind, names, puzzles, satisfied, solution, solutions

# 1 2 3 4      a1 b1 c1 d1
# 3 4 1 2
# 2 1 4 3
# 4 3 2 1
PUZZLE = Task("by-hand", {"clues": "..3434122.434321"})  # open: a1 b1, and b3
LEGAL = Task("legal", {"clues": "..343412.1434321"})  # 2 clashes with none in a1, and leaves no digit for a3
RIGHT = "a1=1 b1=2 b3=1"
WHOLE = " ".join(f"{cell}={digit}" for cell, digit in zip(names(4), "1234341221434321", strict=True))
OTHER = " ".join(f"{cell}={digit}" for cell, digit in zip(names(4), "4321214334121234", strict=True))


def play(env, *answers, task=PUZZLE):
    """The steps of an episode in which the agents give `answers` in turn."""
    return [step for _, step in in_turn(env, task, answers)]


BANDS = [one + two for one, two in product(permutations(range(1, 5)), repeat=2)
         if len({*one[:2], *two[:2]}) == len({*one[2:], *two[2:]}) == 4]  # fmt: skip
FILLED = sorted(top + bottom for top, bottom in product(BANDS, BANDS)
                if all(len({*top[column::4], *bottom[column::4]}) == 4 for column in range(4)))  # fmt: skip
"""Every filled 4x4 grid, found without the kit's solver."""


def fitting(clues):
    """The filled grids that hold these clues."""
    return [grid for grid in FILLED if all(clue in (0, digit) for clue, digit in zip(clues, grid, strict=True))]


def test_a_perfect_answer_reaches_max_return():
    plan, fill = play(make_env("sudoku"), RIGHT, RIGHT)
    assert earned(plan) == (0.0, 1.0, False, False) and plan.state.grid == plan.state.clues
    assert earned(fill) == (1.0, 1.0, True, True) and satisfied(fill.state.grid)


def test_shares_by_hand_and_a_wrong_digit_can_be_mended():
    steps = play(make_env("sudoku", single_agent=True), "a1=1 b1=1", "b1=2 a1=2", "a1=1", "b3=1")
    assert [step.team_reward for step in steps] == [0.0, 0.0, 0.0, 1.0]
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])
    assert [step.done for step in steps] == [False, False, False, True]


def test_full_size_reads_the_last_tag():
    env = make_env("sudoku", size="full", side=4)
    steps = play(env, "so <fill>a1=1</fill> or <FILL>a1=2, B1=2</FILL>", "a1=1")
    assert steps[0].state.hints == ({0: 2, 1: 2},) and steps[1].valid == {"filler": False}


def test_spoiling_costs_what_it_loses_and_a_clue_stays():
    steps = play(make_env("sudoku", single_agent=True), "a1=1 b1=2", "a1=3 b1=3", "c1=1 d1=1")
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([2 / 3, -2 / 3, 0.0])
    assert steps[2].state.grid[2:4] == (3, 4) and steps[2].valid == {"solo": True}


@pytest.mark.parametrize("answer", ["", "a1=1 a1=2", "a1=5", "a1=0", "e1=1", "a1", "a1=1 please", "a1=1,b1=2", "A1=1",
                                    "filler", "a1==1", "a1=1=2"])  # fmt: skip
def test_an_unreadable_answer_is_invalid_and_writes_nothing(answer):
    plan, fill = play(make_env("sudoku"), answer, answer)
    assert plan.valid == {"proposer": False} and fill.valid == {"filler": False}
    assert fill.state.grid == fill.state.clues and earned(fill) == (0.0, 0.0, False, False)


def test_published_clues_are_ignored_so_that_one_grid_solves_everything():
    """Ours solves those alone whose solution it happens to be."""
    told = {}
    for rewards in ("published", "ours"):
        env = make_env("sudoku", rewards=rewards, single_agent=True)
        told[rewards] = [play(env, OTHER, task=task)[0] for task in env.tasks(40, "test", 0)]
    assert all(step.success and step.team_reward == pytest.approx(2.49) for step in told["published"])
    solved = [step.success for step in told["ours"]]
    assert sum(solved) < 5 and all(step.state.clues != step.state.grid for step in told["ours"])
    kept = [all(clue in (0, digit) for clue, digit in zip(step.state.clues, step.state.grid, strict=True))
            for step in told["ours"]]  # fmt: skip
    assert all(kept) and all(step.team_reward == step.success for step in told["ours"])


def test_published_pays_for_a_digit_that_makes_the_puzzle_unsolvable():
    (step,) = play(make_env("sudoku", rewards="published", single_agent=True), "a1=2", task=LEGAL)
    assert step.team_reward > 0.2 and not solutions(step.state.grid)
    assert earned(play(make_env("sudoku", single_agent=True), "a1=2", task=LEGAL)[0])[:2] == (0.0, 0.0)


def test_published_rewards_by_hand():
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
    drawn = [[env.start(task).clues for task in env.tasks(80, split, seed=3)] for split in ("train", "test")]
    for clues in drawn[0] + drawn[1]:
        assert fitting(clues) == [solution(clues)] and clues.count(0) == blanks
    assert set(map(kind, drawn[0])).isdisjoint(map(kind, drawn[1]))


@settings(max_examples=60)
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


def disguised(clues, side, rng):
    """The same puzzle in another dress."""
    box = {4: 2, 9: 3}[side]

    def shuffled():
        bands = rng.sample(range(box), box)
        return [band * box + row for band in bands for row in rng.sample(range(box), box)]

    rows, columns, digits = shuffled(), shuffled(), [0, *rng.sample(range(1, side + 1), side)]
    grid = [[digits[clues[row * side + column]] for column in columns] for row in rows]
    if rng.random() < 0.5:
        grid = list(zip(*grid, strict=True))
    return tuple(digit for row in grid for digit in row)


@pytest.mark.parametrize("side, blanks, count", [(4, 6, 40), (4, 9, 40), (9, 45, 2)])
def test_a_puzzle_in_another_dress_is_of_the_same_kind(side, blanks, count):
    rng = random.Random(0)
    kinds = set()
    for clues in islice(puzzles(rng, side, blanks), count):
        kinds.add(kind(clues))
        assert kind(disguised(clues, side, rng)) == kind(clues)
    assert len(kinds) >= count / 2  # and others are, mostly, of another


NOT_ONE, UNREAD = "no open cell, or not exactly one solution", "clues='.*'; give 16 of .1234"


@pytest.mark.parametrize(("clues", "words"), [
    ("1234341221434321", NOT_ONE), ("11..............", NOT_ONE), ("12343412........", NOT_ONE), ("", UNREAD),
    ("1234", UNREAD), ("..3434122.43432x", UNREAD), ("..3434122.434325", UNREAD), ("." * 81, UNREAD),
])  # fmt: skip
def test_a_task_without_exactly_one_solution_or_with_nothing_to_fill_is_refused(clues, words):
    with pytest.raises(EnvError, match=f"sudoku: task 'odd' has {words}"):
        make_env("sudoku").start(Task("odd", {"clues": clues}))
