"""Show the tasks as a table: agents, origin, and results of the pocket models (`lab.ENVS`).

Making a task by its name is in `make_env`. The page with an episode of each task is `docs/tasks.md`.
"""

import json
from dataclasses import dataclass

import pandas as pd

from mas_lab.paths import data_dir


@dataclass(frozen=True)
class Learned:
    """Results of the recorded runs of one task: success rate, or share of the best return, on held-out tasks."""

    recipe: str
    steps: int
    before: float
    after: tuple[float, ...]
    """One value per seed."""

    def __str__(self) -> str:
        low, high = f"{min(self.after):.2f}", f"{max(self.after):.2f}"
        return f"{self.before:.2f} → {low if low == high else f'{low}-{high}'} ({self.recipe}, {self.steps} steps)"


GRADED = ("code_pair", "tldr", "arxiv_intro")
"""Tasks that are scored by their share of the best return, because their success is only a threshold."""


def learned(task: str) -> Learned | None:
    """Return the results in `data/results/<task>/`, or `None` if nothing is recorded."""
    folder = data_dir() / "results" / task
    if not (folder / "results.csv").is_file():
        return None
    runs = pd.read_csv(folder / "results.csv")
    how = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    name = "return" if task in GRADED else "success"
    share = runs["max_return"] if task in GRADED else 1.0
    before, after = (runs[f"{name}_before"] / share).mean(), tuple(runs[name] / share)
    return Learned(how["trial"]["recipe"], how["trial"]["steps"], before, after)


class Catalog(dict[str, type]):
    """Dict from name to env class that is displayed as a table.

    Each class is a frozen dataclass, and its init fields are the options of `make_env`. The columns show the agents
    (class attribute `order`: `→` one after the other, `+` at once, `?` called on a condition), the origin (`paper`),
    and the results of the pocket model.
    """

    def table(self) -> pd.DataFrame:
        """Return one row per task."""
        rows = []
        for name, env in self.items():
            agents, paper = getattr(env, "order", ""), getattr(env, "paper", "")
            rows.append({"task": name, "agents": agents, "from": paper, "pocket play": learned(name)})
        return pd.DataFrame(rows).fillna("").astype(str)

    def __repr__(self) -> str:
        return self.table().to_string(index=False)

    def _repr_html_(self) -> str:
        return self.table().to_html(index=False)
