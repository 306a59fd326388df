"""Model a grid with walls: moves, ways to the goal, names of cells, and moves in an answer.

The tasks decide who moves, and why.
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
"""Move of the pocket sizes: the name of the cell that it leads to."""

Cell = tuple[int, int]
"""(column, row), counted from 0 at the top left."""


@dataclass(frozen=True)
class Maze:
    size: int
    walls: frozenset[Cell]
    start: Cell
    goal: Cell

    def after(self, at: Cell, move: str) -> Cell:
        """Return the cell after `move`, a letter of `MOVES` or the name of a cell; `at` itself if it is blocked."""
        column, row = (at[0] + MOVES[move][0], at[1] + MOVES[move][1]) if move in MOVES else cell_of(move)
        beside = abs(column - at[0]) + abs(row - at[1]) == 1
        free = beside and self.inside((column, row)) and (column, row) not in self.walls
        return (column, row) if free else at

    def beyond(self, at: Cell, move: str) -> Cell:
        """Return the cell that `move`, a letter of `MOVES`, points to, even a wall; `at` itself at the edge."""
        cell = at[0] + MOVES[move][0], at[1] + MOVES[move][1]
        return cell if self.inside(cell) else at

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size


@lru_cache(maxsize=8192)
def distances(maze: Maze) -> Mapping[Cell, int]:
    """Return the number of moves to the goal from every cell that reaches it (breadth first)."""
    away, queue = {maze.goal: 0}, deque([maze.goal])
    while queue:
        at = queue.popleft()
        for move in MOVES:
            if (cell := maze.after(at, move)) not in away:
                away[cell] = away[at] + 1
                queue.append(cell)
    return away


def mazes(rng: random.Random, size: int, density: float) -> Iterator[Maze]:
    """Yield random mazes without end, solvable or not; `density` is the share of walls."""
    cells = [(column, row) for row in range(size) for column in range(size)]
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        start, goal = rng.sample(cells, 2)
        if start not in walls and goal not in walls:
            yield Maze(size, walls, start, goal)


def walls_in_order(maze: Maze) -> list[str]:
    """Return the names of the wall cells, row by row, each from the left."""
    return [word(cell) for cell in sorted(maze.walls, key=lambda cell: cell[::-1])]


def layout(maze: Maze) -> str:
    """Return the walls as a text; mazes with the same walls belong to the same split."""
    return f"{maze.size} {' '.join(walls_in_order(maze))}"


def walk(maze: Maze, at: Cell, moves: tuple[str, ...]) -> list[Cell]:
    """Return the cells visited, `at` first, until the goal is reached or a move is blocked."""
    path = [at]
    for move in moves:
        cell = maze.after(path[-1], move)
        if path[-1] in (maze.goal, cell):
            break
        path.append(cell)
    return path


def wander(maze: Maze, at: Cell, most: int, mistakes: float, rng: random.Random) -> list[tuple[Cell, str]]:
    """Return up to `most` moves to the goal, each with its start cell; a share `mistakes` is drawn at random."""
    away, taken = distances(maze), []
    while len(taken) < most and at != maze.goal:
        good = [move for move in MOVES if away[maze.after(at, move)] < away[at]]
        move = rng.choice(list(MOVES) if rng.random() < mistakes else good)
        taken.append((at, move))
        at = maze.after(at, move)
    return taken


def read_moves(text: str, most: int, tagged: bool) -> tuple[str, ...] | None:
    """Return the moves of an answer, or `None` if it cannot be read.

    Moves are names of cells or, if `tagged`, letters of `MOVES` in the last `<moves>` tag. An answer cannot be read if
    one of its words is no move, or if it has no move or more than `most`.
    """
    if tagged:
        tags = re.findall(r"<moves>(.*?)</moves>", text, flags=re.DOTALL | re.IGNORECASE)
        text = re.sub(r"[,;]", " ", tags[-1]).upper() if tags else ""
    moves = tuple(LONG.get(name, name) for name in text.split())
    known = all(move in MOVES if tagged else NAMED_CELL.fullmatch(move) for move in moves)
    return moves if 1 <= len(moves) <= most and known else None


def word(cell: Cell) -> str:
    """Return the name of a cell: `a3` for (0, 2)."""
    return f"{'abcdefghijklmnopqrstuvwxyz'[cell[0]]}{cell[1] + 1}"


def cell_of(name: str) -> Cell:
    return ord(name[0]) - ord("a"), int(name[1:]) - 1
