"""Check the files of a run that somebody else made: the form of its JSON, and the content of its tables.

Leaves out: their size (`child`), and the meaning of values (`mas_lab.table`).
"""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
from pydantic import BaseModel, Field, RootModel, ValidationError

from mas_lab.runs.disk import TEXTS, RunError, to_pandas
from mas_lab.table import SCHEMA, require, require_advantage_per_token

if TYPE_CHECKING:
    import pyarrow

Int = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Digits = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]


class Form(BaseModel, strict=True):
    """Keys that an object must have, and those that it may have; others are not checked."""


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
    recipe: dict[str, Any]
    seed: Int
    versions: dict[str, str] = {}
    settings: dict[str, Any] = {}
    forked: Forked = None
    continued: list[Continued] = []


class Tokens(RootModel[dict[str, dict[str, str]]], strict=True):
    """Policy -> token id -> text."""


class Cosines(Form):
    """A row of the table of `lab.uphill`."""

    agent: str
    recipe: str
    cos_team: float | None
    cos_own: float | None
    low: float | None
    high: float | None
    norm: float | None
    rows: float | None
    verdict: str


class Uphill(Form):
    """The table of `lab.uphill`."""

    rows: list[Cosines]


class Rule(Form):
    warmup: Int
    window: Int
    threshold: float


class Spike(Form):
    call: Int
    policy: str
    agent: str
    agents: list[str]
    norm: float
    usual: float | None
    score: float | None
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
    tallest: Spike | None = None


KINDS = {
    "text": TEXTS,
    "counts": {"step", "turn", "depth", "candidate", "optimizer_step"},
    "numbers": {"grad_norm", "policy_norm", "policy_norm_clipped", "return", "success"},
    "lists of counts": {"prompt_ids", "completion_ids"},
    "lists of numbers": {"logprobs", "entropies"},
}  # fmt: skip
"""What columns hold."""
KIND_OF = {column: kind for kind, columns in KINDS.items() for column in columns}
REQUIRED = {
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
    return f"{place}: {first['msg']} (got {first['input']!r:.100})".removeprefix(": ")


def require_form(data: Any, form: type[BaseModel], path: Any) -> None:
    """Raise RunError, naming the file and the field, if the data does not match the form."""
    try:
        form.model_validate(copy.deepcopy(data))  # the copy ends where it is nested too deeply; pydantic passes over it
    except RecursionError:
        raise RunError(f"{path}: it nests deeper than anything that training writes") from None
    except ValidationError as error:
        raise RunError(f"{path}: {first_problem(error)}; the file was edited, or written by something else") from None


def checked_table(table: "pyarrow.Table", name: str, path: Any, steps: Sequence[int]) -> pd.DataFrame:
    """Return a table for pandas; raise RunError or TableError, naming file and column, if training did not write it.

    `name` is its folder, and `steps` are those that it must hold, in this order. Columns that no instrument reads are
    not checked.
    """
    from pyarrow import compute

    table.validate(full=True)
    if missing := [column for column in REQUIRED.get(name, ()) if column not in table.column_names]:
        raise RunError(f"{path}: column {missing[0]!r} is missing; it was not written by train()")
    for column in KIND_OF.keys() & set(table.column_names):
        if not _holds(KIND_OF[column], table[column].combine_chunks()):
            raise RunError(f"{path}: column {column!r} does not hold {KIND_OF[column]} in every row")
    if (found := compute.unique(table["step"]).to_pylist()) != steps:
        raise RunError(f"{path}: column 'step' holds {found!r:.100}, not {steps[0]} to {steps[-1]}")
    frame = to_pandas(table)
    if name == "turns":
        lengths = compute.list_value_length(table["completion_ids"])
        if not compute.list_value_length(table["logprobs"]).equals(lengths):
            raise RunError(f"{path}: a row has not one of logprobs for each of completion_ids")
        require(frame, [column for column in frame.columns if column in SCHEMA and SCHEMA[column].check], str(path))
        require_advantage_per_token(frame, str(path))
    return frame


def _holds(kind: str, values: "pyarrow.Array") -> bool:
    """Return whether all values are of one of `KINDS`; numbers alone may be missing."""
    from pyarrow import compute, types

    if kind.startswith("lists of "):
        right = types.is_list(values.type) and not values.null_count and not values.flatten().null_count
        return right and _holds(kind.removeprefix("lists of "), values.flatten())
    if kind == "text":
        return not values.null_count and (types.is_string(values.type) or types.is_large_string(values.type))
    if kind == "numbers":
        return any(of(values.type) for of in (types.is_integer, types.is_floating, types.is_boolean))
    return types.is_integer(values.type) and not values.null_count and (compute.min(values).as_py() or 0) >= 0
