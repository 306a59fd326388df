"""Plan-Path: a planner proposes moves through a maze, an executor commits them (AT-GRPO, arXiv 2510.11062).

Pocket size has a small grid whose cells are words. A move is the cell that it leads to: one token is one cell, and a
wall is a word to avoid. Full size has a 10x10 grid in prose, for an instruction model that answers in U, D, L and R.
Mazes are not read from files. They are drawn, solved and split by their walls, so no layout of `test` is in `train`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from mas_lab.tasks.shared.bases import numbered
from mas_lab.tasks.shared.maze import Floor, MovesTask, Place, State, in_order, mazes, word
from mas_lab.tasks.shared.rows import draw

DENSITY = 0.22
"""Share of wall cells, as published."""


@dataclass(frozen=True)
class PlanPath(MovesTask):
    """In a maze, planners propose moves and the executor makes them, to the goal or for `max_turns` turns each.

    In AT-GRPO's released code the first agent writes a program, and the second sees it and its output; ours are two
    walkers with one view.

    Rewards: `team_reward` = (d - d') / d0 + [at the goal], where d, d' and d0 are the shortest paths to the goal before
    the executor's moves, after them, and at the start. `local_reward` is the share of moves on a shortest path, for a
    proposal as if it were made.

    Published rewards (PettingLLMs): a move pays d - 0.99 d' - 0.01 (-0.1 if blocked), with Manhattan distances d and
    d'. The goal pays 1, or 1.5 without a detour. A proposal earns its `local_reward` alone, and `max_return` is an
    upper bound over all mazes. Fault: a move that gets nowhere earns a hundredth of its distance to the goal, and far
    goals outweigh near ones.

    A proposal earns 0 for the team. So `max_return` = 2 is reached exactly at the goal, with or without detours. In
    `local_reward`, moves that were not made, up to the limit or the goal, count as off the path. Otherwise the safest
    single move would score like a whole plan. An answer is invalid, and moves nothing, if one of its words is no move,
    or if it has no move or too many. A move into a wall, over the edge or to a cell that is not adjacent is blocked.
    This is no reading error: the moves stop there.

    `size` is either "pocket" (5x5), "full" (10x10), or the side of a pocket grid, 3 to 6.
    """

    n_agents: int | None = None
    """Number of agents, 2 to 16: one executor, who sees all proposals, and planners, who see the last four before their
    own. `None` means 2."""
    max_turns: int = 4
    mistakes: float = 0.4
    """Share of the moves of `demonstrate` that are drawn at random."""

    name = "plan_path"
    paper = "AT-GRPO, arXiv 2510.11062"
    order = "planner → executor, up to 4 turns"
    numbers = range(3, 7)
    sides = {"pocket": 5, "full": 10}
    pocket_limit = 4
    words = ("walls", "goal", "at", "hint", "none", "planner", "executor", "solo", *MovesTask.cells)

    @property
    def roles(self) -> tuple[str, ...]:
        return (*numbered("planner", (self.n_agents or 2) - 1), "executor")

    @property
    def max_return(self) -> float:
        if not self.published:
            return 2.0
        farthest = 2 * (self.side - 1)
        return farthest + 1.5 + 0.01 * farthest * self.limit * self.max_turns

    def problems(self, n: int, split: str, seed: int) -> Iterator[tuple[str, dict]]:
        rng = random.Random(f"plan_path {self.side} {split} {seed}")
        drawn = mazes(rng, self.side, DENSITY)
        for maze, (at, _) in draw(drawn, n, split, self.name, lambda one: walls_of(one[0]), self.fits):
            [goal] = maze.targets
            data = {"size": self.side, "walls": in_order(maze.walls), "start": word(at), "goal": word(goal)}
            yield f"{walls_of(maze)} {at} {goal}", data

    def ours(self, state: State, path: list[Place], moves: tuple[str, ...]) -> tuple[float, float]:
        away = state.floor.away
        good = sum(away[place] < away[before] for before, place in pairwise(path))
        progress = (away[state.place] - away[path[-1]]) / away[state.start]
        due = max(len(moves), min(self.limit, away[state.place]))
        return progress + (away[path[-1]] == 0), good / due

    def theirs(self, state: State, path: list[Place], moves: tuple[str, ...]) -> tuple[float, float]:
        [goal] = state.floor.targets
        gaps = [abs(cell[0] - goal[0]) + abs(cell[1] - goal[1]) for cell, _ in path]
        reward = sum(-0.01 + gap - 0.99 * after for gap, after in pairwise(gaps))
        if gaps[-1] == 0:
            reward += 1.5 if state.steps + len(path) - 1 == state.floor.away[state.start] else 1.0
        elif len(moves) >= len(path):
            reward += -0.1 + 0.01 * gaps[-1]
        return reward, reward


def walls_of(maze: Floor) -> str:
    """Return the walls as a text; mazes with the same walls belong to the same split."""
    return f"{maze.size} {' '.join(in_order(maze.walls))}"
