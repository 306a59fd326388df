"""Compute the scores of a run step by step, in its training episodes and on held-out tasks.

Scores on held-out tasks exist if somebody kept them. Leaves out: playing held-out tasks (`evaluate`) and comparing runs
(`widgets.ablation`).
"""

import numpy as np
import pandas as pd

from mas_lab.cells.credits import return_to_go
from mas_lab.runs.disk import read_tables, step_of, write_step
from mas_lab.runs.run import SCORES, Run
from mas_lab.table import TableError, column, completions_of, in_batch

READ = ["step", "episode", "node", "parent", "depth", "agent", "candidate", "kept", "probe", "action", "team_reward",
        "success", "completion_ids"]  # fmt: skip
CURVE = ["step", "tokens", "success", "return"]


def training_curve(turns: pd.DataFrame) -> pd.DataFrame:
    """Return a row per training step: `tokens`, `success` and `return`.

    `tokens` counts those sampled up to the end of the step. `success` is the share of its episodes that ended in
    success. `return` is the mean sum of the team's rewards, over all branches if an episode has several. The episodes
    are those that were trained on. Under `tree()`, the best of K candidates moves each of them on.
    """
    if "step" not in turns.columns:
        turns = turns.assign(step=0)
    rows = _with_unique_names(turns)
    step_of = rows.groupby("episode", sort=False)["step"].first()
    found = pd.DataFrame({"success": episode_success(rows), "return": episode_returns(rows)})
    curve = found.groupby(step_of).mean().rename_axis("step").reset_index()
    tokens = rows["completion_ids"].map(len).groupby(rows["step"]).sum().sort_index().cumsum()
    return curve.assign(tokens=curve["step"].map(tokens))[CURVE]


def step_scores(turns: pd.DataFrame) -> dict[str, float]:
    """Return `training_curve` of a single step as plain numbers: its `tokens`, `success` and `return`."""
    [row] = training_curve(turns)[CURVE[1:]].to_dict("records")
    return row


def run_curve(run: Run) -> pd.DataFrame:
    """Return `training_curve` of a run."""
    return training_curve(run.read("turns", READ))


def episode_success(turns: pd.DataFrame) -> pd.Series:
    """Return the share of each episode's leaves that succeeded.

    Leaves that were played only to value a candidate do not count. The last agent of a node stands for it: in `tree()`,
    only its kept candidate was played with the choices of all. In `joint(mode="cross")` a completion is a leaf if none
    of its joint actions went on.
    """
    rows = turns.assign(action=column(turns, "action"))[_stands(turns)]
    went_on = {name for parent in rows["parent"].unique() for name in (parent, completions_of(parent)[-1])}
    return rows[~rows["action"].isin(went_on)].groupby("episode")["success"].mean()


def episode_returns(turns: pd.DataFrame) -> pd.Series:
    """Return the return of each episode that was played to train, averaged over its branches."""
    played = turns[_is_played(turns)]
    if len(played) < in_batch(turns).sum():  # tree() left some candidates behind
        played = turns[_stands(turns)]
    if "depth" in played.columns and not played.duplicated(["episode", "depth", "agent"]).any():  # nothing branches
        return played.drop_duplicates(["episode", "depth"]).groupby("episode")["team_reward"].sum()
    returns = return_to_go()(played)
    return returns[played["parent"] == ""].groupby(played["episode"]).mean()


def _is_played(turns: pd.DataFrame) -> pd.Series:
    return column(turns, "kept").astype(bool) & in_batch(turns)


def _stands(turns: pd.DataFrame) -> pd.Series:
    """Return which rows stand for their node: the played ones of the agent that acted last there, by index."""
    is_played = _is_played(turns)
    last = turns[is_played].sort_index(kind="stable").groupby("node")["agent"].last()
    return is_played & (turns["agent"] == turns["node"].map(last))


def _with_unique_names(turns: pd.DataFrame) -> pd.DataFrame:
    """Make names unique over steps; they become plain strings, which pandas walks fastest."""
    named = {name: column(turns, name) for name in ("node", "parent")}
    rows = turns.assign(**named).sort_index(kind="stable").reset_index(drop=True)
    steps = rows["step"].astype(int).tolist()
    for name in ("episode", "node", "parent", *({"action"} & set(rows.columns))):
        own = [f"{step} {value}" if value != "" else "" for step, value in zip(steps, rows[name].tolist(), strict=True)]
        rows[name] = pd.Series(own, dtype=object)
    return rows


def keep_scores(run: Run, step: int, scores: pd.DataFrame) -> None:
    """Keep a table of `evaluate` with the run, as the team's scores after `step` steps.

    `keep_scores(run, 0, scores)` keeps the scores before training, and `run.steps` stands for those at the end.
    `train(..., run=run, score_every=10)` keeps such scores by itself. `export` includes them.

    Args:
        run: A run in a folder.
        step: Number of training steps before the scores, from 0 to `run.steps`.
        scores: The table that `evaluate` returned.

    Raises:
        TableError: A column is missing.
        ValueError: The run does not hold so many steps.
        TypeError: The run is an exported zip.
        RunError: The scores cannot be written; the run stays as it was.
    """
    missing = [name for name in ("task", "success", "return") if name not in scores.columns]
    if missing:
        raise TableError(f"keep_scores: column {missing[0]!r} is missing; pass what evaluate() returned")
    if not 0 <= step <= run.steps:
        raise ValueError(f"keep_scores: step={step}, but {run.folder} holds {run.steps} steps")
    if run.is_exported:
        raise TypeError(f"keep_scores: {run.folder} is an exported zip; keep scores with the run's folder, then export")
    before = set((run.folder / SCORES).glob(f"{step:06d}-*.parquet"))
    for path in before - {write_step(run.folder / SCORES, step, scores.assign(step=step))}:
        path.unlink(missing_ok=True)


def scored_steps(run: Run) -> list[int]:
    """Return the steps with scores that count, in order."""
    return [step_of(part) for part in run.parts(SCORES)]


def mean_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a row per `step` of `evaluate`'s tables: mean `success` and `return` over tasks, each counted once."""
    by_task = scores.drop_duplicates(["step", "task"])
    return by_task.groupby("step")[["success", "return"]].mean().reset_index()


def score_curve(run: Run, curve: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a row per scored step, with mean `success` and `return` over the tasks; empty if none was scored.

    `tokens` counts those sampled in training until then, by the run's `curve` (`None`: it is read from the run).
    """
    if not (parts := run.parts(SCORES)):
        return pd.DataFrame(columns=CURVE)
    means = mean_scores(read_tables(parts, ["step", "task", "success", "return"]))
    curve = run_curve(run) if curve is None else curve
    until = np.concatenate([[0], curve["tokens"]])
    return means.assign(tokens=until[means["step"]])[CURVE]
