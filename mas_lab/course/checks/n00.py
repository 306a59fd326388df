"""Exercises of notebook 00: advantages by hand, reading the table, and another baseline."""

import pandas as pd

from mas_lab.course.compare import close, entries, need
from mas_lab.course.exercises import exercise

CREDITS = (0.2, 0.2, 0.2, 0.6, 0.8)


@exercise(
    "00.1",
    "First compute the mean and the standard deviation of all five; the latter divides by 5, not by 4.",
    "The mean is 0.4. How far from it is each row, in standard deviations?",
)
def by_hand(advantages):
    credit = pd.Series(CREDITS)
    right = (credit - credit.mean()) / credit.std(ddof=0)
    for row, yours in enumerate(entries(advantages, len(CREDITS), "advantages")):
        close(yours, right[row], f"row {row}, credit {credit[row]}", tolerance=0.02)
    return f"they sum to {abs(sum(advantages)):.1f}, as advantages of one group always do"


@exercise(
    "00.2",
    "The column `kept` marks the candidates that moved the state.",
    "Count the rows whose agent is the executor and whose `kept` is False: `(a & ~b).sum()`.",
)
def not_chosen(turns, number):
    close(number, ((turns["agent"] == "executor") & ~turns["kept"]).sum(), "the count", tolerance=1e-9)


@exercise(
    "00.3",
    "`by` names the columns whose values must agree for two rows to be compared.",
    "All rows of one task are in one group: `by` has no agent, no turn and no episode.",
)
def global_baseline(table):
    need("advantage" in table, "give the table that `normalize` returns")
    groups, tasks = table["group"].nunique(), table["task"].nunique()
    need(groups == tasks, f"{groups} groups for {tasks} tasks")
    spread = table.groupby(["task", "credit"])["advantage"].agg(lambda a: a.max() - a.min())
    task, credit = spread.idxmax()
    need(spread.max() < 1e-9, f"task {task}: rows of credit {credit:.3g} got different advantages")
