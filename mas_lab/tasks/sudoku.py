"""Sudoku: a proposer suggests digits, a filler writes them, and may rewrite wrong ones (AT-GRPO, arXiv 2510.11062).

Pocket size is 4x4 with a few open cells; a cell with its digit is one word. Full size is 9x9 or 4x4 for an instruction
model. Puzzles are not read from files. They are drawn with exactly one solution. No puzzle of `test` is one of `train`
in another form (`kind`). But both splits use the 288 ways to fill a 4x4 grid.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice
from math import isqrt
from typing import Any

from mas_lab.env import EnvError, Task
from mas_lab.tasks.shared.bases import ProposalState, ProposalTask
from mas_lab.tasks.shared.maze import word
from mas_lab.tasks.shared.rows import content_id, draw

Grid = tuple[int, ...]
"""Digits of a grid, row by row, 0 for an open cell."""


@cache
def names(side: int) -> tuple[str, ...]:
    """Return the names of the cells, row by row: a1, b1, ..."""
    return tuple(word((column, row)) for row in range(side) for column in range(side))


@cache
def homes(side: int) -> tuple[tuple[int, int, int], ...]:
    """Return the row, the column and the box of every cell, with a different number for each line."""
    box = isqrt(side)
    cells = ((row, column) for row in range(side) for column in range(side))
    return tuple((row, side + column, 2 * side + row // box * box + column // box) for row, column in cells)


@cache
def lines(side: int) -> tuple[tuple[int, ...], ...]:
    """Return the cells of every row, column and box."""
    return tuple(tuple(cell for cell, home in enumerate(homes(side)) if line in home) for line in range(3 * side))


def satisfied(grid: Grid) -> bool:
    """Return whether every row, column and box holds every digit."""
    side = isqrt(len(grid))
    return all({grid[cell] for cell in line} == set(range(1, side + 1)) for line in lines(side))


def orderly(grid: Grid) -> int:
    """Return the number of digits beyond the first, over all lines in which no digit is repeated."""
    digits_of_lines = [[grid[cell] for cell in line if grid[cell]] for line in lines(isqrt(len(grid)))]
    return sum(len(digits) - 1 for digits in digits_of_lines if len(digits) == len(set(digits)) > 0)


def filled(grid: Grid) -> float:
    """Return the share of cells with a digit."""
    return 1 - grid.count(0) / len(grid)


def beside(grid: Grid, cell: int) -> set[int]:
    """Return the digits in the row, column and box of a cell."""
    side = isqrt(len(grid))
    return {grid[other] for line in homes(side)[cell] for other in lines(side)[line]} - {0}


def solutions(grid: Grid, most: int = 2, rng: random.Random | None = None) -> list[Grid]:
    """Return up to `most` ways to fill `grid`, none if two clues clash; `rng` gives the digits a random order."""
    side = isqrt(len(grid))
    free, home, now = [2 ** (side + 1) - 2] * (3 * side), homes(side), [0] * len(grid)

    def possible(cell: int) -> int:
        row, column, box = home[cell]
        return free[row] & free[column] & free[box]

    def turn(cell: int, digit: int) -> None:
        """Write a digit into an open cell, or remove it."""
        now[cell] ^= digit
        for line in home[cell]:
            free[line] ^= 1 << digit

    def fill() -> Iterator[Grid]:
        cell = min((c for c, digit in enumerate(now) if not digit), key=lambda c: possible(c).bit_count(), default=None)
        if cell is None:
            yield tuple(now)
            return
        digits = [digit for digit in range(1, side + 1) if possible(cell) >> digit & 1]
        for digit in rng.sample(digits, len(digits)) if rng else digits:
            turn(cell, digit)
            yield from fill()
            turn(cell, digit)

    for cell, digit in enumerate(grid):
        if digit and not possible(cell) >> digit & 1:
            return []
        if digit:
            turn(cell, digit)
    return list(islice(fill(), most))


@lru_cache(maxsize=8192)
def solution(clues: Grid) -> Grid | None:
    """Return the only solution, or `None` if there is none or more than one."""
    found = solutions(clues)
    return found[0] if len(found) == 1 else None


def puzzles(rng: random.Random, side: int, blanks: int) -> Iterator[Grid]:
    """Yield random grids with one solution and `blanks` open cells, without end."""
    while True:
        [clues] = solutions((0,) * side**2, 1, rng)
        left = blanks
        for cell in rng.sample(range(side**2), side**2):
            fewer = (*clues[:cell], 0, *clues[cell + 1 :])
            if left and len(solutions(fewer)) == 1:
                clues, left = fewer, left - 1
        if not left:
            yield clues


def kind(clues: Grid) -> str:
    """Return a text that is the same for equivalent puzzles.

    These are the equivalent changes: renamed digits, exchanged rows or columns of a band, exchanged bands, and a turned
    or mirrored grid. Each cell is described by the cells in its row and column (in either order), in its box and with
    its digit. This is done three times over (colour refinement). Equivalent puzzles always share a text; different
    puzzles may share one.
    """
    side = isqrt(len(clues))
    same = [[cell for cell, other in enumerate(clues) if other == digit and digit] for digit in clues]
    colours = [str(bool(digit)) for digit in clues]
    for _ in range(3):
        of_lines = [sorted(colours[cell] for cell in line) for line in lines(side)]
        of_digits = [sorted(colours[other] for other in others) for others in same]
        places = [(sorted((of_lines[row], of_lines[column])), of_lines[box]) for row, column, box in homes(side)]
        described = zip(colours, places, of_digits, strict=True)
        colours = [content_id(repr([own, both, box, others])) for own, (both, box), others in described]
    return " ".join(sorted(colours))


WRITTEN = [f"{cell}={digit}" for cell in names(4) for digit in range(1, 5)]
"""Words of the digits in a pocket answer."""
BLANKS = {4: 10, 9: 45}
"""Open cells of a full-size puzzle, by its side."""

Digits = dict[int, int]
"""Digits of an answer: cell -> digit."""


@dataclass(frozen=True)
class State(ProposalState):
    """State of one episode; `steps` counts digits and turns so far, as the published reward does."""

    clues: Grid
    grid: Grid
    steps: int = 0


@dataclass(frozen=True)
class Sudoku(ProposalTask):
    """In a Sudoku, the proposer suggests digits and the filler writes them, for up to `max_turns` turns each.

    In AT-GRPO's released code the first agent writes a program, and the second sees it and its output; ours are two
    players with one view.

    Rewards: `team_reward` = [the grid is solved]. `local_reward` is the change in the number of right cells, as a share
    of the cells open at the start, for a proposal as if it were written.

    Published rewards (PettingLLMs): a digit in an open cell that clashes with no other digit earns -0.01, 0.1 times the
    share of filled cells, 0.5 times the change of that share, 0.02 for each line (row, column, box) that it lengthens,
    0.2 or 0.1 if one or two digits were possible, and 0.05 while cells are open. Any other digit earns -0.3. A grid of
    complete lines earns 2, and 0.5 more if it took no more steps than there were open cells. A proposal earns its
    `local_reward` alone, an unreadable one 0 (theirs: -1), and `max_return` is an upper bound. Fault: an answer that
    names every cell replaces the clues too, so one fixed grid solves all puzzles, and digits that make the puzzle
    unsolvable pay.

    No answer changes a clue, and an error and its repair together pay nothing. A wrong digit earns nothing, even if it
    clashes with no other digit: as there is only one solution, it blocks another cell. An answer is invalid, and writes
    nothing, if one of its words is no cell with a digit, if a cell comes twice, or if it is empty.

    `size` is either "pocket" (4x4, 6 open cells), "full", or the number of open cells of a pocket puzzle, 2 to 10.
    """

    side: int | None = None
    """Full size: side of the grid, 9 or 4 (as published). `None` means 9."""
    max_turns: int = 4
    mistakes: float = 0.15
    """Share of the digits of `demonstrate` that are drawn at random."""

    name = "sudoku"
    paper = "AT-GRPO, arXiv 2510.11062"
    order = "proposer → filler, in turns"
    roles = ("proposer", "filler")
    numbers = range(2, 11)
    unit = "open cells"
    default = 6
    tag = "fill"
    words = (*("clues", "put", "open", "hint", "none"), "proposer", "filler", "solo", *names(4), *WRITTEN)

    def __post_init__(self):
        super().__post_init__()
        known = (None, 4, 9) if self.full else (None, 4)
        self.require("side", self.side in known, "use 9 or 4 at size='full', 4 else")

    @property
    def _side(self) -> int:
        return self.side or (9 if self.full else 4)

    @property
    def blanks(self) -> int:
        """Return the number of open cells of a puzzle."""
        return BLANKS[self._side] if self.full else self.number

    @property
    def max_tokens(self) -> int:
        return 2048 if self.full else self._side**2 + 2

    @property
    def max_return(self) -> float:
        if not self.published:
            return 1.0
        lengthened = 0.02 * 3 * self._side * (self._side - 1)
        return 2.5 + 0.5 + lengthened + self._side**2 * (0.1 + 0.2 + 0.05 - 0.01)

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict]]:
        rng = random.Random(f"{self.name} {self._side} {self.blanks} {split} {seed}")
        drawn = draw(puzzles(rng, self._side, self.blanks), n, split, self.name, home=kind)
        texts = ["".join(map(str, clues)).replace("0", ".") for clues in drawn]
        return [(text, {"clues": text}) for text in texts]

    def start(self, task: Task) -> State:
        known, text = ".123456789"[: self._side + 1], task.data["clues"]
        if len(text) != self._side**2 or not set(text) <= set(known):
            raise EnvError(f"{self.name}: task {task.id!r} has clues={text!r}; give {self._side**2} of {known}")
        clues = tuple(known.index(digit) for digit in text)
        if solution(clues) in (None, clues):
            raise EnvError(f"{self.name}: task {task.id!r} has no open cell, or not exactly one solution")
        return State(clues, clues)

    def facts(self, state: State) -> dict[str, Any]:
        side, cells = self._side, range(self._side**2)
        put = self.phrased({cell: state.grid[cell] for cell in cells if state.grid[cell] != state.clues[cell]})
        left = " ".join(name for name, digit in zip(names(side), state.grid, strict=True) if not digit)
        digits = " ".join(map(str, state.clues)).replace("0", ".")
        return {
            "clues": self.phrased({cell: state.clues[cell] for cell in cells if state.clues[cell]}),
            "put": put, "shown_put": put or "nothing", "open": left, "shown_open": left or "none",
            "rows": "\n".join(digits[2 * side * row : 2 * side * (row + 1) - 1] for row in range(side)),
            "side": side, "box": isqrt(side),
        }  # fmt: skip

    def read(self, text: str) -> Digits | None:
        """Return the digits of an answer by cell, or `None` if unreadable; full size reads its last `<fill>` tag."""
        pairs = [word.partition("=") for word in self.words_of(text)]
        cells = {name: cell for cell, name in enumerate(names(self._side))}
        digits = {str(digit): digit for digit in range(1, self._side + 1)}
        known = all(name in cells and digit in digits for name, _, digit in pairs)
        once = len({name for name, _, _ in pairs}) == len(pairs) > 0
        return {cells[name]: digits[digit] for name, _, digit in pairs} if known and once else None

    def carry_out(self, state: State, digits: Digits | None) -> tuple[State, float, float, bool]:
        judge = self._published if self.published else self._ours
        grid, team, local, solved = judge(state, digits or {})
        return replace(state, grid=grid, steps=state.steps + len(digits or {}) + 1), team, local, solved

    def _ours(self, state: State, digits: Digits) -> tuple[Grid, float, float, bool]:
        grid = tuple(clue or digits.get(cell, state.grid[cell]) for cell, clue in enumerate(state.clues))
        right = solution(state.clues)
        before, after = (sum(map(int.__eq__, cells, right)) for cells in (state.grid, grid))
        solved = after == len(grid)
        return grid, float(solved), (after - before) / state.clues.count(0), solved

    def _published(self, state: State, digits: Digits) -> tuple[Grid, float, float, bool]:
        complete = len(digits) == len(state.grid)
        grid, reward = replaced(state.grid, digits) if complete else written_singly(state.grid, digits)
        solved = satisfied(grid)
        if solved:
            steps = state.steps + (0 if complete else len(digits))
            reward += 2.5 if steps <= state.clues.count(0) else 2.0
        return grid, reward, reward, solved

    def imperfect(self, state: State, rng: random.Random) -> Digits:
        """Return all missing digits; a share `mistakes` is drawn at random."""
        right = solution(state.clues)
        missing = [cell for cell, digit in enumerate(state.grid) if digit != right[cell]]
        wrong = {cell: rng.randint(1, self._side) for cell in missing if rng.random() < self.mistakes}
        return {cell: wrong.get(cell, right[cell]) for cell in missing}

    def phrased(self, digits: Digits) -> str:
        """Return digits as text, such as `a1=3 c2=1`."""
        return " ".join(f"{names(self._side)[cell]}={digit}" for cell, digit in digits.items())


def replaced(grid: Grid, digits: Digits) -> tuple[Grid, float]:
    """Return the grid and the published reward of an answer that names every cell, without the reward for solving."""
    after = tuple(digits[cell] for cell in range(len(grid)))
    if satisfied(after):
        return after, -0.01
    return after, -0.51 + 0.5 * (1 - filled(grid)) + 0.02 * (orderly(after) - orderly(grid))


def written_singly(grid: Grid, digits: Digits) -> tuple[Grid, float]:
    """Return the grid and the published reward of digits written one by one, without the reward for solving."""
    reward = 0.0
    for cell, digit in digits.items():
        taken = beside(grid, cell)
        if grid[cell] or digit in taken:
            reward -= 0.3
            continue
        possible = isqrt(len(grid)) - len(taken)
        after = (*grid[:cell], digit, *grid[cell + 1 :])
        reward += -0.01 + {1: 0.2, 2: 0.1}.get(possible, 0.0) + 0.05 * (0 in after) + 0.1 * filled(after)
        reward += 0.5 / len(grid) + 0.02 * (orderly(after) - orderly(grid))
        grid = after
    return grid, reward
