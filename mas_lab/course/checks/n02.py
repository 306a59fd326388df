"""Exercises of notebook 02: rows in a wrong group, `by` from a description, a credit, opposite advantages, cell 2."""

import dataclasses

import pandas as pd

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import designed, explored, names, need, result_of, same_credit, same_groups, tables
from mas_lab.course.exercises import NotebookData, StudentCode, exercise

METHODS = {
    "everyone": ("task",),
    "role": ("task", "agent"),
    "moment": ("task", "agent", "turn"),
    "weights": ("task", "policy"),
    "decision": ("node", "agent"),
}


@exercise("02.1")
def strangers(labelled: NotebookData, rows):
    usual = labelled.groupby(["task", "agent"])["group"].transform(lambda labels: labels.mode()[0])
    rows, wrong = names(rows, labelled.index), set(labelled.index[labelled["group"] != usual])
    need(rows <= wrong, f"row {min(rows - wrong, default=0)} is in the right group")
    need(rows == wrong, f"{len(rows)} of the {len(wrong)} rows found")


@exercise("02.2")
def columns_of(by):
    for name, ours in METHODS.items():
        need(by.get(name, ...) is not ..., f"{name}: there is no answer yet")
        same_groups(by[name], ours, name)


@exercise("02.3")
def thrifty(credit: StudentCode):
    frozen = isinstance(credit, type) and dataclasses.is_dataclass(credit) and credit.__dataclass_params__.frozen
    need(frozen, "give the class, with `@dataclass(frozen=True)`, so that it cannot change during a run")
    for cost in (0.25, 0.1):
        for table in tables(6):
            calls = table.groupby(["episode", "agent"])["turn"].transform("count")
            yours = result_of(result_of(credit, cost), table)
            same_credit(yours, table, lambda credit, paid=cost * calls: credit - paid)


@exercise("02.4")
def praised_and_blamed(rewards, called):
    table = designed(rewards, called, 6, "helper").rename(columns={"credit": "earned"})
    praise, blame = (
        normalize(group(table, by, lambda turns: turns["earned"])).query("agent == 'helper'")["advantage"]
        for by in (("task",), ("task", "agent"))
    )
    pairs = ", ".join(f"{one:+.2f} and {other:+.2f}" for one, other in zip(praise, blame, strict=True))
    need(((praise > 0.3) & (blame < -0.3)).any(), f"advantages of the helper's calls, by task and by agent: {pairs}")
    return f"advantages of its calls, by task and by agent: {pairs}"


@exercise("02.5")
def cell(answer):
    for number, by in enumerate((("task",), ("task", "agent"), ("episode", "agent", "turn"))):
        table = explored(list(tables(3))[number])
        table = table.assign(prompt=table.groupby(list(by)).ngroup().map("prompt {}".format))
        yours = result_of(answer, table, by, episode_return(), True)
        right = isinstance(yours, pd.DataFrame) and {"credit", "group"} <= set(yours) and len(yours) == len(table)
        need(right, "return the table with the columns `credit` and `group`, and all of its rows")
        yours = yours.reindex(table.index) if set(yours.index) == set(table.index) else yours
        same_credit(yours["credit"], table)
        labels = pd.Series(list(map(str, yours["group"]))).groupby(table.groupby(list(by)).ngroup().to_numpy())
        need((labels.nunique() == 1).all(), f"by={by}: rows that agree in all columns have two labels")
        need(labels.first().is_unique, f"by={by}: rows that differ in a column have one label")
        other = table.assign(prompt=["another", *table["prompt"][1:]])
        result_of(answer, other, by, episode_return(), False)
        try:
            answer(other, by, episode_return(), True)
        except ValueError:
            continue
        need(False, f"by={by}: the first row answers another prompt than its group, and nothing was raised")
