"""Draw and solve Sudoku grids, 4x4 and 9x9, and recognise equivalent ones.

A grid is a tuple of digits, row by row, 0 for an open cell. The task decides who fills it, and why.
"""

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import islice
from math import isqrt

from mas_lab.tasks.shared.maze import word
from mas_lab.tasks.shared.rows import content_id

Grid = tuple[int, ...]


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
