"""Plan-Path: a planner proposes moves through a maze, an executor commits them (AT-GRPO, arXiv 2510.11062).

Pocket size has a small grid whose cells are words. A move is the cell that it leads to: one token is one cell, and a
wall is a word to avoid. Full size has a 10x10 grid in prose, for an instruction model that answers in U, D, L and R.
Mazes are not read from files. They are drawn, solved and split by their walls, so no layout of `test` is in `train`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mas_lab.env import EnvError, Task
from mas_lab.tasks.shared.bases import ProposalState, numbered
from mas_lab.tasks.shared.maze import Cell, Maze, MovesTask, cell_of, in_order, mazes, word
from mas_lab.tasks.shared.pictures import board, disc, rings, walls, way
from mas_lab.tasks.shared.rows import draw

DENSITY = 0.22
"""Share of wall cells, as published."""


@dataclass(frozen=True)
class State(ProposalState):
    """State of one episode; `steps` counts moves so far."""

    maze: Maze
    at: Cell
    steps: int = 0


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
        for maze in draw(drawn, n, split, self.name, Maze.layout, lambda maze: self.fits(maze, maze.start)):
            start, goal = word(maze.start), word(maze.goal)
            data = {"size": self.side, "walls": in_order(maze.walls), "start": start, "goal": goal}
            yield f"{maze.layout()} {maze.start} {maze.goal}", data

    def start(self, task: Task) -> State:
        data = task.data
        walls = frozenset(map(cell_of, data["walls"]))
        maze = Maze(data["size"], walls, cell_of(data["start"]), cell_of(data["goal"]))
        if maze.start == maze.goal or maze.start not in maze.away:
            raise EnvError(f"plan_path: task {task.id!r} has no path from {data['start']} to {data['goal']}")
        return State(maze, maze.start)

    def facts(self, state: State) -> dict[str, Any]:
        return self.shown(state.maze, state.at, goal=[state.maze.goal])

    def carry_out(self, state: State, moves: tuple[str, ...] | None) -> tuple[State, float, float, bool]:
        path = state.maze.walk(state.at, moves or ())
        team, local = (self._published if self.published else self._ours)(state, path, moves)
        after = replace(state, at=path[-1], steps=state.steps + len(path) - 1)
        return after, team, local, path[-1] == state.maze.goal

    def _ours(self, state: State, path: list[Cell], moves: tuple[str, ...] | None) -> tuple[float, float]:
        away = state.maze.away
        good = sum(away[cell] < away[before] for before, cell in pairwise(path))
        progress = (away[state.at] - away[path[-1]]) / away[state.maze.start]
        due = max(len(moves or ()), min(self.limit, away[state.at]))
        return progress + (path[-1] == state.maze.goal), good / due

    def _published(self, state: State, path: list[Cell], moves: tuple[str, ...] | None) -> tuple[float, float]:
        goal = state.maze.goal
        gaps = [abs(cell[0] - goal[0]) + abs(cell[1] - goal[1]) for cell in path]
        reward = sum(-0.01 + gap - 0.99 * after for gap, after in pairwise(gaps))
        if path[-1] == goal:
            reward += 1.5 if state.steps + len(path) - 1 == state.maze.away[state.maze.start] else 1.0
        elif moves and len(moves) >= len(path):
            reward += -0.1 + 0.01 * gaps[-1]
        return reward, reward

    def imperfect(self, state: State, rng: random.Random) -> list[str]:
        return self.moves_from(state.maze, state.at, rng)

    def draw(self, state: State) -> str:
        """Draw the maze: a disc for the team, a ring around the goal, and a dashed line for the last proposal."""
        maze, hint = state.maze, state.hints[-1] if state.hints else None
        marks = [walls(maze.walls), rings([maze.goal]), disc(state.at)]
        if hint:
            marks.append(way(maze.walk(state.at, hint)))
        return board(maze.size, marks, f"A maze. The team stands at {word(state.at)}, the goal is {word(maze.goal)}.")
