"""Check the files of a run that somebody else made: the form of its JSON, and the content of its tables.

Leaves out: their size (`foreign`), and the meaning of values (`mas_lab.table`).
"""

import re
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.runs.disk import RunError, to_pandas
from mas_lab.table import SCHEMA, require, require_advantage_per_token

if TYPE_CHECKING:
    import pyarrow

DEPTH = 100
NUMBER, DIGITS = (int, float), re.compile(r"[0-9]{1,9}")
FORKED = {"from": str, "step": int, "changed": [str]}
CONTINUED = {"step": int, "ranks?": int, "device?": str, "code?": str, "versions?": {str: str}}
CONFIG = {
    **{"format": int, "versions?": {str: str}},
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


def checked_table(table: "pyarrow.Table", name: str, path: Any, steps: range | None = None) -> pd.DataFrame:
    """Return a table for pandas; raise RunError or TableError, naming file and column, if training did not write it.

    `name` is its folder, and `steps` are those that it must hold; columns that no instrument reads are not checked.
    """
    from pyarrow import compute, types

    table.validate(full=True)
    if missing := [column for column in HELD.get(name, ()) if column not in table.column_names]:
        raise RunError(f"{path}: column {missing[0]!r} is missing; it was not written by train()")
    for column in table.column_names:
        held, kind = table[column], table.schema.field(column).type
        is_number = types.is_integer(kind) or types.is_floating(kind)
        if column in TEXTS and (held.null_count or not (types.is_string(kind) or types.is_large_string(kind))):
            raise RunError(f"{path}: column {column!r} does not hold text in every row")
        if column in COUNTS and (held.null_count or not types.is_integer(kind) or _lowest(held) < 0):
            raise RunError(f"{path}: column {column!r} does not hold counts, from 0")
        if column in NUMBERS and not (is_number or types.is_boolean(kind)):
            raise RunError(f"{path}: column {column!r} does not hold numbers")
        if column in LISTS and not _lists_numbers(held, column in IDS):
            raise RunError(f"{path}: column {column!r} does not hold a list of numbers in every row")
    if steps is not None and (found := compute.unique(table["step"]).sort().to_pylist()) != list(steps):
        raise RunError(f"{path}: column 'step' holds {found!r:.100}, not {steps.start} to {steps[-1]}")
    frame = to_pandas(table)
    if name == "turns":
        said = compute.list_value_length(table["completion_ids"])
        if not compute.list_value_length(table["logprobs"]).equals(said):
            raise RunError(f"{path}: a row has not one of logprobs for each of completion_ids")
        require(frame, [column for column in frame.columns if column in SCHEMA and SCHEMA[column].checks], str(path))
        require_advantage_per_token(frame, str(path))
    return frame


def _lowest(held: "pyarrow.ChunkedArray") -> int:
    from pyarrow import compute

    return compute.min(held).as_py() or 0


def _lists_numbers(held: "pyarrow.ChunkedArray", whole: bool) -> bool:
    from pyarrow import types

    if held.null_count or not types.is_list(held.type) or (values := held.combine_chunks().flatten()).null_count:
        return False
    is_whole = types.is_integer(values.type)
    return is_whole and _lowest(values) >= 0 if whole else is_whole or types.is_floating(values.type)


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
