"""Model a room with walls, targets and boxes: moves, ways to solve it, and pushes that lose it.

Cells and their names are those of `maze`. The task decides who moves, and why.
"""

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from mas_lab.tasks.shared.maze import MOVES, Cell, Floor, beyond, word

Place = tuple[Cell, frozenset[Cell]]
"""Cell of the player, and cells of the boxes."""


@dataclass(frozen=True)
class Room(Floor):
    """Parts of a room that never move."""

    targets: frozenset[Cell]

    @property
    def away(self) -> Mapping[Place, int]:
        return distances(self)

    def pointed(self, place: Place) -> dict[str, Cell]:
        """Return the cell that each move points to, even a wall; none beyond the edge."""
        cells = {move: beyond(place[0], move) for move in MOVES}
        return {move: cell for move, cell in cells.items() if self.inside(cell)}

    def free(self, cell: Cell) -> bool:
        return self.inside(cell) and cell not in self.walls

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

    def solved(self, place: Place) -> bool:
        return place[1] == self.targets


@lru_cache(maxsize=128)
def distances(room: Room) -> Mapping[Place, int]:
    """Return the number of moves to the nearest solution from every place that has one.

    The search is breadth first and backwards, so boxes are pulled. A place without an entry is lost.
    """
    cells = [cell for cell in product(range(room.size), repeat=2) if room.free(cell)]
    away = {(cell, room.targets): 0 for cell in cells if cell not in room.targets}
    queue = deque(away)
    while queue:
        place = at, boxes = queue.popleft()
        for column, row in MOVES.values():
            before = at[0] - column, at[1] - row
            if not room.free(before) or before in boxes:
                continue
            ahead = at[0] + column, at[1] + row
            pulled = [(before, boxes - {ahead} | {at})] if ahead in boxes else []
            for one in ((before, boxes), *pulled):
                if one not in away:
                    away[one] = away[place] + 1
                    queue.append(one)
    return away


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
    last, parts, alike = room.size - 1, (room.walls, room.targets), []
    for _ in range(4):
        parts = [[(last - row, column) for column, row in part] for part in parts]
        alike += [[sorted(part) for part in parts], [sorted(cell[::-1] for cell in part) for part in parts]]
    walls, targets = min(alike)
    return " ".join([str(room.size), *map(word, walls), "targets", *map(word, targets)])
