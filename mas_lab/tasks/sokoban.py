"""Sokoban: a planner proposes moves, an executor commits them; boxes go onto targets (AT-GRPO, arXiv 2510.11062).

Pocket size has a small floor whose cells are words. A move is the cell that the player goes to, also when it pushes.
Full size has prose, for an instruction model that answers in U, D, L and R. Rooms are not read from files. They are
drawn, solved backwards from their targets, and split by walls and targets. So no room of `test` is in `train`, not even
turned or mirrored.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from mas_lab.tasks.shared.maze import MovesTask, Place, State, in_order, layout, rooms, word
from mas_lab.tasks.shared.rows import draw

DENSITY = 0.15
"""Share of wall cells."""

STEP, BLOCKED, ON, OFF, WIN, GAMMA, SHAPING = -0.01, -0.05, 1.0, -0.5, 10.0, 0.99, 0.1
"""Published rewards: a move, a blocked move, a box onto a target, a box off a target, solved; then the discount and the
weight of the potential."""


@dataclass(frozen=True)
class Sokoban(MovesTask):
    """Boxes go onto targets: the planner proposes moves, the executor makes them, for up to `max_turns` turns each.

    In AT-GRPO's released code the first agent writes a program, and the second sees it and its output; ours are two
    walkers with one view.

    A room that can no longer be solved ends the episode, too.

    Rewards: `team_reward` = s' - s + [solved], where s and s' are the shares of boxes on targets before and after the
    executor's moves. `local_reward` says by how many moves the solution comes nearer, as a share of those from the
    start; a sequence of moves that makes the room unsolvable is scored as `limit` wrong moves.

    Published rewards (PettingLLMs): a move pays -0.01 (-0.05 if blocked), 1 for a box pushed onto a target, -0.5 for
    one pushed off, 10 for the solution, and 0.1 (0.99 p' - p), where -p is the sum of the boxes' Manhattan distances to
    their nearest targets. A proposal earns its `local_reward` alone, an unreadable one 0 (theirs: -1), and `max_return`
    is an upper bound over all rooms. Fault: a box pushed off and on again earns 0.5 each time, and a box nearer to its
    target pays even if it is lost in a corner.

    A share is that of the boxes that were off target at the start, and 0 in a room that can no longer be solved. So
    `max_return` = 2 is reached exactly by solving it. A proposal earns 0 for the team, and its `local_reward` as if it
    were executed. The sum of `local_reward` over an executor's turns is at most 1, also with detours. Moves that only
    cause no deadlock earn nothing; otherwise going back and forth would be perfect play. An answer is invalid, and
    moves nothing, if one of its words is no move, or if it has no move or too many. A blocked move, or one to a cell
    that is not adjacent, is no reading error: the moves stop there.

    `size` is either "pocket" (a floor of 4x4: the published 6x6 without its rim of walls), "full" (6x6), or the side of
    a pocket floor, 4 to 6.
    """

    boxes: int = 1
    """Number of boxes, 1 or 2."""
    max_turns: int = 4
    mistakes: float = 0.3
    """Share of the moves of `demonstrate` that are drawn at random."""

    name = "sokoban"
    paper = "AT-GRPO, arXiv 2510.11062"
    order = "planner → executor, in turns"
    roles = ("planner", "executor")
    numbers = range(4, 7)
    sides = {"pocket": 4, "full": 6}
    choices = {"boxes": (1, 2)}
    words = ("walls", "target", "box", "at", "hint", "none", "planner", "executor", "solo", *MovesTask.cells)

    @property
    def pocket_limit(self) -> int:
        return 4 * self.boxes

    @property
    def max_return(self) -> float:
        if not self.published:
            return 2.0
        farthest = 2 * (self.side - 1) * self.boxes
        return WIN + self.limit * self.max_turns * (STEP + ON + SHAPING * (1 + (1 - GAMMA) * farthest))

    def problems(self, n: int, split: str, seed: int) -> Iterator[tuple[str, dict]]:
        rng = random.Random(f"{self.name} {self.side} {self.boxes} {split} {seed}")
        drawn = rooms(rng, self.side, self.boxes, DENSITY)
        for room, (at, boxes) in draw(drawn, n, split, self.name, lambda one: layout(one[0]), self.fits):
            parts = {"walls": in_order(room.walls), "targets": in_order(room.targets), "boxes": in_order(boxes)}
            data = {"size": self.side, **parts, "start": word(at)}
            yield repr(data), data

    def ours(self, state: State, path: list[Place], moves: tuple[str, ...]) -> tuple[float, float]:
        targets, away = state.floor.targets, state.floor.away
        before, after = (len(place[1] & targets) * (place in away) for place in (path[0], path[-1]))
        nearer = away[path[0]] - away[path[-1]] if path[-1] in away else -self.limit
        team = (after - before) / len(state.start[1] - targets) + (away.get(path[-1]) == 0)
        return team, nearer / away[state.start]

    def theirs(self, state: State, path: list[Place], moves: tuple[str, ...]) -> tuple[float, float]:
        targets, away = state.floor.targets, state.floor.away.get(path[-1])
        on = [len(boxes & targets) for _, boxes in path]
        near = [-sum(min(abs(b[0] - t[0]) + abs(b[1] - t[1]) for t in targets) for b in boxes) for _, boxes in path]
        reward = sum(STEP + SHAPING * (GAMMA * after - before) for before, after in pairwise(near))
        reward += sum({1: ON, 0: 0.0, -1: OFF}[after - before] for before, after in pairwise(on))
        if away == 0:
            reward += WIN
        elif len(moves) >= len(path) and away is not None:
            reward += BLOCKED + SHAPING * (GAMMA - 1) * near[-1]
        return reward, reward
