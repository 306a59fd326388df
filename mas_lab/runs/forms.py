"""Check the files of a run that somebody else made: the form of its JSON, and the content of its tables.

Leaves out: their size (`foreign`), and the meaning of values (`mas_lab.table`).
"""

from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
from pydantic import BaseModel, Field, RootModel, ValidationError

from mas_lab.runs.disk import RunError, to_pandas
from mas_lab.table import SCHEMA, require, require_advantage_per_token

if TYPE_CHECKING:
    import pyarrow

DEPTH = 100
Int = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class Form(BaseModel, strict=True):
    """Keys that an object must have, and those that it may have; others are not checked."""


class Named(Form):
    name: str


class Forked(Form):
    of: str = Field(alias="from")
    step: Int
    changed: list[str]


class Continued(Form):
    step: Int


class Config(Form):
    """The content of run.json."""

    format: Int
    env: dict[str, Any]
    recipe: Named
    seed: Int
    versions: dict[str, str] = {}
    settings: dict[str, Any] = {}
    forked: Forked = None
    continued: list[Continued] = []


class Tokens(RootModel[dict[str, dict[str, str]]], strict=True):
    """Policy -> token id -> text."""


class Rule(Form):
    warmup: Int
    window: Int
    threshold: float
    floor: float


class Spike(Form):
    call: Int
    policy: str
    agent: str
    agents: list[str]
    norm: float
    usual: float
    score: float
    norms: dict[str, float]
    rows: dict[Digits, float]
    tokens: dict[Digits, list[float]]
    without: dict[str, float]
    baselines: dict[str, Any]
    exact: bool = True
    judged: dict[str, dict[str, float]] = {}


class Watched(Form):
    """The part of a `SpikeWatch`'s state that is shown."""

    rule: Rule
    spikes: list[Spike]


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


def first_problem(error: ValidationError) -> str:
    """Return the first error of pydantic in words, with its place in the data."""
    first = error.errors()[0]
    place = ".".join(f"{one!s:.100}" for one in first["loc"])
    return f"{place}: {first['msg']} (got {first['input']!r:.100})"


def require_form(data: Any, form: type[BaseModel], path: Any) -> None:
    """Raise RunError, naming the file and the field, if the data does not match the form."""
    try:
        form.model_validate(data)
        wrong = f"it nests deeper than {DEPTH} levels" if _depth(data) > DEPTH else ""
    except ValidationError as error:
        wrong = first_problem(error)
    if wrong:
        raise RunError(f"{path}: {wrong}; the file was edited, or written by something else")


def _depth(data: Any) -> int:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return 1 + max(map(_depth, inner), default=0)


def checked_table(table: "pyarrow.Table", name: str, path: Any, steps: range | None = None) -> pd.DataFrame:
    """Return a table for pandas; raise RunError or TableError, naming file and column, if training did not write it.

    `name` is its folder, and `steps` are those that it must hold; columns that no instrument reads are not checked.
    """
    from pyarrow import compute

    table.validate(full=True)
    if missing := [column for column in HELD.get(name, ()) if column not in table.column_names]:
        raise RunError(f"{path}: column {missing[0]!r} is missing; it was not written by train()")
    for column in table.column_names:
        if asked := _not_held(column, table[column].combine_chunks()):
            raise RunError(f"{path}: column {column!r} does not hold {asked} in every row")
    if steps is not None and (found := compute.unique(table["step"]).sort().to_pylist()) != list(steps):
        raise RunError(f"{path}: column 'step' holds {found!r:.100}, not {steps.start} to {steps[-1]}")
    frame = to_pandas(table)
    if name == "turns":
        said = compute.list_value_length(table["completion_ids"])
        if not compute.list_value_length(table["logprobs"]).equals(said):
            raise RunError(f"{path}: a row has not one of logprobs for each of completion_ids")
        require(frame, [column for column in frame.columns if column in SCHEMA and SCHEMA[column].check], str(path))
        require_advantage_per_token(frame, str(path))
    return frame


def _not_held(column: str, values: "pyarrow.Array") -> str:
    """Return in words what a column should hold and does not; empty if it is as training writes it."""
    from pyarrow import types

    kind, full = values.type, not values.null_count
    if column in LISTS:
        flat = values.flatten() if types.is_list(kind) else values
        right = _are_counts(flat) if column in IDS else _are_numbers(flat) and not flat.null_count
        return "" if right and full and types.is_list(kind) else "a list of numbers"
    if column in TEXTS:
        return "" if full and (types.is_string(kind) or types.is_large_string(kind)) else "text"
    if column in COUNTS:
        return "" if _are_counts(values) else "counts, from 0,"
    if column in NUMBERS:
        return "" if _are_numbers(values) or types.is_boolean(kind) else "numbers"
    return ""


def _are_numbers(values: "pyarrow.Array") -> bool:
    from pyarrow import types

    return types.is_integer(values.type) or types.is_floating(values.type)


def _are_counts(values: "pyarrow.Array") -> bool:
    from pyarrow import compute, types

    return types.is_integer(values.type) and not values.null_count and (compute.min(values).as_py() or 0) >= 0
