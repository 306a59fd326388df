"""A grid with walls: where a move leads, the ways to the goal, cells by name, and reading moves from an answer.

Leaves out: who moves, and why.
"""

import random
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

MOVES = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}

LONG = {"UP": "U", "DOWN": "D", "LEFT": "L", "RIGHT": "R"}
NAMED_CELL = re.compile(r"[a-f][1-6]")
"""A move of the pocket sizes: the word of the cell it leads to."""

Cell = tuple[int, int]
"""(column, row) from 0 at the top left."""


@dataclass(frozen=True)
class Maze:
    size: int
    walls: frozenset[Cell]
    start: Cell
    goal: Cell

    def after(self, at: Cell, move: str) -> Cell:
        """The cell that `move`, a letter of `MOVES` or the name of a cell, leads to; `at` itself when it is blocked."""
        column, row = (at[0] + MOVES[move][0], at[1] + MOVES[move][1]) if move in MOVES else cell_of(move)
        beside = abs(column - at[0]) + abs(row - at[1]) == 1
        free = beside and self.inside((column, row)) and (column, row) not in self.walls
        return (column, row) if free else at

    def beyond(self, at: Cell, move: str) -> Cell:
        """The cell that `move`, a letter of `MOVES`, points to, be it a wall; `at` itself at the edge."""
        cell = at[0] + MOVES[move][0], at[1] + MOVES[move][1]
        return cell if self.inside(cell) else at

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size


@lru_cache(maxsize=8192)
def distances(maze: Maze) -> Mapping[Cell, int]:
    """Moves from every cell that reaches the goal to the goal (breadth first)."""
    away, queue = {maze.goal: 0}, deque([maze.goal])
    while queue:
        at = queue.popleft()
        for move in MOVES:
            if (cell := maze.after(at, move)) not in away:
                away[cell] = away[at] + 1
                queue.append(cell)
    return away


def mazes(rng: random.Random, size: int, density: float) -> Iterator[Maze]:
    """Random mazes without end, solvable or not; `density` is the share of walls."""
    cells = [(column, row) for row in range(size) for column in range(size)]
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        start, goal = rng.sample(cells, 2)
        if start not in walls and goal not in walls:
            yield Maze(size, walls, start, goal)


def walls_in_order(maze: Maze) -> list[str]:
    """Row by row, each from the left."""
    return [word(cell) for cell in sorted(maze.walls, key=lambda cell: cell[::-1])]


def layout(maze: Maze) -> str:
    """The walls alone, as a text: mazes with the same walls belong to the same split."""
    return f"{maze.size} {' '.join(walls_in_order(maze))}"


def walk(maze: Maze, at: Cell, moves: tuple[str, ...]) -> list[Cell]:
    """The cells visited, `at` first; ends at the goal or before the first blocked move."""
    path = [at]
    for move in moves:
        cell = maze.after(path[-1], move)
        if path[-1] in (maze.goal, cell):
            break
        path.append(cell)
    return path


def wander(maze: Maze, at: Cell, most: int, mistakes: float, rng: random.Random) -> list[tuple[Cell, str]]:
    """Up to `most` moves to the goal, each with the cell it is made from; a share `mistakes` is drawn at random."""
    away, taken = distances(maze), []
    while len(taken) < most and at != maze.goal:
        good = [move for move in MOVES if away[maze.after(at, move)] < away[at]]
        move = rng.choice(list(MOVES) if rng.random() < mistakes else good)
        taken.append((at, move))
        at = maze.after(at, move)
    return taken


def read_moves(text: str, most: int, tagged: bool) -> tuple[str, ...] | None:
    """The moves of an answer: cells by name, or, `tagged`, letters of `MOVES` in its last `<moves>` tag. `None` if it
    cannot be read: a word of it is no move, or it has none or more than `most`."""
    if tagged:
        tags = re.findall(r"<moves>(.*?)</moves>", text, flags=re.DOTALL | re.IGNORECASE)
        text = re.sub(r"[,;]", " ", tags[-1]).upper() if tags else ""
    moves = tuple(LONG.get(name, name) for name in text.split())
    known = all(move in MOVES if tagged else NAMED_CELL.fullmatch(move) for move in moves)
    return moves if 1 <= len(moves) <= most and known else None


def word(cell: Cell) -> str:
    """(0, 2) as `a3`."""
    return f"{'abcdefghijklmnopqrstuvwxyz'[cell[0]]}{cell[1] + 1}"


def cell_of(name: str) -> Cell:
    return ord(name[0]) - ord("a"), int(name[1:]) - 1
