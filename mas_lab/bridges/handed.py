"""A folder that `export(run, folder, to=...)` wrote, opened in the trainer that it was handed to.

Leaves out: how it was written (`hand_over`), and the trainer's own words (`slime`, `verl`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.bridges.elsewhere import Speak, Speaker, play
from mas_lab.cells.rollout import with_max_turns
from mas_lab.env import Env, Task, spec
from mas_lab.recipes import from_data
from mas_lab.runs.disk import read_json, read_table
from mas_lab.table import column, plain, selected
from mas_lab.tasks import make_env
from mas_lab.team import Sampling

FILE, BATCH, BRIDGE = "hand_over.json", "batch.parquet", "mas_lab_bridge"
CLOSE = 1e-6
"""How far an advantage may be from the recorded one."""
KEPT = ("prompt_ids", "completion_ids", "logprobs")
"""What a trainer carries in columns of its own."""


class HandOverError(ValueError):
    """What a trainer cannot take over, or gave back wrong."""


class Handed:
    """The recipe, the env and the team's settings of a folder. `env`: the env, where it is one of your own."""

    def __init__(self, folder: str | Path, env: Env | None = None):
        self.folder = Path(folder)
        said = read_json(self.folder / FILE)
        if env is None and ":" in said["env"]["name"]:
            raise HandOverError(f"{self.folder / FILE}: the env {said['env']['name']} is your own; give it as env=")
        if env is not None and spec(env) != said["env"]:
            raise HandOverError(f"{self.folder / FILE} was made for env {said['env']}, and this one is {spec(env)}")
        self.env = with_max_turns(make_env(**said["env"]) if env is None else env, said["max_turns"])
        self.recipe = from_data(said["recipe"])
        self.sampling = {agent: Sampling(**one) for agent, one in said["sampling"].items()}
        self.frozen, self.template, self.seed = tuple(said["frozen"]), said["template"], said["seed"]
        self.minibatches = said["minibatches"]

    async def play(
        self, task: str, number: Any, speak: Speak, tokenizer: Any, context: int = 2**31, occasion: Any = None
    ) -> list[dict[str, Any]]:
        """The rows of one more instance of `task` (its JSON, as the parquet files hold it), `number` among its own.

        `occasion` tells apart the times at which one task is drawn; where it is None, rows are called as in `rollout`.
        """
        told = json.loads(task)
        speaker = Speaker(speak, tokenizer, self.template, context)
        many = self.recipe.plan.instances > 1 or occasion is not None
        episode = f"{told['id']}#{number}" if many else told["id"]
        drawn = Task(told["id"], told["data"])
        rows = await play(self.env, drawn, episode, self.recipe.plan, speaker, self.sampling, self.seed)
        return rows if occasion is None else [{**row, "occasion": str(occasion)} for row in rows]

    def learns(self, row: Mapping[str, Any]) -> bool:
        """Is a row trained on, as far as the rollout knows? Not what only values a candidate, nor a frozen agent's."""
        return not row["probe"] and row["agent"] not in self.frozen

    def earned(self, rows: Sequence[Mapping[str, Any]]) -> float:
        """The mean return of the team over the paths that an instance took, for the trainer's charts; in
        `joint(mode="cross")` over its actions."""
        kept = {row["action"]: row for row in rows if row["kept"] and not row["probe"]}
        leaves = kept.keys() - {row["parent"] for row in kept.values()}
        returns = []
        for action in leaves:
            returns.append(0.0)
            while action in kept:
                returns[-1] += kept[action]["team_reward"]
                action = kept[action]["parent"]
        return float(np.mean(returns))

    def advantages(self, rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
        """All rows of one batch through the recipe: the table with `credit`, `advantage` and `selected`; 0 for a row
        that is not trained on."""
        turns = pd.DataFrame(list(rows)).assign(step=0)
        if "occasion" in turns:  # one task, drawn twice: two groups
            twice = turns.groupby("task")["occasion"].transform("nunique") > 1
            turns.loc[twice, "task"] += " @" + turns.loc[twice, "occasion"]
            turns = turns.drop(columns="occasion")
        judged = self.recipe.advantages(turns)
        trains = selected(judged) & ~column(judged, "agent").isin(self.frozen)
        return judged.assign(advantage=judged["advantage"].where(trains, 0.0), selected=trains)

    def batch(self) -> pd.DataFrame:
        """The recorded rows, with the advantages that they had."""
        return read_table(self.folder / BATCH)

    def compare(self, found: Sequence[float]) -> str:
        """A line on how close `found` is to the recorded advantages. Raises HandOverError where it is not."""
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
    """A row as plain data."""
    return {name: plain(value) for name, value in row.items() if name not in without}


def recorded_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a recorded batch as a rollout gave them."""
    return [told(row, without=("step", "advantage")) for row in table.to_dict("records")]
