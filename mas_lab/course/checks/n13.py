"""Exercises of notebook 13: the defects of five runs, and where they show."""

import numpy as np

from mas_lab.course.compare import close, need, place_of, result_of
from mas_lab.course.exercises import NotebookData, exercise

DEFECTS = {"A": "stale weights", "B": "lone row", "C": "best of K", "D": "padding", "E": "group key"}
"""Defects by the names of the runs; the mended ones have other names."""


def _named(defect, right):
    need(defect == right, f"{defect!r} is not the defect; choose from {', '.join(map(repr, sorted(DEFECTS.values())))}")


@exercise("13.1")
def stale(run: NotebookData, defect, step):
    _named(defect, "stale weights")
    apart = run.stats.groupby("step")["mismatch"].max()
    close(step, (apart > 1e-3).idxmax(), "the first step with other weights", tolerance=1e-9)
    return f"a ratio that should be 1 is off by {apart.max():.1f}"


@exercise("13.2")
def lone(run: NotebookData, defect, row):
    _named(defect, "lone row")
    one = run.turns.iloc[row]
    size = (run.turns["group"] == one["group"]).sum()
    need(size == 1, f"{place_of(run.turns, row)} is in a group of {size}")
    need(one["advantage"] != 0, f"{place_of(run.turns, row)} is lone, but its advantage is 0, as it should be")
    return f"this lone row has an advantage of {one['advantage']:.2f}"


@exercise("13.3")
def best_of(run: NotebookData, defect, success):
    from mas_lab.train.evaluate import evaluate

    _named(defect, "best of K")
    drawn = [evaluate(run.env, run.team, run.env.tasks(64, "test", seed=s), k=2, seed=s)["success"] for s in (0, 1)]
    alone = np.mean([each.mean() for each in drawn])
    close(success, alone, "the success of the team alone, on held-out tasks", tolerance=0.1)
    return f"{alone:.2f}, but {run.curve['success'].iloc[-1]:.2f} was reported"


@exercise("13.4")
def padding(run: NotebookData, defect, row, tokens):
    _named(defect, "padding")
    behind = _behind_the_end(run.turns["completion_ids"].iloc[row])
    need(behind, f"{place_of(run.turns, row)}: nothing follows its end")
    close(tokens, behind, f"{place_of(run.turns, row)}: tokens after its end", tolerance=1e-9)


@exercise("13.5")
def mixed_up(run: NotebookData, defect, first, second):
    _named(defect, "group key")
    one, other = run.turns.iloc[first], run.turns.iloc[second]
    need(one["group"] == other["group"], f"rows {first} and {second} have two groups, {one['group']}, {other['group']}")
    same_question = (one["task"], one["agent"]) == (other["task"], other["agent"])
    need(not same_question, f"rows {first} and {second} are of one agent and one task, so they may be compared")
    return f"{one['agent']} on task {one['task']} was compared with {other['agent']} on task {other['task']}"


@exercise("13.6")
def guard(answer, runs: NotebookData):
    for name, run in runs.items():
        verdict, ours = result_of(answer, run.turns, run.stats), DEFECTS.get(name, "fine")
        need(verdict == ours, f"run {name}: your guard says {verdict!r}{', but nothing is wrong' * (ours == 'fine')}")


def _behind_the_end(ids) -> int:
    ids = list(ids)
    return len(ids) - ids.index(1) - 1 if 1 in ids else 0
