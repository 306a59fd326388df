"""Model a grid with walls, and one with boxes: moves, ways to the end, names of cells, and moves in an answer.

`MovesTask` is the base class of the tasks in which a planner proposes moves and an executor commits them.
"""

import random
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

from mas_lab.tasks.shared.bases import ProposalTask

MOVES = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}

SHORTEST = 3
"""Least number of moves to the end of a task; fewer are too easy."""
LETTERS = {"u": "U", "d": "D", "l": "L", "r": "R", "up": "U", "down": "D", "left": "L", "right": "R"}
"""Move of the full sizes, in lower case -> its letter."""
NAMED_CELL = re.compile(r"[a-f][1-6]")
"""Move of the pocket sizes: the name of the cell that it leads to."""

Cell = tuple[int, int]
"""(column, row), counted from 0 at the top left."""


@dataclass(frozen=True)
class Floor:
    """Square of cells with walls; the edge blocks like a wall.

    A subclass has `ends()`, the places to reach, `befores(place)`, the places from which one move leads to `place`,
    `after(place, move)` and `pointed(place)`.
    """

    size: int
    walls: frozenset[Cell]

    @property
    def away(self) -> Mapping[Any, int]:
        """Return the number of moves to the end from each place that reaches it."""
        return distances(self)

    def inside(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size

    def free(self, cell: Cell) -> bool:
        return self.inside(cell) and cell not in self.walls

    def target(self, at: Cell, move: str) -> Cell | None:
        """Return the cell that `move` leads to, a letter of `MOVES` or the name of a cell; `None` if it is blocked."""
        cell = beyond(at, move) if move in MOVES else cell_of(move)
        near = (cell[0] - at[0], cell[1] - at[1]) in MOVES.values()
        return cell if near and self.free(cell) else None

    def walk(self, place: Any, moves: Sequence[str]) -> list[Any]:
        """Return the places passed, `place` first, until the end is reached or out of reach, or a move is blocked."""
        path = [place]
        for move in moves:
            after = self.after(path[-1], move)
            if after == path[-1] or not self.away.get(path[-1]):
                break
            path.append(after)
        return path


@lru_cache(maxsize=128)
def distances(floor: Floor) -> Mapping[Any, int]:
    """Return the number of moves to the end from every place that reaches it, breadth first and backwards."""
    away = dict.fromkeys(floor.ends(), 0)
    queue = deque(away)
    while queue:
        place = queue.popleft()
        for before in floor.befores(place):
            if before not in away:
                away[before] = away[place] + 1
                queue.append(before)
    return away


@dataclass(frozen=True)
class Maze(Floor):
    start: Cell
    goal: Cell

    def ends(self) -> list[Cell]:
        return [self.goal]

    def after(self, at: Cell, move: str) -> Cell:
        """Return the cell after `move`; `at` itself if it is blocked."""
        return self.target(at, move) or at

    def befores(self, at: Cell) -> list[Cell]:
        return [self.after(at, move) for move in MOVES]

    def pointed(self, at: Cell) -> dict[str, Cell]:
        """Return the cell that each move points to, even a wall; `at` itself at the edge."""
        return {move: cell if self.inside(cell := beyond(at, move)) else at for move in MOVES}

    def layout(self) -> str:
        """Return the walls as a text; mazes with the same walls belong to the same split."""
        return f"{self.size} {' '.join(in_order(self.walls))}"


def mazes(rng: random.Random, size: int, density: float) -> Iterator[Maze]:
    """Yield random mazes without end, solvable or not; `density` is the share of walls."""
    cells = [(column, row) for row in range(size) for column in range(size)]
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        start, goal = rng.sample(cells, 2)
        if start not in walls and goal not in walls:
            yield Maze(size, walls, start, goal)


def in_order(cells: Iterable[Cell]) -> list[str]:
    """Return the names of cells, row by row, each from the left."""
    return [word(cell) for cell in sorted(cells, key=lambda cell: cell[::-1])]


def beyond(at: Cell, move: str) -> Cell:
    """Return the cell that `move`, a letter of `MOVES`, points to, even if it is blocked or over the edge."""
    return at[0] + MOVES[move][0], at[1] + MOVES[move][1]


def word(cell: Cell) -> str:
    """Return the name of a cell: `a3` for (0, 2)."""
    return f"{'abcdefghijklmnopqrstuvwxyz'[cell[0]]}{cell[1] + 1}"


def cell_of(name: str) -> Cell:
    return ord(name[0]) - ord("a"), int(name[1:]) - 1


Place = tuple[Cell, frozenset[Cell]]
"""Cell of the player, and cells of the boxes."""


@dataclass(frozen=True)
class Room(Floor):
    """Parts of a room that never move; a place that does not reach the end is lost."""

    targets: frozenset[Cell]

    def ends(self) -> list[Place]:
        cells = product(range(self.size), repeat=2)
        return [(cell, self.targets) for cell in cells if self.free(cell) and cell not in self.targets]

    def pointed(self, place: Place) -> dict[str, Cell]:
        """Return the cell that each move points to, even a wall; none beyond the edge."""
        cells = {move: beyond(place[0], move) for move in MOVES}
        return {move: cell for move, cell in cells.items() if self.inside(cell)}

    def after(self, place: Place, move: str) -> Place:
        """Return the place after `move`, a letter of `MOVES` or the name of a cell; `place` itself if it is blocked.

        A wall, the edge, or a box that cannot be pushed blocks a move. So does a cell that is not next to the player.
        """
        at, boxes = place
        cell = self.target(at, move)
        if cell is None or cell not in boxes:
            return cell or at, boxes
        behind = 2 * cell[0] - at[0], 2 * cell[1] - at[1]
        pushed = self.free(behind) and behind not in boxes
        return (cell, boxes - {cell} | {behind}) if pushed else place

    def befores(self, place: Place) -> Iterator[Place]:
        """Yield the places from which one move, or one push, leads to `place`; so boxes are pulled."""
        at, boxes = place
        for column, row in MOVES.values():
            before, ahead = (at[0] - column, at[1] - row), (at[0] + column, at[1] + row)
            if self.free(before) and before not in boxes:
                yield before, boxes
                if ahead in boxes:
                    yield before, boxes - {ahead} | {at}

    def solved(self, place: Place) -> bool:
        return place[1] == self.targets


def rooms(rng: random.Random, size: int, boxes: int, density: float) -> Iterator[tuple[Room, Place]]:
    """Yield random rooms without end, each with a start, solvable or not; `density` is the share of walls."""
    cells = list(product(range(size), repeat=2))
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        free = [cell for cell in cells if cell not in walls]
        if len(free) > 2 * boxes:
            at, *others = rng.sample(free, 2 * boxes + 1)
            yield Room(size, walls, frozenset(others[:boxes])), (at, frozenset(others[boxes:]))


def layout(room: Room) -> str:
    """Return walls and targets as a text that is the same for a room and its seven turned and mirrored forms."""
    last, parts, forms = room.size - 1, (room.walls, room.targets), []
    for _ in range(4):
        parts = [[(last - row, column) for column, row in part] for part in parts]
        forms += [[sorted(part) for part in parts], [sorted(cell[::-1] for cell in part) for part in parts]]
    walls, targets = min(forms)
    return " ".join([str(room.size), *map(word, walls), "targets", *map(word, targets)])


@dataclass(frozen=True)
class MovesTask(ProposalTask):
    """Base class of the tasks with a planner and an executor of moves; a subclass has `sides` and `pocket_limit`."""

    cells = in_order((column, row) for row in range(6) for column in range(6))
    """Words of the cells of the largest pocket grid."""
    tag = "moves"

    @property
    def side(self) -> int:
        return self.sides.get(self.size, self.size)

    @property
    def limit(self) -> int:
        """Return the largest number of moves in one answer."""
        return 20 if self.full else self.pocket_limit

    @property
    def max_tokens(self) -> int:
        return 512 if self.full else self.limit + 2

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the moves of an answer, or `None` if it cannot be read.

        Moves are names of cells or, in full size, letters of `MOVES` in the last `<moves>` tag. An answer cannot be
        read if one of its words is no move, or if it has no move or more than `limit`.
        """
        words = self.words_of(text)
        moves = tuple(LETTERS.get(word, word) for word in words) if self.full else tuple(words)
        known = all(move in MOVES if self.full else NAMED_CELL.fullmatch(move) for move in moves)
        return moves if 1 <= len(moves) <= self.limit and known else None

    def shown(self, floor: Floor, at: Cell, **cells: Iterable[Cell]) -> dict[str, Any]:
        """Return the facts of a prompt: the size, the walls, further `cells` by name, the cell `at` and the limit."""
        walls = " ".join(in_order(floor.walls))
        facts = {"size": floor.size, "limit": self.limit, "walls": walls, "shown_walls": walls or "none"}
        return facts | {"at": word(at)} | {name: " ".join(in_order(own)) for name, own in cells.items()}

    def fits(self, floor: Floor, place: Any) -> bool:
        """Return whether the end can be reached in time, and in no fewer moves than `SHORTEST`."""
        return SHORTEST <= floor.away.get(place, 0) <= self.limit * self.max_turns

    def moves_from(self, floor: Floor, place: Any, rng: random.Random) -> list[str]:
        """Return up to `limit` moves towards the end; a share `mistakes` is drawn at random."""
        moves = []
        while len(moves) < self.limit and floor.away.get(place, 0) > 0:
            cells, left = floor.pointed(place), floor.away[place]
            good = [move for move in MOVES if floor.away.get(floor.after(place, move), left) < left]
            move = rng.choice(list(cells) if rng.random() < self.mistakes else good)
            moves.append(move if self.full else word(cells[move]))
            place = floor.after(place, move)
        return moves

    def phrased(self, moves: Sequence[str]) -> str:
        return " ".join(moves)
