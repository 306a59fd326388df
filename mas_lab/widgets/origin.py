"""Read the run that a training was forked from, for a second line in the figure of the training.

The line ends where that run is now. This module leaves out forking (`runs.forking`), and the figure (`training`).
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.runs.disk import RunError
from mas_lab.runs.forking import origin_of
from mas_lab.runs.run import Run, load_run
from mas_lab.runs.scores import CURVE, grown, kept_scores, scored_steps
from mas_lab.table import TableError
from mas_lab.team import Team


class Origin:
    """The run that a training was forked from.

    `name` is its name, `step` the number of its steps before the fork, and `changed` lists the changes. `plan` is
    `None` if the recipe has a part from outside the kit. `curve` and `held_out` have the columns `scores.CURVE`.
    """

    def __init__(self, forked: Mapping[str, Any], folder: Path):
        self.name, self.step, self.changed = Path(forked["from"]).name, int(forked["step"]), list(forked["changed"])
        self.curve = self.held_out = pd.DataFrame(columns=CURVE)
        self.plan, self._folder, self._run = None, folder, None

    @classmethod
    def of(cls, run: Run | None) -> "Origin | None":
        """Return the origin of a run, or `None` if the run is not a fork or has not begun."""
        forked = run.config.get("forked") if run is not None else None
        return cls(forked, origin_of(run)) if forked else None

    def refresh(self) -> "Origin":
        """Read the new steps of the original run; keep the known ones if the run is gone."""
        with suppress(RunError, TableError, OSError):
            self._run = run = self._run or load_run(self._folder)
            with suppress(ValueError):
                self.plan = run.recipe.plan
            self.curve = grown(self.curve, run)
            if scored_steps(run) != self.held_out["step"].tolist():
                self.held_out = kept_scores(run, self.curve)
        return self

    def __str__(self) -> str:
        told = "; ".join(self.changed) or "nothing was changed"
        return f"forked from {self.name} after {self.step} steps: {told}"


def own_team(run: Run, training: Team, lr: float | Mapping[str, float] | None, own: Team | None = None) -> Team:
    """Return `own`, or a team rebuilt from the run's newest checkpoint, with learning rate `lr` (one, or by agent)."""
    bases = [policy.shared.source.name for policy in training.policies.values() if hasattr(policy, "shared")]
    found = own or run.team(bases)
    rates = lr if isinstance(lr, Mapping) else dict.fromkeys(found, lr)
    for agent, rate in rates.items():
        if agent not in found:
            raise ValueError(f"fork: lr names agent {agent!r}; the team has {', '.join(found)}")
        if rate is not None:
            found[agent].lr = float(rate)
    return found
