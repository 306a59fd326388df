"""Train one cell of a study to its budget, and record the results.

Leaves out: the list of cells (`design`), and training many of them side by side (`runner`).
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.env import Env
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.runs.disk import RunError, read_json, read_table, write_json
from mas_lab.runs.run import SCORES, Run, load_run
from mas_lab.runs.scores import score_curve
from mas_lab.study.design import Cell
from mas_lab.table import TableError, trained
from mas_lab.team import Team
from mas_lab.train import train
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


def attempt(cell: Cell, folder: Path, keep: str) -> tuple[dict[str, Any] | None, str | None]:
    """Return the cell's record, and the error if its training failed; runs in another process.

    A training that failed after it began is a result. Its record is kept, with the error and without scores. A training
    that could not begin, for example because a model is missing, or whose run could not be kept or continued, has no
    record (`None`). It shows nothing about its arm. A cell that another process has made meanwhile is not made again.
    """
    path = _record_of(folder, cell)
    if path.is_file() and not (there := read_json(path)).get("error"):
        return there, None
    try:
        return play(cell, folder, keep), None
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        if isinstance(failure, RunError) or not (run_of(folder, cell) / "run.json").is_file():
            return None, error
        amounts = dict.fromkeys(("steps", *KINDS, "seconds"))
        made_with = {"code": code(), "versions": versions(), "curve": [], "agents": []}
        failed = {"cell": cell.digest, **cell.called, **amounts, **made_with, "error": error}
        return _write(folder, cell, failed), error


def _record_of(folder: Path, cell: Cell) -> Path:
    return folder / RECORDS / f"{run_of(folder, cell).name}.json"


def _write(folder: Path, cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
    path = _record_of(folder, cell)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return record


def play(cell: Cell, folder: Path, keep: str) -> dict[str, Any]:
    """Train the cell to its budget in `folder`, write its record, and return the record.

    An interrupted training continues where it stopped. `keep` selects the files of the run that stay: "all", "tables"
    (without weights), or "record" (nothing but the record).
    """
    config, run = cell.training(), run_of(folder, cell)
    team, began, quiz, quizzes = config.make_team(), time.process_time(), cell.quiz(), {}
    is_new = not (run / "run.json").is_file()
    if quiz:
        quizzes["quiz_before"] = _answered(quiz, team, cell.seed)
    for _ in train(config.env, team, config.recipe, None, config.seed, run, budget=config.budget, **config.settings):
        pass
    if quiz:
        quizzes["quiz_after"] = _answered(quiz, team, cell.seed)
    seconds = time.process_time() - began if is_new else None
    record = _write(folder, cell, record_of(cell, load_run(run), seconds, quizzes))
    if keep != "all":
        shutil.rmtree(run / CHECKPOINTS if keep == "tables" else run)
    return record


def _answered(quiz: Env, team: Team, seed: int) -> dict[str, float]:
    """Return the mean local reward per episode of each agent on held-out tasks of `quiz`."""
    scores = evaluate(quiz, team, quiz.tasks(QUIZ_TASKS, "test", seed), QUIZ_EPISODES, seed=seed)
    return scores.groupby("agent")["own_return"].mean().to_dict()


def record_of(cell: Cell, run: Run, seconds: float | None, quizzes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the record of a training: the plain data from which the tables of a study are made.

    `seconds` is processor time, including the time for scores. It is `None` if it is not known: for a training that was
    made elsewhere, or that continued an interrupted one. `quizzes` maps `quiz_before` and `quiz_after` to the
    score of each agent. It is empty or `None` if the cell has no quiz.
    """
    curve = score_curve(run)[["step", "success", "return"]].to_dict("records")
    agents, amounts = _agents(run), Usage.of(run)
    if quizzes:  # with a row for an agent that did not speak in a window
        scores = pd.DataFrame(quizzes).rename_axis("agent").reset_index()
        every = scores.merge(pd.DataFrame({"window": agents["window"].unique()}), how="cross")
        agents = agents.merge(every, on=["agent", "window"], how="right")
    return {
        "cell": cell.digest, **cell.called, "steps": run.steps, **amounts.after(run.steps), "seconds": seconds,
        "code": run.config["code"], "versions": run.config["versions"],
        "curve": [{**row, **amounts.after(int(row["step"]))} for row in curve], "agents": agents.to_dict("records"),
    }  # fmt: skip


def _agents(run: Run) -> pd.DataFrame:
    """Return a row per agent and `window` (first or last `EARLY` steps): norms before clipping, scores, facts, `F`."""
    norms = run.stats.groupby("agent", sort=False)["grad_norm"].agg(largest_norm="max", median_norm="median")
    ends = {"start": range(min(EARLY, run.steps)), "end": range(max(0, run.steps - EARLY), run.steps)}
    windows = []
    for window, steps in ends.items():
        turns = pd.concat([run.step_turns(step) for step in steps], ignore_index=True)
        windows.append(_facts(turns).assign(window=window))
    return pd.concat(windows).merge(norms.join(_final_scores(run)).reset_index(), on="agent", how="left")


def _facts(turns: pd.DataFrame) -> pd.DataFrame:
    """Return a row per agent: share of the episodes in which it `spoke`, its `rows`, and the columns of its size."""
    try:
        size = pooled_inflation(inflation(turns, once_per=baseline_unit(turns))).rename(columns={"n": "rows"})
        episode = turns.groupby(["step", "episode"]).ngroup()[trained(turns)]
        spoke = (episode.groupby(turns["agent"]).nunique() / episode.nunique()).rename("spoke")
        return size.merge(spoke.reset_index(), on="agent")
    except TableError:  # credits of a custom plan may not fit any baseline
        return pd.DataFrame({"agent": turns["agent"].unique()})


def _final_scores(run: Run) -> pd.DataFrame:
    """Return each agent's `own_before` and `own_after`, and its turns and tokens, on held-out tasks.

    The first two are its mean local reward per turn before and after training. They are its share of right answers if
    this reward is 1 for those and 0 for others. `turns`, `tokens` (sampled) and `prompt_tokens` (read) are means per
    episode after training.
    """
    parts = run.parts(SCORES)
    first, last = (read_table(parts[end]).groupby("agent") for end in (0, -1))
    own = {}
    for name, scores in (("own_before", first), ("own_after", last)):
        sums = scores[["own_return", "turns"]].sum()
        own[name] = sums["own_return"] / sums["turns"].where(sums["turns"] > 0)
    return pd.DataFrame(own).join(last[["turns", "tokens", "prompt_tokens"]].mean())
