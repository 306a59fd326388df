"""The progress of a training in a notebook: a bar while it runs, then one line of the result.

Leaves out: the display in the notebook (`display.progress`), and curves (`widgets.live`).
"""

from collections.abc import Iterator
from contextlib import closing

from mas_lab.cells.plans import episodes
from mas_lab.display.progress import progress_bar
from mas_lab.recipes import Recipe
from mas_lab.runs.scores import mean_scores
from mas_lab.train.report import Report


def with_status_line(loop: Iterator[Report], recipe: Recipe, steps: int | None) -> Iterator[Report]:
    """Yield the same reports, and show a notebook their number, their tokens, and the first and last scores.

    Scores are those of held-out tasks, or else of training episodes if these are played as the team plays. Under
    `tree()` the best of K candidates moves the state on, so the success of training episodes says little.
    """
    tokens, training, held_out = 0, [], []
    with closing(loop), progress_bar(steps, recipe.name, "step", even=True) as bar:
        while True:
            bar.refresh()  # draws the bar in the cell that asks for this step
            if (report := next(loop, None)) is None:
                return
            tokens += report.tokens
            if isinstance(recipe.plan, episodes):
                training.append(report.success)
            if report.held_out is not None:
                held_out += mean_scores(report.held_out)["success"].tolist()
            scores, source = (held_out, "held-out tasks") if held_out else (training, "training episodes")
            success = f", success {scores[0]:.2f} to {scores[-1]:.2f} ({source})" if scores else ""
            bar.n = report.step + 1
            bar.set_postfix_str(f"{tokens:,} tokens{success}")
            yield report
