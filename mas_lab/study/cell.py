"""One cell of a study: a training to its budget, and the record of what came of it.

Leaves out: which cells there are (`design`), and making many side by side (`runner`).
"""

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.env import Env
from mas_lab.explain.advice import advise
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.runs.disk import read_table, write_json
from mas_lab.runs.run import SCORES, Run, load_run
from mas_lab.runs.scores import kept_scores
from mas_lab.study.design import Cell
from mas_lab.study.processes import Stopped
from mas_lab.table import TableError
from mas_lab.team import Team
from mas_lab.train import train
from mas_lab.train.evaluate import evaluate
from mas_lab.train.record import code, versions
from mas_lab.train.spent import KINDS, Spent

EARLY = 5
"""Steps from whose rewards the statistics of the start are taken: one is noisy, and later the team is another."""
QUIZ_TASKS, QUIZ_EPISODES = 64, 4
CHECKPOINTS, RECORDS = "checkpoints", "cells"
Tell = Callable[[str, int, int], None]
"""Called with a cell's digest, what it spent of its budget, and the budget."""


def run_of(folder: Path, cell: Cell) -> Path:
    """The folder of a cell's run: another one if it asks for something else, or is made by other code."""
    return folder / "runs" / f"{cell.name}-{code()[:6]}"


def attempt(cell: Cell, folder: Path, keep: str, tell: Tell) -> tuple[str, dict[str, Any] | None, str | None]:
    """Return the cell's digest, its record, and the error if its training failed; for another process.

    A training that began and failed is a result: its record is kept, with the error and without scores. One that could
    not begin, such as for a model that is not there, says nothing about its arm, and has no record.
    """
    try:
        return cell.digest, play(cell, folder, keep, tell), None
    except Stopped:
        raise
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
        if not (run_of(folder, cell) / "run.json").is_file():
            return cell.digest, None, error
        spent = dict.fromkeys(("steps", *KINDS, "seconds"))
        made_with = {"code": code(), "versions": versions(), "curve": [], "agents": []}
        return cell.digest, _write(folder, cell, {**_called(cell), **spent, **made_with, "error": error}), error


def _write(folder: Path, cell: Cell, record: dict[str, Any]) -> dict[str, Any]:
    path = folder / RECORDS / f"{run_of(folder, cell).name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, record)
    return record


def play(cell: Cell, folder: Path, keep: str, tell: Tell) -> dict[str, Any]:
    """Train the cell to its budget in `folder`, going on where it stopped; write its record, and return it.

    `keep`: "all" of the run; its "tables", without weights; or nothing but the "record".
    """
    config, run = cell.training(), run_of(folder, cell)
    team, budget, began, quiz = config.make_team(), config.budget, time.process_time(), cell.quiz()
    answered = {"quiz_before": _answered(quiz, team, cell)}
    tell(cell.digest, 0, budget.amount)
    spent = Spent.of(load_run(run)) if (run / "run.json").is_file() else Spent()
    for report in train(config.env, team, config.recipe, None, config.seed, run, budget=budget, **config.settings):
        spent.add(report)
        tell(cell.digest, min(spent.after(report.step + 1)[budget.kind], budget.amount), budget.amount)
    answered["quiz_after"] = _answered(quiz, team, cell)
    made = record_of(cell, load_run(run), spent, time.process_time() - began, answered if quiz else {})
    record = _write(folder, cell, made)
    if keep == "tables":
        shutil.rmtree(run / CHECKPOINTS)
    elif keep == "record":
        shutil.rmtree(run)
    return record


def _called(cell: Cell) -> dict[str, Any]:
    return {"cell": cell.digest} | {name: getattr(cell, name) for name in ("task", "arm", "phase", "seed", "lr")}


def _answered(quiz: Env | None, team: Team, cell: Cell) -> dict[str, float]:
    """Return the mean local reward per episode of each agent on held-out tasks of `quiz`."""
    if quiz is None:
        return {}
    scores = evaluate(quiz, team, quiz.tasks(QUIZ_TASKS, "test", cell.seed), QUIZ_EPISODES, seed=cell.seed)
    return scores.groupby("agent")["own_return"].mean().to_dict()


def record_of(
    cell: Cell, run: Run, spent: Spent, seconds: float, quizzes: Mapping[str, Mapping[str, float]] | None = None
) -> dict[str, Any]:
    """All that the tables of a study are made of, as plain data. `seconds` of the processor, its scores included.

    `quizzes`: for `quiz_before` and `quiz_after` the score of each agent, where the cell has a quiz.
    """
    config = run.config
    curve = kept_scores(run)[["step", "success", "return"]].to_dict("records")
    return {
        **_called(cell), "steps": run.steps, **spent.after(run.steps), "seconds": seconds,
        "code": config["code"], "versions": config["versions"],
        "curve": [{**row, **spent.after(int(row["step"]))} for row in curve],
        "agents": _with_quizzes(_agents(run), quizzes or {}).to_dict("records"),
    }  # fmt: skip


def _with_quizzes(agents: pd.DataFrame, quizzes: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """Add each agent's scores, with a row for an agent that did not speak in a window."""
    if not quizzes:
        return agents
    scores = pd.DataFrame(quizzes).rename_axis("agent").reset_index()
    every = scores.merge(pd.DataFrame({"window": agents["window"].unique()}), how="cross")
    return agents.merge(every, on=["agent", "window"], how="right")


def _agents(run: Run) -> pd.DataFrame:
    """A row per agent: its norms before clipping, what it did on held-out tasks, and what its credits said in the first
    and in the last `EARLY` steps (`window`): the columns of `advise`, and `F` of `pooled_inflation`."""
    norms = run.stats.groupby("agent", sort=False)["grad_norm"].agg(largest_norm="max", median_norm="median")
    told = norms.join(_held_out(run))
    ends = {"start": range(min(EARLY, run.steps)), "end": range(max(0, run.steps - EARLY), run.steps)}
    windows = []
    for window, steps in ends.items():
        turns = pd.concat([run.step_turns(step) for step in steps], ignore_index=True)
        windows.append(_advised(turns).assign(window=window))
    return pd.concat(windows).merge(told.reset_index(), on="agent", how="left")


def _advised(turns: pd.DataFrame) -> pd.DataFrame:
    try:
        size = pooled_inflation(inflation(turns, once_per=baseline_unit(turns)))[["agent", "F"]]
        return advise(turns).drop(columns="why").merge(size, on="agent", how="left")
    except TableError:  # a plan of one's own may be judged in a way to which no baseline compares
        return pd.DataFrame({"agent": turns["agent"].unique()})


def _held_out(run: Run) -> pd.DataFrame:
    """Of each agent on held-out tasks: what it earned itself in a turn, `own_before` and `own_after` (where that is 1
    for what is right and 0 for what is not, how often it was right); and in the end per episode its `turns`, the
    `tokens` that it said and the `prompt_tokens` that it read."""
    first, last = (read_table(run.parts(SCORES)[end]).groupby("agent") for end in (0, -1))
    sums = [one[["own_return", "turns"]].sum() for one in (first, last)]
    own = {name: one["own_return"] / one["turns"].where(one["turns"] > 0)
           for name, one in zip(("own_before", "own_after"), sums, strict=True)}  # fmt: skip
    return pd.DataFrame(own).join(last[["turns", "tokens", "prompt_tokens"]].mean())
