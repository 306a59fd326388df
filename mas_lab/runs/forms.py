"""Check the files of a run that somebody else made: the form of its JSON, and the content of its tables.

Leaves out: their size (`zips`), and the meaning of values (`mas_lab.table`).
"""

import re
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_bool_dtype, is_integer_dtype, is_numeric_dtype

from mas_lab.runs.disk import RunError
from mas_lab.table import SCHEMA, plain, require, require_advantage_per_token

DEPTH = 100
NUMBER, DIGITS = (int, float), re.compile(r"[0-9]{1,9}")
VERSIONS = {"format?": int, "versions?": {str: str}}
"""The part of run.json that names the version that wrote it. The rest depends on this version."""
FORKED = {"from": str, "step": int, "changed": [str]}
CONTINUED = {"step": int, "ranks?": int, "device?": str, "code?": str, "versions?": {str: str}}
CONFIG = {
    **{"env": {"name?": str}, "recipe": {"name": str}, "seed": int, "settings?": {str: None}},
    **{"forked?": FORKED, "continued?": [CONTINUED]},
}
TOKENS = {str: {str: str}}
SPIKE = {
    **{"call": int, "policy": str, "agent": str, "agents": [str], "norm": NUMBER, "usual": NUMBER, "score": NUMBER},
    **{"norms": {str: NUMBER}, "rows": {DIGITS: NUMBER}, "tokens": {DIGITS: [NUMBER]}, "exact?": bool},
    **{"without": {str: NUMBER}, "baselines": {str: None}, "judged?": {str: {str: NUMBER}}},
}
WATCHED = {
    "rule": {"warmup": int, "window": int, "threshold": NUMBER, "floor": NUMBER},
    "spikes": [SPIKE],
}
"""The part of a `SpikeWatch`'s state that is shown."""
TEXTS = {"task", "episode", "node", "parent", "agent", "policy", "action", "prompt", "completion", "finish", "group"}
COUNTS = {"step", "turn", "depth", "candidate", "optimizer_step"}
IDS, LISTS = {"prompt_ids", "completion_ids"}, {"prompt_ids", "completion_ids", "logprobs", "entropies"}
NUMBERS = {"grad_norm", "policy_norm", "policy_norm_clipped", "return", "success"}
HELD = {
    "turns": ["step", "task", "episode", "agent", "turn", "policy", "prompt", "completion", "prompt_ids",
              "completion_ids", "logprobs", "valid", "team_reward", "success", "credit", "group", "advantage"],
    "stats": ["step", "optimizer_step", "policy", "agent", "grad_norm", "policy_norm", "skipped"],
    "scores": ["step", "task", "success", "return"],
}  # fmt: skip
"""Columns that every version wrote, by the folder of the table."""


def schema_error(data: Any, form: Any, where: str = "") -> str:
    """Return in words where plain data does not match a form; empty if it matches.

    A form is a type, a pattern, `None` for anything, [form] for a list, or {str or pattern: form} for any keys. The
    form {"key": form, "maybe?": form} needs "key", checks "maybe" if it is there, and allows other keys.
    """
    if isinstance(form, list):
        parts = [(f"{where}[{place}]", one, form[0]) for place, one in enumerate(data)] if _is(data, list) else None
    elif isinstance(form, dict) and not all(isinstance(key, str) for key in form):
        [(key_form, inner)] = form.items()
        parts = [(_in(where, key), one, inner) for key, one in data.items()] if _is(data, dict) else None
        wrong = [key for key in data if not _is(key, key_form)] if parts else []
        if wrong:
            return f"{where or 'it'} has the key {wrong[0]!r:.100}, which does not belong there"
    elif isinstance(form, dict):
        if _is(data, dict) and (missing := [key for key in form if not key.endswith("?") and key not in data]):
            return f"{_in(where, missing[0])} is missing"
        asked = [(key.removesuffix("?"), inner) for key, inner in form.items()]
        parts = (
            [(_in(where, key), data[key], inner) for key, inner in asked if key in data] if _is(data, dict) else None
        )
    else:
        parts = [] if form is None or _is(data, form) else None
    if parts is None:
        return f"{where or 'it'} is {data!r:.100}, not {_named(form)}"
    return next(filter(None, (schema_error(one, inner, place) for place, one, inner in parts)), "")


def require_form(data: Any, form: Any, path: Any) -> Any:
    """Return the data, or raise RunError naming the file and the field that does not match the form."""
    if wrong := f"it nests deeper than {DEPTH} levels" if _is_deep(data) else schema_error(data, form):
        raise RunError(f"{path}: {wrong}; the file was edited, or written by something else")
    return data


def _is_deep(data: Any) -> bool:
    level = [data]
    for _ in range(DEPTH):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        level = [part for parts in inner for part in parts]
    return bool(level)


def check_table(table: pd.DataFrame, name: str, path: str) -> None:
    """Raise RunError or TableError, naming file, column and row, unless a table holds what training writes.

    `name` is its folder; what no instrument reads is not checked. Columns of `LISTS` may hold arrays.
    """
    if name not in HELD:
        return
    if missing := [column for column in HELD[name] if column not in table.columns]:
        raise RunError(f"{path}: column {missing[0]!r} is missing; it was not written by train()")
    for column in map(str, table.columns):
        values = table[column]
        if column in TEXTS and not _are_texts(values):
            _require_each(values, lambda value: isinstance(value, str), "text", path)
        elif column in COUNTS and not _are_counts(values):
            raise RunError(f"{path}: column {column!r} does not hold counts, from 0")
        elif column in NUMBERS and not (is_numeric_dtype(values) or is_bool_dtype(values)):
            raise RunError(f"{path}: column {column!r} does not hold numbers")
        elif column in LISTS and not _are_arrays(values, "i" if column in IDS else "if"):
            kinds = int if column in IDS else NUMBER
            _require_each(values, lambda value, kinds=kinds: _lists_only(value, kinds), "a list of numbers", path)
    if name == "turns":
        _require_turns(table, path)


def _require_turns(table: pd.DataFrame, path: str) -> None:
    """Check the rest of the schema; columns with texts and lists only were checked cell by cell."""
    seen = {name for name in TEXTS | LISTS if not SCHEMA[name].checks}
    require(table, [name for name in table.columns if name in SCHEMA and name not in seen], path)
    require_advantage_per_token(table, path)
    for row, (logprobs, ids) in enumerate(zip(table["logprobs"], table["completion_ids"], strict=True)):
        if len(logprobs) != len(ids):
            raise RunError(f"{path}: row {row} has not one of logprobs for each of completion_ids")


def _are_texts(values: pd.Series) -> bool:
    """Return whether all values are texts; a string type needs only a check of its bytes (ArrowInvalid)."""
    if not isinstance(values.dtype, pd.StringDtype):
        return infer_dtype(values, skipna=False) == "string"
    import pyarrow

    held = pyarrow.array(values)
    held.validate(full=True)
    return held.null_count == 0


def _are_counts(values: pd.Series) -> bool:
    if not isinstance(values.dtype, np.dtype):
        return is_integer_dtype(values) and values.between(0, 2**53).all()
    held = values.to_numpy()
    return held.dtype.kind in "iu" and bool(((held >= 0) & (held <= 2**53)).all())


def _are_arrays(values: pd.Series, kinds: str) -> bool:
    """Return whether each value is an array of these NumPy kinds; the lowest 64-bit number is left to `_is`."""
    held = values.tolist()
    if not all(isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind in kinds for one in held):
        return False
    return not held or bool(np.concatenate(held).min(initial=0) > -(2**63))


def _require_each(values: pd.Series, is_one: Any, what: str, path: str) -> None:
    for row, value in enumerate(values):
        if not is_one(value):
            raise RunError(f"{path}: column {values.name!r} holds {plain(value)!r:.100} in row {row}, not {what}")


def _lists_only(value: Any, kinds: Any) -> bool:
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return isinstance(value, list) and all(_is(one, kinds) for one in value)


def _is(value: Any, form: Any) -> bool:
    """Return whether a value is of a simple form; `True` is no number, and an integer must fit into 64 bits."""
    if isinstance(form, re.Pattern):
        return isinstance(value, str) and bool(form.fullmatch(value))
    if isinstance(value, bool):
        return form is bool
    return isinstance(value, form) and not (isinstance(value, int) and abs(value) >= 2**63)


def _in(where: str, key: Any) -> str:
    return f"{where}.{key!s:.100}" if where else f"{key!s:.100}"


def _named(form: Any) -> str:
    named = {str: "text", int: "a whole number", NUMBER: "a number", bool: "true or false", DIGITS: "digits"}
    if isinstance(form, list | dict):
        return "a list" if isinstance(form, list) else "an object"
    return named.get(form) or f"of the form {form.pattern}"
