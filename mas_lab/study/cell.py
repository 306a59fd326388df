"""Train one cell of a study to its budget, and record the results.

Leaves out: the list of cells (`design`), and training many of them side by side (`runner`).
"""

import shutil
import time
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.env import Env
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.runs.disk import RunError, read_json, write_json
from mas_lab.runs.run import Run, load_run
from mas_lab.runs.scores import score_curve
from mas_lab.study.design import Cell
from mas_lab.table import TableError, in_batch
from mas_lab.team import Team
from mas_lab.train.budget import KINDS, Usage
from mas_lab.train.evaluate import evaluate
from mas_lab.train.record import code, versions

EARLY = 5
"""Steps in the first and in the last window. One step is too noisy; over more steps the policies change too much."""
QUIZ_TASKS, QUIZ_EPISODES = 64, 4
CHECKPOINTS, RECORDS = "checkpoints", "cells"


def run_of(folder: Path, cell: Cell) -> Path:
    """Return the folder of a cell's run; another config or other code gives another folder."""
    return folder / "runs" / f"{cell.name}-{code()[:6]}"


def attempt(cell: Cell, folder: Path, keep: str) -> dict[str, Any]:
    """Train the cell if it has no record, and return its record; runs in another process.

    `keep` selects the files of the run that stay: "all", "tables" (without weights), or "record" (none).

    A training that failed after it began is a result. Its record is kept, with the error and without scores. A training
    that could not begin, for example because a model is missing, or whose run could not be kept or continued, raises
    RuntimeError. It shows nothing about its arm. A cell that another process has made meanwhile is not made again.
    """
    run = run_of(folder, cell)
    path = folder / RECORDS / f"{run.name}.json"
    if path.is_file() and not (there := read_json(path)).get("error"):
        return there
    try:
        record = play(cell, folder)
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        if isinstance(failure, RunError) or not (run / "run.json").is_file():
            raise RuntimeError(error) from None  # any other class may not reach the other process
        nothing = dict.fromkeys(("steps", *KINDS, "seconds")) | {"curve": [], "agents": [], "error": error}
        record = {"cell": cell.digest, **cell.called, "code": code(), "versions": versions(), **nothing}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    if keep != "all" and not record.get("error"):
        shutil.rmtree(run / CHECKPOINTS if keep == "tables" else run)
    return record


def play(cell: Cell, folder: Path) -> dict[str, Any]:
    """Train the cell to its budget in `folder`, and return its record; an interrupted training continues.

    The record is the plain data from which the tables of a study are made. `seconds` is processor time, including the
    time for scores. It is `None` if the training continued an interrupted one.
    """
    config, path = cell.training(), run_of(folder, cell)
    team, began, quiz = config.make_team(), time.process_time(), cell.quiz()
    is_new, before = not (path / "run.json").is_file(), _answered(quiz, team, cell.seed)
    for _ in config.train(team, run=path):
        pass
    after, run = _answered(quiz, team, cell.seed), load_run(path)
    seconds = time.process_time() - began if is_new else None
    curve = score_curve(run)[["step", "success", "return"]].to_dict("records")
    agents, amounts = _agents(run), Usage.of(run)
    if quiz:  # with a row for an agent that did not speak in a window
        scores = pd.DataFrame({"quiz_before": before, "quiz_after": after}).rename_axis("agent").reset_index()
        every = scores.merge(pd.DataFrame({"window": agents["window"].unique()}), how="cross")
        agents = agents.merge(every, on=["agent", "window"], how="right")
    return {
        "cell": cell.digest, **cell.called, "steps": run.steps, **amounts.after(run.steps), "seconds": seconds,
        "code": run.config["code"], "versions": run.config["versions"],
        "curve": [{**row, **amounts.after(int(row["step"]))} for row in curve], "agents": agents.to_dict("records"),
    }  # fmt: skip


def _answered(quiz: Env | None, team: Team, seed: int) -> dict[str, float]:
    """Return the mean local reward per episode of each agent on held-out tasks of `quiz`."""
    if quiz is None:
        return {}
    scores = evaluate(quiz, team, quiz.tasks(QUIZ_TASKS, "test", seed), QUIZ_EPISODES, seed=seed)
    return scores.groupby("agent")["own_return"].mean().to_dict()


def _agents(run: Run) -> pd.DataFrame:
    """Return a row per agent and `window` (first or last `EARLY` steps): norms before clipping, scores, facts, `F`.

    `own_before` and `own_after` are the mean local reward per turn on held-out tasks before and after training. They
    are the agent's share of right answers if this reward is 1 for those and 0 for others. `turns`, `tokens` (sampled)
    and `prompt_tokens` (read) are means per episode after training.
    """
    norms = run.stats.groupby("agent", sort=False)["grad_norm"].agg(largest_norm="max", median_norm="median")
    scores = run.read("scores")
    for name, step in (("own_before", 0), ("own_after", run.steps)):
        last = scores[scores["step"] == step].groupby("agent")
        sums = last[["own_return", "turns"]].sum()
        norms[name] = sums["own_return"] / sums["turns"].where(sums["turns"] > 0)
    norms = norms.join(last[["turns", "tokens", "prompt_tokens"]].mean())
    ends = {"start": range(min(EARLY, run.steps)), "end": range(max(0, run.steps - EARLY), run.steps)}
    windows = [_facts(pd.concat(map(run.step_turns, steps), ignore_index=True)).assign(window=window)
               for window, steps in ends.items()]  # fmt: skip
    return pd.concat(windows).merge(norms.reset_index(), on="agent", how="left")


def _facts(turns: pd.DataFrame) -> pd.DataFrame:
    """Return a row per agent: share of the episodes in which it `spoke`, its `rows`, and the columns of its size."""
    try:
        size = pooled_inflation(inflation(turns, once_per=baseline_unit(turns))).rename(columns={"n": "rows"})
        episode = turns.groupby(["step", "episode"]).ngroup()[in_batch(turns)]
        spoke = (episode.groupby(turns["agent"]).nunique() / episode.nunique()).rename("spoke")
        return size.merge(spoke.reset_index(), on="agent")
    except TableError:  # credits of a custom plan may not fit any baseline
        return pd.DataFrame({"agent": turns["agent"].unique()})
