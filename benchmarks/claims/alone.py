"""The control of the maze's tool: one agent writes the program, and its output is walked (`README.md`).

Leaves out: the program's language (`forms.Tool`).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.env import Message, Step
from mas_lab.tasks.plan_path import PlanPath
from mas_lab.tasks.shared.bases import chat

sys.path.insert(0, "benchmarks/claims")
from forms import Tool


@dataclass(frozen=True)
class Alone(Tool):
    """One agent sees the planner's prompt and writes a program. One without a path is invalid, and moves nothing."""

    single_agent: bool = True

    @property
    def max_tokens(self) -> int:
        return 18

    def observe(self, state: Any, agent: str) -> list[Message]:
        [message] = super().observe(state, agent)
        return chat(message["content"].removesuffix("solo") + "walls planner")

    def act(self, state: Any, actions: Mapping[str, str]) -> Step:
        [(agent, text)] = actions.items()
        program = self.run(text)
        return PlanPath.act(self, state, {agent: " ".join(program.moves) if program else "none"})
