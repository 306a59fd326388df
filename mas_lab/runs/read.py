"""Read the rollouts of another trainer into a table of turns, so that instruments and recipes work on it.

No code in a file is executed. Nothing is invented: a column that the files lack is left out, or filled by a plain rule,
and one warning says so with what follows. Leaves out: runs of this kit (`load_run`).
"""

import json
import re
import reprlib
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import episode_return, own_return
from mas_lab.cells.grouping import group
from mas_lab.runs.disk import TEXTS
from mas_lab.table import FLAG, NUMBER, NUMBERS, SCHEMA, TableError, plain

LISTS = ("prompt_ids", "completion_ids", "logprobs")
"""Columns of a list per row."""
WHOLE = ("step", "turn", "depth", "candidate")
"""Columns of whole numbers."""
MAY_BE_EMPTY = ("parent", "removed", "completion")
"""Columns of texts that may be empty."""
CALL = ("step", "episode", "agent", "turn", "depth", "candidate")
"""Columns that say which call of an episode a row is."""
MISSING = {
    "task": "no task ids: tasks and groups are by prompt text (an episode's first), so equal prompts are one task",
    "episode": "no episode ids: the episode is the row",
    "agent": "no agent names: one agent, named 'agent'",
    "valid": "valid is True, since the files do not say which outputs were understood",
    "local_reward": "no local_reward: lab.wrong_way is not available",
    "advantage": "no advantages of the trainer: lab.wrong_way takes those of recipes=",
    "completion": "no texts: RolloutViewer is not available",
    "logprobs": "no token ids with log-probabilities: SpikeInspector, lab.entropies and lab.update are not available",
}
"""Column that the files lack -> what follows, for the warning."""
TRL = ("step", "prompt", "completion", "advantage")
VERL = {
    "prompt": "input", "completion": "output", "team_reward": "score", "step": "step", "task": "uid_task uid",
    "episode": "uid_session traj_uid trajectory_id", "depth": "uid_output", "turn": "turn step_id",
    "agent": "agent_id agent_name agent role", "policy": "wg_id", "valid": "is_action_valid",
}  # fmt: skip
FILES = {"trl": "completions/completions_*.parquet completions_*.parquet", "verl": "[0-9]*.jsonl",
         "table": "*.csv *.jsonl *.parquet"}  # fmt: skip
"""Format -> patterns of its files below a folder, of which the first that matches counts; in the order of trial."""
KEYS = {"trl": TRL, "verl": ("input", "output", "score", "step"), "table": ("team_reward",)}
"""Format -> columns by which its files are recognised."""
NAMES = {"trl": dict(zip(TRL, TRL, strict=True)), "verl": VERL, "table": {name: name for name in SCHEMA}}
"""Format -> our name -> the trainer's names, of which the first that is there counts."""


def read(
    path: str | Path, format: str | None = None, columns: Mapping[str, str | Mapping[str, float]] | None = None
) -> pd.DataFrame:
    """Read the rollouts of another trainer as a table of turns. The files stay as they are.

    >>> turns = lab.read("my_trl_run")
    >>> lab.RewardInspector(turns).to_html("rewards.html")
    >>> lab.RECIPES["dr_mas"].advantages(turns)

    Args:
        path: A file, or the folder of a run.
        format: "trl" (TRL 1.16, `log_completions=True`), "verl" (verl 0.9.1, `trainer.rollout_data_dir`) or "table"
            (any CSV, JSONL or parquet). `None`: it is recognised by the files' names and columns.
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
    records = pd.concat([_load(file, [columns.get(name, name) for name in MAY_BE_EMPTY]) for file in files])
    if records.empty:
        raise TableError(f"read: {files[0]} has no rows")
    turns = _of_trl(records, columns, notes) if kind == "trl" else _renamed(records, kind, columns)
    turns = _apart(turns, notes)
    turns = _counted_once(turns, columns, notes) if kind == "verl" else turns
    turns = _compared(_completed(turns, notes), notes)
    notes = {name: note for name, note in notes.items() if name not in columns}
    taken = "" if format else f"format '{kind}', {len(files)} file{'s'[: len(files) - 1]}, {len(turns)} rows"
    if said := "; ".join(filter(None, [taken, *notes.values()])):
        warnings.warn(f"lab.read: {said}", stacklevel=2)
    return turns[sorted(turns, key=lambda name: [*SCHEMA, name].index(name))].infer_objects()


# Files


def _found(path: Path, format: str | None, columns: Mapping[str, Any]) -> tuple[str, list[Path]]:
    """Return the format and its files."""
    if not path.exists():
        raise TableError(f"read: there is no file or folder {path}")
    if format is not None and format not in FILES:
        raise TableError(f"read: format={format!r} is unknown; known are {', '.join(FILES)}")
    seen: dict[Path, list[str]] = {}
    for kind in [format] if format else FILES:
        files = _files(path, FILES[kind]) if path.is_dir() else [path]
        if files and files[0] not in seen:
            seen[files[0]] = list(_load(files[0]))
        names = {*seen[files[0]]} if files else set()
        # A table of turns may have the columns of TRL as well; TRL's files are known by their names.
        fits = not {"episode", "team_reward"} & names or any(files[0].match(f"{one}*") for one in FILES[kind].split())
        if ({*KEYS[kind]} <= names and (format or fits)) or (kind == "table" and names and columns):
            return kind, files
    lacks = "".join(f", without {name!r}" for name in KEYS[kind] if format and name not in names)
    looked = [f"{file} has the columns {', '.join(map(repr, names))}{lacks}" for file, names in seen.items() if names]
    raise TableError(
        f"read: {path} has {'another' if format else 'no known'} format: "
        f"{', '.join(looked) or 'no file has a known name, or all are empty'}. Known are "
        f"{'; '.join(f'{kind} ({files})' for kind, files in FILES.items())}. For another one, "
        "name its columns: columns={'team_reward': ..., 'task': ..., 'episode': ..., 'agent': ..., 'prompt': ..., ...}"
    )


def _files(folder: Path, patterns: str) -> list[Path]:
    """Return the files of the first pattern that has some, in the order of the numbers in their names."""
    for pattern in patterns.split():
        if files := [file for file in folder.glob(pattern) if file.stat().st_size]:
            return sorted(files, key=lambda file: ([int(one) for one in re.findall(r"\d+", file.name)], file))
    return []


def _load(path: Path, texts: Collection[Any] = ()) -> pd.DataFrame:
    """Return the records of a file as Python values, those of a CSV file as texts; each is labelled `FILE, line N`.

    Lines and rows count from 1. An empty cell of a CSV file is an empty text in the columns `texts`, else missing.
    """
    if path.suffix not in (".jsonl", ".csv", ".parquet"):
        raise TableError(f"read: {path} ends in none of .jsonl, .csv, .parquet; convert it to one of them")
    if path.suffix == ".jsonl":
        records = dict(_objects(path))
        return pd.DataFrame(list(records.values()), index=list(records), dtype=object)
    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:  # a completion may be "None" or "1.50", and a task "007"
            table = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""], index_col=False)
            table = table.fillna({name: "" for name in table if name in texts})
        return table.astype(object).set_axis([f"{path}, row {number}" for number in range(1, len(table) + 1)])
    except Exception as error:  # a damaged file may raise anything
        raise TableError(f"read: {path} is not a readable {path.suffix[1:]} file: {error}") from error


def _objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the value of each line that is not blank."""
    place = f"{path}, line 1"
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                place = f"{path}, line {number}"
                if line.strip():
                    record = {**json.loads(line)}  # a TypeError if it is no object
                    json.dumps(record, ensure_ascii=False).encode()  # refuses half of a surrogate pair
                    yield place, record
    except (ValueError, TypeError, RecursionError) as error:
        remedy = "correct it; if the training was stopped there, remove this line"
        raise TableError(f"read: {place} is not a JSON object ({error}); {remedy}") from error


# Columns


def _of_trl(records: pd.DataFrame, columns: Mapping[str, Any], notes: dict[str, str]) -> pd.DataFrame:
    """Add up the reward functions, which are the other columns of fractions, and leave repeated steps out."""
    rewards = [name for name in records if name not in TRL and set(records[name].dropna().map(type)) == {float}]
    scored = records[rewards].notna().any(axis=1) | (not rewards)
    if not scored.all():
        notes["rows"] = f"{(~scored).sum()} rows without any reward are left out"
    records = records[scored]
    rows = records[[*TRL[1:]]].map(repr).sum(axis=1).groupby(records["step"]).sum()
    if repeated := list(rows.index[rows == rows.shift()]):
        notes["repeated"] = f"steps {repeated} repeat the completions of the step before and are left out"
        records = records[~records["step"].isin(repeated)]
    turns = _renamed(records, "trl", columns)
    if (summed := [name for name in rewards if name not in columns.values()]) and "team_reward" not in columns:
        turns["team_reward"] = sum(_numbers(records[[name]].astype(float).fillna(0.0), name) for name in summed)
        if len(summed) > 1:
            weights = f"columns={{'team_reward': {dict.fromkeys(summed, 1.0)}}}"
            notes["team_reward"] = f"team_reward is the sum of rewards, since TRL logs no weights: pass {weights}"
    return turns


def _renamed(records: pd.DataFrame, kind: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table under our names, with checked values; other columns are kept behind."""
    if kind == "verl" and "uid" in records:  # verl's key is uid_session_output
        parts = records["uid"].astype(str).str.extract(r"^(?P<uid_session>(?P<uid_task>.+)_\d+)_(?P<uid_output>\d+)$")
        records = records.join(parts) if parts.notna().all(axis=None) else records
    named = [name for name in columns.values() if isinstance(name, str)]
    usable = {name for name in records if name in KEYS[kind] or records[name].notna().any()}.difference(named)
    there = {ours: [name for name in theirs.split() if name in usable] for ours, theirs in NAMES[kind].items()}
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
        weighted = (weight * _numbers(records, name, ours) for name, weight in weights.items())
        turns[ours] = sum(weighted) if isinstance(theirs, Mapping) else _checked(records, ours, theirs)
    rest = records.drop(columns={name for name in found.values() if isinstance(name, str)})
    rest = rest.rename(columns=lambda name: f"{kind}.{name}" if name in SCHEMA else name)
    return pd.concat([pd.DataFrame(turns, index=records.index), rest], axis=1)


def _checked(records: pd.DataFrame, ours: str, theirs: str) -> pd.Series:
    values, check, error = records[theirs], SCHEMA[ours].check, SCHEMA[ours].error or "empty"
    if ours in WHOLE or check is NUMBER["check"]:
        values = _numbers(records, theirs, ours)
        whole = (values % 1 == 0) & (values.abs() < 2**53)
        _refuse(~whole & (ours in WHOLE), records, theirs, ours, "not a whole number")
        return values.astype(int) if ours in WHOLE else values
    if ours in LISTS:
        values, check = values.mask(values.map(np.isscalar)), NUMBERS["check"]
        error = "not a list, which JSONL and parquet can hold, or not one of finite numbers"
    if check in (FLAG["check"], NUMBERS["check"]):
        values = values.map(lambda value: _number(value) if np.isscalar(value) else value)
    bad = values.isna() | (~values.map(check).astype(bool) if check else False)
    _refuse(bad, records, theirs, ours, error)
    values = values.map(text) if ours in ("prompt", "completion") else values
    return values.astype(str if ours in TEXTS else bool if check is FLAG["check"] else object)


def _numbers(records: pd.DataFrame, name: str, ours: str = "team_reward") -> pd.Series:
    """Return a column as finite numbers; raise TableError for any other value, naming its file and line."""
    found = records[name].map(_number).astype(float)
    _refuse(~np.isfinite(found), records, name, ours, "not a finite number")
    return found


def _number(value: Any) -> float:
    """Return a number or flag, or one that a text writes as in a CSV file, as a float; NaN for anything else."""
    if isinstance(value, str):  # Python alone reads 1_0 as ten
        value = {"true": True, "false": False}.get(value.lower(), value.replace("_", " "))
    try:
        return float(value) if np.isscalar(value) else np.nan
    except (TypeError, ValueError, OverflowError):  # a whole number may be beyond any float
        return np.nan


def _refuse(bad: pd.Series, records: pd.DataFrame, name: str, ours: str, why: str) -> None:
    """Raise TableError for the first value that is bad, naming its file and line."""
    if bad.any():
        place, value = records.index[bad.argmax()], plain(records[name].iloc[bad.argmax()])
        raise TableError(
            f"read: {place}: column '{name}' ({ours}) is {why} ({reprlib.repr(value)}); correct or remove this row, "
            f"or pass another column, as in columns={{'{ours}': ...}}"
        )


def text(value: Any) -> str:
    """Return a prompt or completion as text: of messages a line `role: content` each, of an answer the content."""
    messages = value if isinstance(value, list | np.ndarray) else [value]
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return str(value)
    said = "\n".join(f"{message['role']}: {_content(message)}" for message in messages)
    return said.removeprefix("assistant: ") if len(messages) == 1 else said


def _content(message: Mapping[str, Any]) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list | np.ndarray) else [] if content is None else [content]
    texts = [one.get("text") or f"[{one.get('type', 'part')}]" if isinstance(one, dict) else one for one in parts]
    texts += [json.dumps(plain(calls), default=plain, ensure_ascii=False)] if plain(calls) not in (None, []) else []
    return "\n".join(map(str, filter(None, texts)))


# Episodes


def _apart(turns: pd.DataFrame, notes: dict[str, str]) -> pd.DataFrame:
    """Make the file a part of the episode's name if the same call is in two files: each numbers its episodes anew."""
    if "episode" in turns:
        files = turns.index.str.replace(r"^.*[/\\]|, \w+ \d+$", "", regex=True).to_series(turns.index)
        if files.groupby([turns[name] for name in CALL if name in turns]).nunique().max() > 1:
            notes["files"] = "the files number their episodes anew, so the file is a part of the episode's name"
            turns["episode"] = files + "/" + turns["episode"]
    return turns


def _counted_once(turns: pd.DataFrame, columns: Mapping[str, Any], notes: dict[str, str]) -> pd.DataFrame:
    """Count a score of verl once that stands on all rows of an episode or agent."""
    known = {"team_reward", "episode"} <= set(turns) and "team_reward" not in columns
    if known and turns.duplicated(["step", "episode"]).any():
        in_order = turns.sort_values([name for name in ("step", "depth", "turn") if name in turns], kind="stable")
        for whose, ours in (("episode", "team_reward"), ("agent", "local_reward")):
            unit = list(turns.columns.intersection(["step", "episode", whose]))
            if turns.groupby(unit)["team_reward"].nunique().max() == 1:
                notes[ours] = f"verl repeats an {whose}'s score on each of its rows; it counts once, at the last one"
                once = turns["team_reward"].where(~in_order.duplicated(unit, keep="last"), 0.0)
                return turns.rename(columns={"team_reward": "score"}).assign(**{ours: once, **turns[list(columns)]})
        notes["team_reward"] = "the scores of an episode's rows add up; if each is the row's own, name it local_reward"
    return turns


def _completed(turns: pd.DataFrame, notes: dict[str, str]) -> pd.DataFrame:
    """Add the columns that every instrument needs, each by a rule that `notes` says."""
    for what, names in {"reward": ("team_reward", "local_reward"), "tasks and no prompts": ("task", "prompt")}.items():
        if turns.columns.isin(names).sum() == 0:
            raise TableError(
                f"read: {turns.index[0]} has no {what}; the columns are {', '.join(map(repr, turns))}. Name one: "
                f"columns={{'{names[0]}': ...}}"
            )
    turns = turns.reset_index(drop=True)
    by_row, order = "episode" not in turns, [name for name in ("depth", "turn") if name in turns][:1]
    notes |= {name: note for name, note in MISSING.items() if name not in {*turns, *notes}}
    turns["episode"] = turns.get("episode", [f"row {number}" for number in range(len(turns))])
    turns = turns.assign(agent=turns.get("agent", "agent"), valid=turns.get("valid", True))
    episode = [name for name in ("step", "episode") if name in turns]
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


def _compared(turns: pd.DataFrame, notes: dict[str, str]) -> pd.DataFrame:
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
    present = turns.columns.intersection(["credit", "group"])
    return group(turns.drop(columns=present), "task", credit).assign(**turns[present])
