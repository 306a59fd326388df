"""Hold what the tasks share in which a planner proposes moves on a grid and an executor commits them.

Mazes are in `maze`, rooms with boxes in `boxes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mas_lab.tasks.shared.bases import ProposalTask
from mas_lab.tasks.shared.maze import in_order, read_moves

LARGEST_POCKET = 6
CELLS = in_order((column, row) for row in range(LARGEST_POCKET) for column in range(LARGEST_POCKET))
"""Words of the cells, in pocket size."""


@dataclass(frozen=True)
class MovesTask(ProposalTask):
    """Base class of these tasks; a subclass has `sides` and `pocket_limit`."""

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
        """Return the moves of an answer, or `None` if it cannot be read."""
        return read_moves(text, self.limit, tagged=self.full)

    def written(self, said: Sequence[str]) -> str:
        return f"<moves>{' '.join(said)}</moves>" if self.full else " ".join(said)
