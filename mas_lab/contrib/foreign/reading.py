"""Read the rollouts that another trainer wrote into a table of turns, so that instruments and recipes work on it.

Nothing is invented: a column that the files lack is left out, or filled by a plain rule, and one warning says so with
what follows. Leaves out: runs of this kit (`load_run`), and what each trainer writes (`formats`).
"""

import re
import warnings
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import episode_return, own_return
from mas_lab.cells.grouping import group
from mas_lab.contrib.foreign.files import DATABASE, PACKED, load
from mas_lab.contrib.foreign.formats import FORMATS, LISTS, Format, Notes, numbers, refuse, text, typed
from mas_lab.runs.disk import TEXTS
from mas_lab.table import FLAG, NUMBER, NUMBERS, SCHEMA, TableError

WHOLE = ("step", "turn", "depth", "candidate")
COUNTED = (*WHOLE, *(name for name, column in SCHEMA.items() if column.check is NUMBER["check"]))
"""Columns of numbers."""
MAY_BE_EMPTY = ("parent", "removed", "completion")
"""Columns of texts that may be empty."""
MISSING = {
    "task": "no task ids: tasks and groups are by prompt text (an episode's first), which joins equal prompts of "
    "different tasks",
    "episode": "no episode ids: the episode is the row",
    "agent": "no agent names: one agent, named 'agent'",
    "valid": "valid is True, since the files do not say which outputs were understood",
    "local_reward": "no local_reward: lab.wrong_way is not available",
    "advantage": "no advantages of the trainer: lab.wrong_way takes those of recipes=",
    "completion": "no texts: RolloutViewer is not available",
    "logprobs": "no token ids with log-probabilities: SpikeInspector, lab.entropies and lab.update are not available",
}
"""Column that the files lack -> what follows, for the warning."""


def read(
    path: str | Path, format: str | None = None, columns: Mapping[str, str | Mapping[str, float]] | None = None
) -> pd.DataFrame:
    """Read the rollouts of another trainer as a table of turns. The files stay as they are.

    >>> turns = lab.read("my_trl_run")
    >>> lab.RewardInspector(turns).to_html("rewards.html")
    >>> lab.RECIPES["dr_mas"].advantages(turns)

    Args:
        path: A file, or the folder of a run. Of trackio: a project's file, or `project.db/NAME` for one of its runs.
        format: "trl" (TRL 1.16, `log_completions=True`, its files or trackio's), "verl" (verl 0.9.1,
            `trainer.rollout_data_dir`), "tinker" (tinker-cookbook 0.6.1, rollout summaries), "verifiers" (traces.jsonl
            of verifiers 0.4.0 and prime-rl 0.8.1), "slime" (slime 0.3.1, `--save-debug-rollout-data`) or "table" (any
            CSV, JSONL or parquet). `None`: it is recognised by the files' names and columns.
        columns: Our name -> their name, such as `{"team_reward": "score", "agent": "role"}`. For a number, names with
            weights add up: `{"team_reward": {"correct": 1.0, "format": 0.1}}`. `None`: the names of the format.

    Returns:
        A table with `task`, `episode`, `agent`, `turn`, `team_reward`, `valid`, `credit` and `group`, and those of
        `step`, `prompt`, `completion`, `local_reward`, `advantage`, token ids and log-probabilities that were written.
        Other columns of the files are kept. `credit` is the episode's return, and `group` is the task, if the files do
        not have them.

    Raises:
        TableError: The format is unknown, a line is cut off, a column is missing, or a value is not usable. The message
            names file, line and column.

    One warning says which format was recognised, what the files lack, and which instruments therefore do not work.
    """
    check_arguments(read, locals())
    columns, notes = dict(columns or {}), {}
    kind, files = _found(Path(path), format, columns)
    texts = [columns.get(name, name) for name in MAY_BE_EMPTY]
    records = pd.concat([load(file, texts=texts) for file in files])
    rows = kind.rows(records, notes) if len(records) else records
    if rows.empty:
        raise TableError(f"read: {files[0]} has no rows{''.join(f'; {note}' for note in notes.values())}")
    turns = _renamed(rows, kind, columns)
    notes = {name: note for name, note in notes.items() if name not in columns}
    turns = _compared(_completed(turns, notes), notes)
    taken = "" if format else f"format '{kind.name}', {len(files)} file{'s'[: len(files) - 1]}, {len(turns)} rows"
    if said := "; ".join(filter(None, [taken, *notes.values()])):
        warnings.warn(f"lab.read: {said}", stacklevel=2)
    return turns[sorted(turns, key=lambda name: [*SCHEMA, name].index(name))].infer_objects()


# Files


def _found(path: Path, format: str | None, columns: Mapping[str, Any]) -> tuple[Format, list[Path]]:
    """Return the format and its files, in the order of the numbers in their names."""
    if not (path.parent if path.parent.suffix == DATABASE else path).exists():
        raise TableError(f"read: there is no file or folder {path}")
    if format is not None and format not in FORMATS:
        raise TableError(f"read: format={format!r} is unknown; known are {', '.join(FORMATS)}")
    seen: dict[Path, tuple[list[str], list[Path]]] = {}
    for kind in [FORMATS[format]] if format else FORMATS.values():
        files = _files(path, kind) if path.is_dir() else [path]
        if files and files[0] not in seen:
            seen[files[0]] = list(load(files[0], only_first=True)), files
        if files and set(kind.keys.split()) <= set(seen[files[0]][0]):
            return kind, files
    if columns and seen and format in (None, "table"):
        return FORMATS["table"], next(iter(seen.values()))[1]
    looked = [f"{file} has the columns {', '.join(map(repr, names))}" for file, (names, _) in seen.items() if names]
    looked += [f"without {name!r}" for name in kind.keys.split() if format and looked and name not in seen[files[0]][0]]
    known = "; ".join(f"{kind.name} ({', '.join(kind.files.split())})" for kind in FORMATS.values())
    raise TableError(
        f"read: {path} has {'another' if format else 'no known'} format: "
        f"{', '.join(looked) or 'no file has a known name, or all are empty'}. Known are {known}. For another one, "
        "name its columns: columns={'team_reward': ..., 'task': ..., 'episode': ..., 'agent': ..., 'prompt': ..., ...}"
    )


def _files(folder: Path, kind: Format) -> list[Path]:
    """Return the files of a format, of the first pattern that has some; each may be packed, all in one way."""
    for pattern, packed in product(kind.files.split(), ("", *PACKED)):
        found = [file for file in folder.glob(pattern + packed) if kind.skipped not in file.name]
        if files := [file for file in found if file.stat().st_size]:
            return sorted(files, key=lambda file: ([int(one) for one in re.findall(r"\d+", str(file))], file))
    return []


# Columns


def _renamed(records: pd.DataFrame, kind: Format, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table under our names, with checked values; other columns are kept behind."""
    named = [name for name in columns.values() if isinstance(name, str)]
    usable = {name for name in records if name in kind.keys.split() or records[name].notna().any()}.difference(named)
    there = {ours: [name for name in theirs.split() if name in usable] for ours, theirs in kind.names.items()}
    found = {ours: names[0] for ours, names in there.items() if names} | dict(columns)
    turns = {}
    for ours, theirs in found.items():
        if ours not in SCHEMA:
            raise TableError(f"read: columns={{'{ours}': ...}} is no column of ours; lab.schema() lists them")
        weights = theirs if isinstance(theirs, Mapping) else {theirs: 1.0}
        missing = [name for name in weights if name not in records]
        if missing or not weights:
            raise TableError(
                f"read: {records.index[0]}: {f'column {missing[0]!r}' if missing else 'a column'} for '{ours}' is "
                f"missing; the columns are {', '.join(map(repr, records))}. Name another one: columns={{'{ours}': ...}}"
            )
        if isinstance(theirs, Mapping):
            turns[ours] = sum(weight * numbers(records, name, ours) for name, weight in weights.items())
        else:
            turns[ours] = _checked(records, ours, theirs)
    rest = records.drop(columns={name for name in found.values() if isinstance(name, str)})
    rest = rest.rename(columns=lambda name: f"{kind.name}.{name}" if name in SCHEMA else name)
    return pd.concat([pd.DataFrame(turns, index=records.index), rest], axis=1)


def _checked(records: pd.DataFrame, ours: str, theirs: str) -> pd.Series:
    values, check = records[theirs], SCHEMA[ours].check
    if ours in COUNTED:
        values = numbers(records, theirs, ours)
        whole = (values % 1 == 0) & (values.abs() < 2**53)
        refuse(~whole & (ours in WHOLE), records, theirs, ours, "not a whole number")
        return values.astype(int) if ours in WHOLE else values
    if ours in LISTS:
        refuse(values.map(np.isscalar), records, theirs, ours, "not a list, which JSONL and parquet can hold")
    if check in (FLAG["check"], NUMBERS["check"]):
        values = values.map(typed)
    bad = values.isna() | (~values.map(check).astype(bool) if check else False)
    refuse(bad, records, theirs, ours, SCHEMA[ours].error or "empty")
    if ours in ("prompt", "completion"):
        return values.map(text)
    return values.astype(str) if ours in TEXTS else values


def _completed(turns: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Add the columns that every instrument needs, each by a rule that `notes` says."""
    for what, names in {"reward": ("team_reward", "local_reward"), "tasks and no prompts": ("task", "prompt")}.items():
        if turns.columns.isin(names).sum() == 0:
            raise TableError(
                f"read: {turns.index[0]} has no {what}; the columns are {', '.join(map(repr, turns))}. Name one: "
                f"columns={{'{names[0]}': ...}}"
            )
    turns = turns.reset_index(drop=True)
    by_row, order = "episode" not in turns, [name for name in ("depth", "turn") if name in turns][:1]
    for name in [name for name in MISSING if name not in turns]:
        notes.setdefault(name, MISSING[name])
    if by_row:
        turns["episode"] = [f"row {number}" for number in range(len(turns))]
    episode = [name for name in ("step", "episode") if name in turns]
    for name, value in {"agent": "agent", "valid": True}.items():
        turns[name] = turns.get(name, value)
    in_order = turns.sort_values(order, kind="stable") if order else turns
    if "task" not in turns:
        prompts = in_order.groupby(episode)["prompt"].transform("first").sort_index()
        turns["task"] = [f"prompt {number}" for number in pd.factorize(prompts)[0]]
    if "turn" not in turns:
        turns["turn"] = in_order.groupby([*episode, "agent"]).cumcount()
        if not (by_row or order):
            notes["turn"] = "no turns: their order is that of the rows"
    twice = turns.duplicated([*episode, "turn", "agent"]).any()  # without depth, the credit refuses them
    if not (by_row or twice or turns.columns.isin(["depth", "node", "candidate"]).any()):
        turns["depth"] = in_order.groupby(episode).cumcount()
    return turns


def _compared(turns: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Add `credit` and `group`."""
    credit = episode_return()
    if "team_reward" not in turns:
        turns["team_reward"], credit = 0.0, own_return()
        own = "the credit is lab.own_return(), for recipes too: recipe.replace(credit=lab.own_return())"
        notes["team_reward"] = f"no team reward: it is 0, and {own}"
    of_episode = turns.groupby([name for name in ("step", "episode") if name in turns])["team_reward"]
    several = of_episode.transform("size") > 1
    if turns["team_reward"][several].any() and (of_episode.transform("nunique")[several] == 1).all():
        notes["repeated"] = "every row of an episode has the same team_reward, and the credit adds them up"
    bare = turns.drop(columns=["credit", "group"], errors="ignore")
    grouped = group(bare, "task", credit)
    return grouped.assign(**{name: turns[name] for name in ("credit", "group") if name in turns})
