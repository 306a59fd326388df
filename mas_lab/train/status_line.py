"""The progress of a training in a notebook: a bar while it runs, then one line of the result.

Leaves out: the display in the notebook (`display.progress`), and curves (`widgets.live`).
"""

from mas_lab.cells.plans import episodes
from mas_lab.display.progress import progress_bar
from mas_lab.runs.scores import mean_scores
from mas_lab.train.progress import Hook, Progress
from mas_lab.train.report import Report


class StatusLine(Hook):
    """The hook that shows the number of steps, their tokens, and the first and last scores.

    Scores are those of held-out tasks, or else of training episodes if these are played as the team plays. Under
    `tree()` the best of K candidates moves the state on, so the success of training episodes says little.
    """

    def begin(self, now: Progress) -> None:
        self.bar = progress_bar(now.steps, now.recipe.name, "step", even=True)
        self.tokens, self.training, self.held_out = 0, [], []

    def before(self, now: Progress) -> None:
        self.bar.refresh()  # draws the bar in the cell that asks for this step

    def after(self, now: Progress, report: Report) -> Report:
        self.tokens += report.tokens
        if isinstance(now.recipe.plan, episodes):
            self.training.append(report.success)
        if report.held_out is not None:
            self.held_out += mean_scores(report.held_out)["success"].tolist()
        scores, source = (self.held_out, "held-out tasks") if self.held_out else (self.training, "training episodes")
        success = f", success {scores[0]:.2f} to {scores[-1]:.2f} ({source})" if scores else ""
        self.bar.n = now.done
        self.bar.set_postfix_str(f"{self.tokens:,} tokens{success}")
        return report

    def finish(self) -> None:
        self.bar.close()
