"""A folder that `export(run, folder, to="verl")` wrote, opened beside verl.

Leaves out: how the folder is written (`export`), and verl's interfaces (`verl`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.backends.runner import with_max_turns
from mas_lab.bridges.external_rollout import Speak, Speaker, play
from mas_lab.env import Task, spec
from mas_lab.recipes import from_data
from mas_lab.runs.disk import read_json, read_table
from mas_lab.table import column, plain, selected
from mas_lab.tasks import make_env
from mas_lab.tasks.own import own_env
from mas_lab.team import Sampling

FILE, BATCH, BRIDGE = "hand_over.json", "batch.parquet", "mas_lab_bridge"
CLOSE = 1e-6
"""Tolerance for an advantage, relative to the recorded one if its magnitude is above 1."""


class HandOverError(ValueError):
    """Error for a run that verl cannot take over, or for wrong values that it gave back."""


class Handed:
    """Recipe, env and team settings of a folder.

    An env of a user's own is imported by its name, like the folder's bridge file.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        said = read_json(self.folder / FILE)
        name, options = said["env"]["name"], {key: one for key, one in said["env"].items() if key != "name"}
        env = own_env(name, self.folder, **options) if ":" in name else make_env(name, **options)
        if spec(env) != said["env"]:
            raise HandOverError(f"{self.folder / FILE} was made for env {said['env']}, and this one is {spec(env)}")
        self.env = with_max_turns(env, said["max_turns"])
        self.recipe = from_data(said["recipe"])
        self.sampling = {agent: Sampling(**one) for agent, one in said["sampling"].items()}
        self.frozen, self.template, self.seed = tuple(said["frozen"]), said["template"], said["seed"]
        self.minibatches = said["minibatches"]

    async def play(
        self, task: str, session: Any, occasion: str, speak: Speak, tokenizer: Any, context: int
    ) -> list[dict[str, Any]]:
        """Play one more instance of `task`, and return its rows.

        `task` is JSON text from the parquet files. `session` counts its instances, and `occasion` distinguishes
        repeated draws of one task.
        """
        told = json.loads(task)
        speaker = Speaker(speak, tokenizer, self.template, context)
        drawn, episode = Task(told["id"], told["data"]), f"{told['id']}#{session}@{occasion}"
        rows = await play(self.env, drawn, episode, self.recipe.plan, speaker, self.sampling, self.seed)
        return [{**row, "occasion": occasion} for row in rows]

    def learns(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row may be trained on; the recipe's `select` can still exclude it.

        Rows that only value a candidate and rows of frozen agents may not.
        """
        return not row["probe"] and row["agent"] not in self.frozen

    def advantages(self, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """Return all rows of one batch as a table with `credit`, `advantage` and `selected` from the recipe.

        The advantage of a row that is not trained on is 0.
        """
        turns = pd.DataFrame(list(rows)).assign(step=0)
        if "occasion" in turns:  # a task that was drawn twice gives two groups
            twice = turns.groupby("task")["occasion"].transform("nunique") > 1
            turns.loc[twice, "task"] += " @" + turns.loc[twice, "occasion"]
            turns = turns.drop(columns="occasion")
        judged = self.recipe.advantages(turns)
        trains = selected(judged) & ~column(judged, "agent").isin(self.frozen)
        return judged.assign(advantage=judged["advantage"].where(trains, 0.0), selected=trains)

    def batch(self) -> pd.DataFrame:
        """Return the recorded rows with their recorded advantages."""
        return read_table(self.folder / BATCH)

    def compare(self, found: Sequence[float]) -> str:
        """Return a line about how close `found` is to the recorded advantages.

        Raises HandOverError if a difference exceeds `CLOSE`.
        """
        recorded = self.batch()
        missed = np.abs(np.asarray(found, float) - recorded["advantage"].to_numpy(float))
        worst = int(missed.argmax())
        if not missed[worst] <= CLOSE * max(1.0, abs(float(recorded["advantage"].iloc[worst]))):
            row = recorded.iloc[worst]
            raise HandOverError(
                f"{self.folder / BATCH}: row {worst} (task {row['task']!r}, agent {row['agent']!r}) has the advantage "
                f"{row['advantage']!r}, and here it is {found[worst]!r}; do not train: the recipe would be another one"
            )
        return f"{len(recorded)} advantages are those that were recorded; the largest difference is {missed[worst]:.1e}"


def told(row: Mapping[str, Any], without: Sequence[str] = ()) -> dict[str, Any]:
    """Return a row as plain data, except for the columns `without`."""
    return {name: plain(value) for name, value in row.items() if name not in without}


def recorded_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a recorded batch as a rollout returned them."""
    return [told(row, without=("step", "advantage")) for row in table.to_dict("records")]
