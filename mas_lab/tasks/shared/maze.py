"""Model a grid with walls and perhaps boxes: moves, ways to the end, names of cells, and moves in an answer.

`MovesTask` is the base class of the tasks in which a planner proposes moves and an executor commits them.
"""

import random
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

from mas_lab.env import EnvError, Task
from mas_lab.tasks.shared.bases import ProposalState, ProposalTask

MOVES = {"U": (0, -1), "D": (0, 1), "L": (-1, 0), "R": (1, 0)}

SHORTEST = 3
"""Least number of moves to the end of a task; fewer are too easy."""
LETTERS = {"u": "U", "d": "D", "l": "L", "r": "R", "up": "U", "down": "D", "left": "L", "right": "R"}
"""Move of the full sizes, in lower case -> its letter."""
NAMED_CELL = re.compile(r"[a-f][1-6]")
"""Move of the pocket sizes: the name of the cell that it leads to."""

Cell = tuple[int, int]
"""(column, row), counted from 0 at the top left."""
Place = tuple[Cell, frozenset[Cell]]
"""Cell of the player, and cells of the boxes."""


@dataclass(frozen=True)
class Floor:
    """Square of cells with walls and targets, which never change; the edge blocks like a wall.

    It is solved when the boxes are on the targets or, in a maze, which has no boxes, when the player is on the target.
    """

    size: int
    walls: frozenset[Cell]
    targets: frozenset[Cell]
    boxes: int = 0

    @property
    def away(self) -> Mapping[Place, int]:
        """Return the number of moves to the end from each place that reaches it; from any other place it is lost."""
        return distances(self)

    def free(self, cell: Cell) -> bool:
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size and cell not in self.walls

    def ends(self) -> list[Place]:
        if not self.boxes:
            return [(cell, frozenset()) for cell in self.targets]
        cells = product(range(self.size), repeat=2)
        return [(cell, self.targets) for cell in cells if self.free(cell) and cell not in self.targets]

    def after(self, place: Place, move: str) -> Place:
        """Return the place after `move`, a letter of `MOVES` or the name of a cell; `place` itself if it is blocked.

        A wall, the edge, or a box that cannot be pushed blocks a move. So does a cell that is not next to the player.
        """
        at, boxes = place
        cell = beyond(at, move) if move in MOVES else cell_of(move)
        if (cell[0] - at[0], cell[1] - at[1]) not in MOVES.values() or not self.free(cell):
            return place
        if cell not in boxes:
            return cell, boxes
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

    def walk(self, place: Place, moves: Sequence[str]) -> list[Place]:
        """Return the places passed, `place` first, until the end is reached or out of reach, or a move is blocked."""
        path = [place]
        for move in moves:
            after = self.after(path[-1], move)
            if after == path[-1] or not self.away.get(path[-1]):
                break
            path.append(after)
        return path


@lru_cache(maxsize=128)
def distances(floor: Floor) -> Mapping[Place, int]:
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


def mazes(rng: random.Random, size: int, density: float) -> Iterator[tuple[Floor, Place]]:
    """Yield random mazes without end, each with a start, solvable or not; `density` is the share of walls."""
    cells = [(column, row) for row in range(size) for column in range(size)]
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        start, goal = rng.sample(cells, 2)
        if start not in walls and goal not in walls:
            yield Floor(size, walls, frozenset([goal])), (start, frozenset())


def rooms(rng: random.Random, size: int, boxes: int, density: float) -> Iterator[tuple[Floor, Place]]:
    """Yield random rooms without end, each with a start, solvable or not; `density` is the share of walls."""
    cells = list(product(range(size), repeat=2))
    while True:
        walls = frozenset(cell for cell in cells if rng.random() < density)
        free = [cell for cell in cells if cell not in walls]
        if len(free) > 2 * boxes:
            at, *others = rng.sample(free, 2 * boxes + 1)
            yield Floor(size, walls, frozenset(others[:boxes]), boxes), (at, frozenset(others[boxes:]))


def layout(room: Floor) -> str:
    """Return walls and targets as a text that is the same for a room and its seven turned and mirrored forms."""
    last, parts, forms = room.size - 1, (room.walls, room.targets), []
    for _ in range(4):
        parts = [[(last - row, column) for column, row in part] for part in parts]
        forms += [[sorted(part) for part in parts], [sorted(cell[::-1] for cell in part) for part in parts]]
    walls, targets = min(forms)
    return " ".join([str(room.size), *map(word, walls), "targets", *map(word, targets)])


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


@dataclass(frozen=True)
class State(ProposalState):
    """State of one episode; `steps` counts moves so far."""

    floor: Floor
    start: Place
    place: Place
    steps: int = 0


@dataclass(frozen=True)
class MovesTask(ProposalTask):
    """Base class of the tasks with a planner and an executor of moves.

    A subclass has `sides`, `pocket_limit`, and its rewards: `ours(state, path, moves)`, and `theirs` as published,
    return the team reward and the local reward of a path of places.
    """

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

    def start(self, task: Task) -> State:
        data = {"boxes": [], "targets": [task.data.get("goal")]} | dict(task.data)
        walls, targets, boxes = (frozenset(map(cell_of, data[name])) for name in ("walls", "targets", "boxes"))
        floor, place = Floor(data["size"], walls, targets, len(boxes)), (cell_of(data["start"]), boxes)
        if not floor.away.get(place):
            raise EnvError(f"{self.name}: task {task.id!r} is solved at its start, or cannot be solved")
        return State(floor, place, place)

    def facts(self, state: State) -> dict[str, Any]:
        floor, (at, boxes) = state.floor, state.place
        walls, targets, boxes = (" ".join(in_order(cells)) for cells in (floor.walls, floor.targets, boxes))
        facts = {"size": floor.size, "limit": self.limit, "walls": walls, "shown_walls": walls or "none"}
        return facts | {"at": word(at), "targets": targets, "boxes": boxes}

    def read(self, text: str) -> tuple[str, ...] | None:
        """Return the moves of an answer, or `None` if it cannot be read.

        Moves are names of cells or, in full size, letters of `MOVES` in the last `<moves>` tag. An answer cannot be
        read if one of its words is no move, or if it has no move or more than `limit`.
        """
        words = self.words_of(text)
        moves = tuple(LETTERS.get(word, word) for word in words) if self.full else tuple(words)
        known = all(move in MOVES if self.full else NAMED_CELL.fullmatch(move) for move in moves)
        return moves if 1 <= len(moves) <= self.limit and known else None

    def carry_out(self, state: State, moves: tuple[str, ...] | None) -> tuple[State, float, float, bool]:
        path = state.floor.walk(state.place, moves or ())
        team, local = (self.theirs if self.published else self.ours)(state, path, moves or ())
        away = state.floor.away.get(path[-1])
        after = replace(state, place=path[-1], steps=state.steps + len(path) - 1, done=away is None)
        return after, team, local, away == 0

    def fits(self, drawn: tuple[Floor, Place]) -> bool:
        """Return whether the end can be reached in time, and in no fewer moves than `SHORTEST`."""
        return SHORTEST <= drawn[0].away.get(drawn[1], 0) <= self.limit * self.max_turns

    def imperfect(self, state: State, rng: random.Random) -> list[str]:
        """Return up to `limit` moves towards the end; a share `mistakes` is drawn at random."""
        floor, place, moves = state.floor, state.place, []
        while len(moves) < self.limit and floor.away.get(place, 0) > 0:
            left, cells = floor.away[place], self.pointed(floor, place[0])
            good = [move for move in MOVES if floor.away.get(floor.after(place, move), left) < left]
            move = rng.choice(list(cells) if rng.random() < self.mistakes else good)
            moves.append(move if self.full else word(cells[move]))
            place = floor.after(place, move)
        return moves

    def pointed(self, floor: Floor, at: Cell) -> dict[str, Cell]:
        """Return the cell that each move points to, even a wall; over the edge none, or in a maze `at` itself."""
        cells = {move: beyond(at, move) for move in MOVES}
        inside = {move: min(cell) >= 0 and max(cell) < floor.size for move, cell in cells.items()}
        return {move: cell if inside[move] else at for move, cell in cells.items() if inside[move] or not floor.boxes}

    def phrased(self, moves: Sequence[str]) -> str:
        return " ".join(moves)
