"""Exercises of notebook 02: rows in a wrong group, `by` from a description, a new credit, opposite advantages."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import asked, same_rows, tables, where
from mas_lab.course.exercises import NotYet, exercise

METHODS = {
    "everyone": ("task",),
    "role": ("task", "agent"),
    "moment": ("task", "agent", "turn"),
    "weights": ("task", "policy"),
    "decision": ("node", "agent"),
}


@exercise(
    "02.1",
    "Sort the rows by task and agent, in the head or with pandas: within each, one label should stand.",
    "`labelled.sort_values(['task', 'agent'])`: in two places a label stands among others.",
)
def strangers(labelled, rows):
    usual = labelled.groupby(["task", "agent"])["group"].transform(lambda labels: labels.mode()[0])
    wrong = set(labelled.index[labelled["group"] != usual])
    if not isinstance(rows, Sequence | set) or isinstance(rows, str) or any(one is ... for one in rows):
        raise NotYet("a list of two row numbers is asked for")
    if unknown := [row for row in rows if row not in set(labelled.index)]:
        raise NotYet(f"the table has no row {unknown[0]!r}")
    for row in rows:
        if row not in wrong:
            task, agent, label = labelled.loc[row, ["task", "agent", "group"]]
            raise NotYet(f"row {row} is right where it is: {agent} of {task} is group {label}")
    if len(set(rows)) < len(wrong):
        raise NotYet(f"{len(set(rows))} of the {len(wrong)} rows found")


@exercise(
    "02.2",
    "`by` names the columns in which two rows must agree to be compared. What is not named may differ.",
    "'over all episodes of a task': `task` is named, `episode` is not. 'at one point of one episode': that is a node.",
    "role: task and agent. moment: and turn. weights: policy in the place of agent. decision: node and agent.",
)
def columns_of(by):
    if not isinstance(by, dict):
        raise NotYet("a dict is asked for: method -> columns")
    for name, ours in METHODS.items():
        if by.get(name, ...) is ...:
            raise NotYet(f"{name}: nothing yet")
        yours = (by[name],) if isinstance(by[name], str) else tuple(by[name])
        for table in _candidates():
            if unknown := [column for column in yours if column not in table]:
                raise NotYet(f"{name}: {unknown[0]!r} is no column of the table")
            _refuse_other_groups(name, table, yours, ours)


def _refuse_other_groups(name: str, table: pd.DataFrame, yours: tuple[str, ...], ours: tuple[str, ...]) -> None:
    """Raise `NotYet` with two rows that only one of the groupings compares."""
    labels = [table.groupby(list(by)).ngroup().to_numpy() if by else np.zeros(len(table)) for by in (yours, ours)]
    together = [each[:, None] == each[None, :] for each in labels]
    for wrong, told in ((together[0] & ~together[1], "are compared"), (together[1] & ~together[0], "are not compared")):
        if wrong.any():
            first, second = np.argwhere(wrong)[0]
            raise NotYet(f"{name}: {where(table, first)} and {where(table, second)} {told} by {yours}")


def _candidates():
    """Yield tables with two candidates per call.

    Solver and verifier share weights, and a reader acts together with the fixer.
    """
    for table in tables(3):
        table = pd.concat([table, table[table["agent"] == "fixer"].assign(agent="reader")])
        table = table.assign(
            node=table["episode"] + "/" + table["depth"].astype(str),
            policy=table["agent"].replace(
                {"solver": "large", "verifier": "large", "fixer": "small", "reader": "small"}
            ),
        )
        both = pd.concat([table.assign(candidate=0), table.assign(candidate=1, kept=False)])
        yield both.sample(frac=1, random_state=0).reset_index(drop=True)


@exercise(
    "02.3",
    "How many rows have the episode and the agent of this row? `groupby([...])[...].transform('size')` has it per row.",
    "`lab.episode_return()(turns) - self.cost * calls`",
)
def thrifty(credit: Any):
    if not (isinstance(credit, type) and dataclasses.is_dataclass(credit)):
        raise NotYet("the class is asked for, a dataclass")
    if not credit.__dataclass_params__.frozen:
        raise NotYet("the dataclass is not frozen: `@dataclass(frozen=True)`, or it could change while a run goes on")
    for cost in (0.25, 0.1):
        for table in tables(6):
            calls = table.groupby(["episode", "agent"])["turn"].transform("count")
            ours = episode_return()(table) - cost * calls
            same_rows(asked(_made(credit, cost), table), ours, table, what=f"credit at cost={cost}")


def _made(credit: type, cost: float) -> Any:
    try:
        return credit(cost)
    except Exception as error:
        raise NotYet(f"`{credit.__name__}({cost})` raised {type(error).__name__}: {error}") from error


@exercise(
    "02.4",
    "Call the helper only in episodes that went well. Then even its worst call lies above the mean of all.",
    "Its own mean must lie above that call: let the other episodes in which it speaks go a little better.",
    "Rewards such as 1, 0.8 and 1 with the helper, and 0 in the other three.",
)
def praised_and_blamed(rewards, called):
    if not isinstance(rewards, list | tuple) or len(rewards) != 6:
        raise NotYet("a list of six rewards is asked for, one per episode")
    if not all(isinstance(reward, int | float) and 0 <= reward <= 1 for reward in rewards):
        raise NotYet("rewards are numbers from 0 to 1")
    if not isinstance(called, list | tuple) or len(set(called)) < len(called) or not set(called) <= set(range(6)):
        raise NotYet("`called` is a list of episodes, each of 0 to 5 at most once")
    rows = [("t", e, 0, "solver", 0.0 if e in called else float(reward)) for e, reward in enumerate(rewards)]
    rows += [("t", e, 1, "helper", float(rewards[e])) for e in called]
    table = pd.DataFrame(rows, columns=["task", "episode", "depth", "agent", "team_reward"]).assign(turn=0)
    praise, blame = (
        normalize(group(table, by, episode_return())).query("agent == 'helper'")["advantage"].to_numpy()
        for by in (("task",), ("task", "agent"))
    )
    if not ((praise > 0.3) & (blame < -0.3)).any():
        pairs = ", ".join(f"{one:+.2f} and {other:+.2f}" for one, other in zip(praise, blame, strict=True))
        raise NotYet(f"the helper's calls are worth, by task and by agent: {pairs or 'there are none'}")
    best = int(np.argmax(np.where(blame < -0.3, praise, -np.inf)))
    return f"in episode {called[best]} it is worth {praise[best]:+.2f} by task, {blame[best]:+.2f} by its own mean"
