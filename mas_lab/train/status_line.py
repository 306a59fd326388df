"""The progress of a training in a notebook: a bar while it runs, then one line of the result.

Leaves out: the display in the notebook (`cell_bars`), and curves (`widgets.live`).
"""

from collections.abc import Iterator
from contextlib import closing

from mas_lab.cells.plans import episodes
from mas_lab.display.progress import progress_bar
from mas_lab.recipes import Recipe
from mas_lab.runs.scores import mean_scores
from mas_lab.train.report import Report


def with_status_line(loop: Iterator[Report], recipe: Recipe, steps: int | None) -> Iterator[Report]:
    """Yield the same reports, and show a notebook their number, their cost, and the first and last scores."""
    with closing(loop), progress_bar(steps, recipe.name, "step", even=True) as bar:
        so_far = SoFar(played_as_it_plays=isinstance(recipe.plan, episodes))
        while True:
            bar.update(0)  # draws the bar in the cell that asks for this step
            if (report := next(loop, None)) is None:
                return
            if not bar.disable:
                so_far.take(report)
                bar.n = report.step + 1
                bar.set_postfix_str(so_far.line)
            yield report


class SoFar:
    """Number of tokens, and the first and last scores.

    Scores are those of held-out tasks, or else of training episodes if these are played as the team plays. Under
    `tree()` the best of K candidates moves the state on, so the success of training episodes says little.
    """

    def __init__(self, played_as_it_plays: bool):
        self.played_as_it_plays, self.first, self.tokens = played_as_it_plays, None, 0
        self.success: list[float] = []
        self.held_out: list[float] = []

    def take(self, report: Report) -> None:
        self.first = report.step if self.first is None else self.first
        self.tokens += report.tokens
        if self.played_as_it_plays:
            self.success.append(report.scored["success"])
        if report.held_out is not None:
            self.held_out += mean_scores(report.held_out)["success"].tolist()

    @property
    def line(self) -> str:
        parts = [f"the first {self.first} made before"] if self.first else []
        parts.append(f"{self.tokens:,} tokens")
        scores, whose = (self.held_out, "held-out tasks") if self.held_out else (self.success, "training episodes")
        return ", ".join([*parts, f"success {_span(scores)} ({whose})"] if scores else parts)


def _span(scores: list[float]) -> str:
    return f"{scores[0]:.2f}" + (f" to {scores[-1]:.2f}" if len(scores) > 1 else "")
