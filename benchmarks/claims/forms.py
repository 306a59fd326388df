"""Two more forms of the maze of `plan_path`, for the test of AT-GRPO's claim (`README.md`).

In the released code of AT-GRPO the first agent writes a program, which is executed, and the second agent sees the task,
the program and its output, and commits moves. `Tool` has this form in a language of a few words. In `Split` the
executor sees no walls and no goal, so a hint tells it something. Leaves out: the usual form, two walkers with one view
(`PlanPath`).
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mas_lab.env import Message, Step
from mas_lab.tasks.plan_path import PlanPath
from mas_lab.tasks.shared.bases import chat
from mas_lab.tasks.shared.maze import NAMED_CELL, Maze, cell_of, in_order, word


@dataclass(frozen=True)
class Split(PlanPath):
    """The executor sees its own place and the proposal alone."""

    def observe(self, state: Any, agent: str) -> list[Message]:
        if agent != "executor":
            return super().observe(state, agent)
        hint = self.phrased(state.hints[-1] or ("none",))
        return chat(f"hint {hint} at {word(state.at)} executor")


@dataclass(frozen=True)
class Program:
    """What a planner wrote, and the moves that came of it."""

    words: tuple[str, ...]
    moves: tuple[str, ...]


@dataclass(frozen=True)
class Tool(PlanPath):
    """The planner writes `walls a1 b2 goal c3 at d4`; a search runs on this map, and its first moves are the output.

    A program that cannot be read, or has no path, gives `none`. The planner's own reward is that of the output, as if
    it was executed. A single agent has no program: it walks.
    """

    @property
    def max_tokens(self) -> int:
        return self.limit + 2 if self.single_agent else 18

    def observe(self, state: Any, agent: str) -> list[Message]:
        """Return the usual prompt; `walls` before its last word asks for a program."""
        [message] = super().observe(state, agent)
        if agent != "planner":
            return [message]
        return chat(message["content"].removesuffix("planner") + "walls planner")

    def run(self, text: str) -> Program | None:
        """Return the program of a text with its output, or `None` if it cannot be read or finds no path."""
        words = tuple(text.split())
        marks = [place for place, one in enumerate(words) if not NAMED_CELL.fullmatch(one)]
        if [words[place] for place in marks] != ["walls", "goal", "at"] or marks[0] or len(words) - marks[1] != 4:
            return None
        if marks[2] != marks[1] + 2:
            return None
        walls = frozenset(map(cell_of, words[1 : marks[1]]))
        maze = Maze(self.side, walls, cell_of(words[-1]), cell_of(words[-3]))
        if not (maze.free(maze.start) and maze.free(maze.goal)):
            return None
        moves = replace(self, mistakes=0.0).moves_from(maze, maze.start, random.Random(text))
        return Program(words, tuple(moves)) if moves else None

    def draw(self, state: Any) -> str:
        return super().draw(replace(state, hints=()))

    def phrased(self, content: Any) -> str:
        return " ".join([*content.words, "hint", *content.moves] if isinstance(content, Program) else content)

    def act(self, state: Any, actions: Mapping[str, str]) -> Step:
        ((agent, text),) = actions.items()
        if agent != "planner":
            return super().act(state, actions)
        program = self.run(text)
        local = self.carry_out(state, program.moves if program else None)[2]
        after = replace(state, hints=(program,))
        return Step(after, 0.0, {agent: local}, {agent: program is not None}, False, False)

    def demonstrate(self, state: Any, agent: str, rng: random.Random) -> str:
        """Return a program with a wall left out now and then, or an executor's answer, which copies some outputs."""
        if agent == "planner":
            walls = [one for one in in_order(state.maze.walls) if rng.random() > self.mistakes / 4]
            return " ".join(["walls", *walls, "goal", word(state.maze.goal), "at", word(state.at)])
        programs = [hint for hint in state.hints if hint]
        copies = programs and rng.random() < self.hints_are_copied
        return " ".join(programs[-1].moves if copies else self.imperfect(state, rng))
