"""The tasks as a table: who speaks when, where it comes from, and what its pocket model learned. `lab.ENVS` shows it.

Leaves out: how a task is made by its name (`make_env`), and the page with an episode of each (`docs/tasks.md`).
"""

import json
from dataclasses import dataclass

import pandas as pd

from mas_lab.paths import data_dir


@dataclass(frozen=True)
class Learned:
    """What the recorded runs of one task came to: share solved (or of the best return) on held-out tasks."""

    recipe: str
    steps: int
    before: float
    after: tuple[float, ...]
    """Of each seed."""

    def __str__(self) -> str:
        low, high = f"{min(self.after):.2f}", f"{max(self.after):.2f}"
        return f"{self.before:.2f} → {low if low == high else f'{low}-{high}'} ({self.recipe}, {self.steps} steps)"


GRADED = ("code_pair", "tldr", "arxiv_intro")
"""Tasks whose score is the share of the best return: a success there is only a threshold."""


def learned(task: str) -> Learned | None:
    """From `data/results/<task>/`; None where nothing is recorded."""
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
    """Name -> env class, a frozen dataclass whose init fields are the options of `make_env`. Shows itself as a table:
    agents (`→` one after the other, `+` at once, `?` called on a condition: the class attribute `order`), origin
    (`paper`), and pocket play."""

    def table(self) -> pd.DataFrame:
        """A row per task."""
        rows = []
        for name, env in self.items():
            agents, paper = getattr(env, "order", ""), getattr(env, "paper", "")
            rows.append({"task": name, "agents": agents, "from": paper, "pocket play": learned(name)})
        return pd.DataFrame(rows).fillna("").astype(str)

    def __repr__(self) -> str:
        return self.table().to_string(index=False)

    def _repr_html_(self) -> str:
        return self.table().to_html(index=False)
