"""The one table that flows through the four cells; a row is one model call.

The schema is declared once, below, with a meaning for each column. `python -m mas_lab schema` prints it. Every cell
calls `require` on the columns that it reads, so that a bad value is reported with its task, agent and turn before any
computation. Leaves out: how rows are made (`rollout`), and what is computed from them.
"""

import reprlib
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.arguments import did_you_mean
from mas_lab.display.documented_frame import COLUMN_DOCS, documented

PLACE = ("step", "task", "episode", "node", "agent", "turn", "candidate")


class TableError(ValueError):
    """Error of a table that a cell cannot read; it names the cell, the column, the row's place and the remedy."""


@dataclass(frozen=True)
class Column:
    """One column of the table of turns; none of its values may be missing."""

    description: str
    check: Callable[[object], bool] | None = None
    """Check that returns True for a usable value. `None`: every value is usable."""
    error: str = ""
    """Error message for a value that fails the check."""
    required: bool = True
    """False if the cell that adds the column may leave it out."""


def _is_number(value: object) -> bool:
    return isinstance(value, Real | np.bool_) and abs(value) <= sys.float_info.max  # a whole number may be beyond it


def _is_number_or_list(value: object) -> bool:
    if isinstance(value, Real):
        return _is_number(value)
    try:
        numbers = np.asarray(value)
    except ValueError:  # lists of unlike length
        return False
    return numbers.ndim == 1 and numbers.dtype.kind in "iuf" and bool(np.isfinite(numbers).all())


def _is_flag(value: object) -> bool:
    return isinstance(value, Real | np.bool_) and value in (True, False)


NUMBER = {"check": _is_number, "error": "not a finite number"}
NUMBERS = {"check": _is_number_or_list, "error": "neither a finite number nor a list of them, one per token"}
FLAG = {"check": _is_flag, "error": "neither True nor False"}
ENDS = ("eos", "stop", "length")
"""The ways in which a completion may end."""
CALL_STATUSES = ("none", "ok", "invalid_json", "unclosed", "unknown_tool", "wrong_arguments")
"""What becomes of the tool calls of a completion: there are none, all can be made, or the defect of the first."""
ROLLOUT = {
    "step": Column("training step, from 0"),
    "task": Column("task id"),
    "episode": Column("one environment instance played to its end (in a tree or joint plan: the whole tree)"),
    "node": Column("the decision point at which this row's candidates were drawn"),
    "parent": Column("the action that led to the node: `node.i`, `node.i-j` when several acted; empty at the start"),
    "turn": Column("turns this agent had before on this path, from 0"),
    "depth": Column("environment steps before on this path, from 0"),
    "agent": Column("role name"),
    "policy": Column("whose weights spoke"),
    "policy_version": Column("number of training steps that had made those weights, with `staleness`; 0 for weights "
                             "that never learn", required=False, **NUMBER),
    "candidate": Column("index among the candidates of the node, from 0"),
    "kept": Column("did the state move on through this candidate (in a full joint tree: every branch)", **FLAG),
    "action": Column("the joint action it was scored in, as `parent` names it; `*`: every candidate of that agent"),
    "probe": Column("played only to value an action or an agent, tree(follow=m), without(n); not trained on", **FLAG),
    "removed": Column("the agent that a fixed text replaces in this replay of without(n), or empty", required=False),
    "prompt": Column("the prompt as text, for people"),
    "completion": Column("the completion as text, for people"),
    "prompt_ids": Column("token ids of the prompt"),
    "completion_ids": Column("token ids as sampled, EOS included when it was sampled, nothing after it"),
    "logprobs": Column("log-probability of each sampled id under the distribution it was sampled from"),
    "temperature": Column("temperature of that distribution", **NUMBER),
    "finish": Column("why the completion ended: 'eos', 'stop' (one of Sampling.stop) or 'length'",
                     ENDS.__contains__, "none of 'eos', 'stop', 'length'"),
    "call_status": Column("what became of its tool call: 'ok', the defect of a malformed one, or 'none' for no call",
                          CALL_STATUSES.__contains__, f"none of {', '.join(map(repr, CALL_STATUSES))}", required=False),
    "valid": Column("did the environment understand the completion", **FLAG),
    "team_reward": Column("what this action earned the team; 0 for an action that does not move the world", **NUMBER),
    "local_reward": Column("what this action earned its own agent", **NUMBER),
    "success": Column("does the episode's goal stand after this action", **FLAG),
    "done": Column("did this action end the episode", **FLAG),
    "info": Column("plain data that the environment told of the step, where it told any (joint(mode='cross'): a list, "
                   "one per joint action)", required=False),
}  # fmt: skip
GROUPING = {
    "credit": Column("the number that is compared", **NUMBER),
    "group": Column("id of the comparison group"),
}
NORMALIZATION = {
    "center": Column("the baseline", **NUMBER),
    "scale": Column("the divisor", **NUMBER),
    "advantage": Column(
        "(credit - center) / scale, 0 where the group is lone or flat; before `update` anybody may "
        "put a list in its place, one number per token of the completion",
        **NUMBERS,
    ),
}
COMPARED = [*GROUPING, *NORMALIZATION]
"""The columns that cells 2 and 3 add."""
SELECTION = {
    "selected": Column("does `update` train on the row; without the column, on every row", required=False, **FLAG)
}
DIAGNOSIS = {
    "entropies": Column("nats of the distribution that each token was drawn from, under the weights that the team had "
                        "when it was asked", required=False),
}  # fmt: skip
BY_CELL = {
    "rollout": ROLLOUT, "group": GROUPING, "normalize": NORMALIZATION, "select": SELECTION, "entropies": DIAGNOSIS,
}  # fmt: skip
SCHEMA = {name: column for columns in BY_CELL.values() for name, column in columns.items()}
"""The columns of the table of turns: name -> column with its meaning and its check."""
ADDED_BY = {name: cell for cell, columns in BY_CELL.items() for name in columns}
DEFAULTS = {
    "kept": True, "candidate": 0, "valid": True, "local_reward": 0.0, "probe": False, "selected": True, "done": False,
    "parent": "",
}  # fmt: skip


def schema(of: str = "turns") -> pd.DataFrame:
    """Return the meanings of the columns of a table.

    Args:
        of: "turns" for the table of turns, or the function that returns the table: "group_stats", "update",
            "imitate", "index", "inflation", "uphill", "rejudge", "wrong_way", "evaluate", "rewards"
            (`RewardInspector.table`) or "dialogue".

    Returns:
        A table with `column` and `meaning`. For "turns" it also has `added_by`, the cell that adds the column.

    Raises:
        ValueError: `of` is unknown.
    """
    if of == "turns":
        rows = [(name, ADDED_BY[name], column.description) for name, column in SCHEMA.items()]
        return documented(pd.DataFrame(rows, columns=["column", "added_by", "meaning"]))
    if of not in COLUMN_DOCS:
        raise ValueError(f"schema: of={of!r} is no table of the kit; known are turns, {', '.join(COLUMN_DOCS)}")
    return documented(pd.DataFrame(COLUMN_DOCS[of].items(), columns=["column", "meaning"]))


def place(row: pd.Series) -> str:
    """Return a row's place in words, as far as it is known: `task 't3', agent 'solver', turn 1`."""
    return ", ".join(f"{name} {plain(row[name])!r}" for name in PLACE if name in row.index)


def plain(value):
    """Return a NumPy scalar as a Python value, and an array as a list."""
    if getattr(value, "ndim", 0):
        return value.tolist()
    return value.item() if hasattr(value, "item") else value


def require(turns: pd.DataFrame, columns: Sequence[str], cell: str, optional: Sequence[str] = ()) -> None:
    """Check that `turns` has `columns`, and that their values and those of present `optional` columns are usable.

    Args:
        turns: Table of turns.
        columns: Names of the columns that must be there.
        cell: Name of the caller, which stands first in the message.
        optional: Names of columns that are checked if they are there.

    Raises:
        TableError: A column is missing or a value is not usable. The message names the cell, the column, and the task,
            agent and turn of its first bad row.
    """
    if not isinstance(turns, pd.DataFrame):
        raise TableError(f"{cell}: give a table of turns (a pandas DataFrame), not {type(turns).__name__}")
    if not turns.columns.is_unique:
        twice = list(turns.columns[turns.columns.duplicated()])
        raise TableError(f"{cell}: columns {twice} occur twice in the table; drop one of each")
    for name in columns:
        if name not in turns.columns:
            meant = "" if name in SCHEMA else did_you_mean(name, turns.columns)
            meant += "Else " if meant else ""
            raise TableError(
                f"{cell}: column '{name}' is missing; {meant}it is added by `{ADDED_BY.get(name, 'your own code')}`. "
                f"The table has: {', '.join(map(str, turns.columns))}"
            )
    columns = [*columns, *(name for name in optional if name in turns.columns)]
    for name in dict.fromkeys(columns):
        values, known = turns[name], SCHEMA.get(name)
        bad = empty = values.isna().to_numpy()
        if known is not None and known.check is not None:
            bad = empty | ~_passing(values, known.check)
        if bad.any():
            row = int(bad.argmax())
            why, value = "empty" if empty[row] else known.error, plain(values.iloc[row])
            written = reprlib.repr(value) if isinstance(value, list) else repr(value)
            raise TableError(f"{cell}: column '{name}' is {why} ({written}) at {place(turns.iloc[row])}")


def _passing(values: pd.Series, check: Callable[[object], bool]) -> np.ndarray:
    """Return which values pass a check of their column; the type of most columns makes this quick."""
    kind = values.dtype.kind if isinstance(values.dtype, np.dtype) else ""
    if check in (_is_number, _is_number_or_list) and kind in tuple("iuf"):
        return np.isfinite(values.to_numpy())
    if check is _is_flag and kind == "b":
        return np.ones(len(values), bool)
    return values.map(check).to_numpy(bool)


def in_float64(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the table with rewards and narrow floats in float64: sums neither wrap around nor depend on the order."""
    rewards = [name for name in ("team_reward", "local_reward") if name in turns]
    wide = [name for name in rewards if _passing(turns[name], _is_number).all()]
    narrow = turns.select_dtypes(["float16", "float32"]).columns
    return turns.assign(**{name: turns[name].astype(float) for name in [*narrow, *wide]})


def ages(turns: pd.DataFrame, cell: str) -> pd.Series | None:
    """Return how many updates each row's weights lack, `step` - `policy_version`; `None` without these columns.

    Raises TableError if a row says that later weights than those of its step sampled it.
    """
    if not {"step", "policy_version"} <= set(turns.columns):
        return None
    age = turns["step"] - turns["policy_version"]
    if (age < 0).any():
        row = turns[age < 0].iloc[0]
        raise TableError(
            f"{cell}: policy_version {row['policy_version']} is above the step, at {place(row)}; it is the number of "
            "steps that had made the weights, so at most `step`"
        )
    return age


def keys(turns: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the columns `by` as values that identify a group; a list, or other mutable value, is written as text."""
    found = turns[list(by)]
    for name in [name for name in found if found[name].dtype == object]:
        try:
            found[name].map(hash)
        except TypeError:
            found = found.assign(**{name: found[name].map(lambda value: repr(plain(value)))})
    return found


def refuse_copies(turns: pd.DataFrame, cell: str) -> None:
    """Raise `TableError` if a model call occurs twice, in a table that tells its calls apart."""
    names = set(turns.columns)
    if not {"candidate", "agent"} <= names or not ("node" in names or {"episode", "turn"} <= names):
        return
    key = ["step"] * ("step" in names) + ["node", "candidate", "agent"]
    twice = pd.DataFrame({name: column(turns, name) for name in key}).duplicated()
    if twice.any():
        raise TableError(
            f"{cell}: ({', '.join(key)}) occurs twice, at {place(turns[twice].iloc[0])}; one row is one model call, "
            "and a padding or repeated row would count twice: drop it, or number the steps of tables that you join"
        )


def forbid(turns: pd.DataFrame, columns: Sequence[str], cell: str) -> None:
    """Raise `TableError` if one of `columns` exists already; no cell overwrites a column of an earlier cell."""
    present = [name for name in columns if name in turns.columns]
    if present:
        raise TableError(
            f"{cell}: column '{present[0]}' is already there and would be overwritten; "
            f"start from the table before `{cell}`, or drop {present}"
        )


def column(turns: pd.DataFrame, name: str) -> pd.Series:
    """Return a column, or its documented default if a hand-typed table leaves an optional one out.

    The default `depth` is the rank of (turn, agent name) within the episode: each call is an environment step of its
    own. The default `node` is one per (episode, depth). If agents acted together, `depth` or `node` must say so.
    Categories are returned as plain values.

    Args:
        turns: Table of turns.
        name: Name of the column.

    Returns:
        The column, or its default on the index of `turns`.

    Raises:
        TableError: The column is missing and has no default.
    """
    if name in turns.columns:
        values = turns[name]
        return values.astype(object) if isinstance(values.dtype, pd.CategoricalDtype) else values
    if name == "info":
        return pd.Series([{} for _ in range(len(turns))], index=turns.index, name=name, dtype=object)
    if name in DEFAULTS:
        return pd.Series(DEFAULTS[name], index=turns.index, name=name)
    if name == "depth":
        by = [column(turns, key) for key in ("turn", "agent") if key in turns.columns]
        in_order = pd.Series(range(len(turns)), index=turns.index)
        calls = turns.groupby(by).ngroup() if "turn" in turns.columns else in_order
        episode = column(turns, "episode")
        if "node" in turns.columns:
            calls = calls.groupby([episode, column(turns, "node")]).transform("min")
        return calls.groupby(episode).rank(method="dense").astype(int).sub(1).rename("depth")
    if name == "node":
        places = zip(column(turns, "episode"), column(turns, "depth"), strict=True)
        return pd.Series([f"{episode}/{depth}" for episode, depth in places], index=turns.index, name="node")
    if name == "action":
        return _actions(turns)
    require(turns, [name], "mas_lab")
    return turns[name]


def _actions(turns: pd.DataFrame) -> pd.Series:
    """Return `node.i`; `node.i-i` if several agents acted; `node.i-*` if the parents show that all combinations acted.

    The acting order of hand-typed rows is the order in which their agents first occur in the table, by index.
    """
    rows = pd.DataFrame({name: column(turns, name) for name in ("node", "candidate")})
    agents = column(turns, "agent") if "agent" in turns.columns else pd.Series("", index=turns.index)
    seat_of = {agent: seat for seat, agent in enumerate(dict.fromkeys(agents.sort_index()))}
    seats = agents.map(seat_of).groupby(rows["node"]).rank(method="dense").astype(int) - 1
    acting = seats.groupby(rows["node"]).transform("max") + 1
    crossed = any(len(set(choices_of(parent)[1])) > 1 for parent in column(turns, "parent"))
    named = [
        action_name(node, ["*" if crossed and other != seat else candidate for other in range(n)])
        for node, candidate, seat, n in zip(rows["node"], rows["candidate"], seats, acting, strict=True)
    ]
    return pd.Series(named, index=turns.index, name="action")


def action_name(node: str, choices: Iterable[Any]) -> str:
    """Return the name of a joint action, `node.i-j`: the candidate of each agent in acting order, `*` for every one."""
    return f"{node}.{'-'.join(map(str, choices))}"


def choices_of(action: str) -> tuple[str, list[str]]:
    """Return the node and the choices of an `action_name`."""
    node, _, choices = action.rpartition(".")
    return node, choices.split("-")


def completions_of(action: str) -> list[str]:
    """Return the completions of the joint action `node.i-j` by their names in a full cross: `node.i-*`, `node.*-j`."""
    node, choices = choices_of(action)
    return [
        action_name(node, [one if other == seat else "*" for other in range(len(choices))])
        for seat, one in enumerate(choices)
    ]


def has_several_steps(turns: pd.DataFrame) -> bool:
    """Return whether the table joins the rows of several training steps."""
    return "step" in turns.columns and turns["step"].nunique(dropna=False) > 1


def step_by_step(turns: pd.DataFrame, function: Callable[[pd.DataFrame], Any]) -> Any:
    """Return what `function` makes of each step's rows, a row for a row, joined in the order of `turns`."""
    order = np.argsort(pd.factorize(turns["step"], sort=True)[0], kind="stable")
    steps = turns.iloc[order].groupby("step", sort=False, dropna=False)
    return pd.concat([function(own) for _, own in steps]).iloc[np.argsort(order)]


def in_batch(turns: pd.DataFrame) -> pd.Series:
    """Return which rows belong to the batch: all except continuations that only value a candidate.

    A missing value counts as no continuation: a table without the column may have been joined to another.
    """
    marks = column(turns, "probe")
    return ~(marks.notna() & marks.astype(bool))


def selected(turns: pd.DataFrame) -> pd.Series:
    """Return which rows `update` trains on: rows of the batch that `select` marked, or all of them.

    A missing value counts as marked: the first steps of a fork may have had no `select`.
    """
    marks = column(turns, "selected")
    return in_batch(turns) & (marks.isna() | marks.astype(bool))


def require_advantage_per_token(rows: pd.DataFrame, cell: str) -> None:
    """Raise TableError, naming the place, if a list has not one advantage per token of its completion."""
    if is_numeric_dtype(rows["advantage"]):
        return
    for at, (advantage, ids) in enumerate(zip(rows["advantage"], rows["completion_ids"], strict=True)):
        if not isinstance(advantage, Real) and len(advantage) != len(ids):
            raise TableError(
                f"{cell}: the advantage of {place(rows.iloc[at])} is a list of {len(advantage)}, and its completion "
                f"has {len(ids)} tokens; give one number for the row, or one for each token, EOS included"
            )


def refuse_lone_groups(turns: pd.DataFrame, what: str) -> None:
    """Raise `TableError` if no group of the table has two rows to compare (K = 1)."""
    if len(turns) and (turns.groupby("group").size() < 2).all():
        raise TableError(f"{what}: every group has a single row (K = 1), so nothing is compared; ask for two or more")
