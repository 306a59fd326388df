"""What other trainers write about their rollouts: the files of each, their columns, and the rows that they hold.

A format turns a table of records (one per line or row of its files) into a table with one row per model call, under the
trainer's own column names. Leaves out: files and the names of `lab.SCHEMA` (`reading`).
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.table import SCHEMA, TableError, plain

Record = dict[str, Any]
LISTS = ("prompt_ids", "completion_ids", "logprobs")
"""Our columns of a list per row."""
Notes = dict[str, str]
"""Column of ours -> how it came about, for the warning; unsaid if the caller names another column."""


@dataclass(frozen=True)
class Format:
    """One way of writing rollouts."""

    name: str
    """Name of the format, for `read(format=)`."""
    files: str
    """Patterns of its files below a folder; the first that matches counts. A space stands between two, as below."""
    keys: str
    """Columns by which its files are recognised."""
    rows: Callable[[pd.DataFrame, Notes], pd.DataFrame]
    """Function (records, notes) -> a row per model call. It adds to the notes."""
    names: Mapping[str, str]
    """Our name -> the trainer's names, of which the first that is there counts."""
    skipped: str = "/"
    """Text in the names of evaluations' files, which are left out of a folder."""


def numbers(records: pd.DataFrame, name: str, ours: str = "team_reward") -> pd.Series:
    """Return a column as finite numbers; raise TableError for any other value, naming its file and line."""
    values = records[name].where(records[name].map(np.isscalar)).map(typed)
    found = pd.to_numeric(values, errors="coerce").astype(float)
    refuse(~np.isfinite(found), records, name, ours, "not a finite number")
    return found


def typed(value: Any) -> Any:
    """Return the flag or number that a text writes, as in a CSV file; any other value stays as it is."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return float(value.replace("_", " "))  # Python alone reads 1_0 as ten
    except ValueError:
        return value


def refuse(bad: pd.Series, records: pd.DataFrame, name: str, ours: str, why: str) -> None:
    """Raise TableError for the first value that is bad, naming its file and line."""
    if bad.any():
        place, value = records.index[bad.argmax()], plain(records[name].iloc[bad.argmax()])
        raise TableError(
            f"read: {place}: column '{name}' ({ours}) is {why} ({value!r}); correct or remove this row, or pass "
            f"another column, as in columns={{'{ours}': ...}}"
        )


def text(value: Any) -> str:
    """Return a prompt or completion as text: of messages a line `role: content` each, of an answer the content."""
    messages = [value] if isinstance(value, dict) else value if isinstance(value, list | np.ndarray) else [value]
    if not all(isinstance(message, dict) and "role" in message for message in messages):
        return str(value)
    said = [(message["role"], _content(message)) for message in messages]
    return said[0][1] if [role for role, _ in said] == ["assistant"] else "\n".join(map(": ".join, said))


def _content(message: Record) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    parts = content if isinstance(content, list | np.ndarray) else [] if content is None else [content]
    texts = [one.get("text") or f"[{one.get('type', 'part')}]" if isinstance(one, dict) else str(one) for one in parts]
    if calls is not None and len(calls):
        texts.append(json.dumps(list(calls), default=plain, ensure_ascii=False))
    return "\n".join(filter(None, texts))


def _trl(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Add up the reward functions, which are the other columns of fractions, and leave repeated steps out."""
    rewards = [name for name in records if name not in TRL and set(records[name].dropna().map(type)) == {float}]
    records = _scored(records, records[rewards].notna().any(axis=1) | (not rewards), notes)
    rows = records[["prompt", "completion", "advantage"]].map(repr).sum(axis=1).groupby(records["step"]).sum()
    if repeated := list(rows.index[rows == rows.shift()]):
        notes["repeated"] = f"steps {repeated} repeat the completions of the step before and are left out"
        records = records[~records["step"].isin(repeated)]
    if len(rewards) > 1:
        weights = f"columns={{'team_reward': {dict.fromkeys(rewards, 1.0)}}}"
        notes["team_reward"] = f"team_reward is the sum of rewards, since TRL logs no weights: pass them as {weights}"
    return records.assign(sum=records[rewards].sum(axis=1)) if rewards else records


def _scored(records: pd.DataFrame, scored: pd.Series, notes: Notes) -> pd.DataFrame:
    if not scored.all():
        notes["rows"] = f"{(~scored).sum()} rows without any reward are left out"
    return records[scored]


def _verl(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Split verl's key uid_session_output, and count a score once that stands on all rows of an episode or agent."""
    if "uid" in records:
        parts = records["uid"].astype(str).str.extract(r"^(.+)_(\d+)_(\d+)$")
        if parts.notna().all(axis=None):
            session = parts[0] + "_" + parts[1]
            records = records.assign(task_of_uid=parts[0], session_of_uid=session, output_of_uid=parts[2].astype(int))
    there = {ours: [name for name in names.split() if name in records][:1] for ours, names in VERL.items()}
    episode = ["step", *there["episode"]]
    if not there["episode"] or not records.duplicated(episode).any():
        return records
    scores, order = numbers(records, "score"), there["depth"] or there["turn"]
    in_order = records.sort_values(["step", *order], kind="stable", key=partial(pd.to_numeric, errors="coerce"))
    for whose, ours, unit in (("episode", "team_reward", episode), ("agent", "local_reward", episode + there["agent"])):
        if scores.groupby([records[name] for name in unit]).nunique().max() == 1:
            notes[ours] = f"verl repeats an {whose}'s score on each of its rows; it counts once, at the last one"
            once = scores.where(~in_order.duplicated(unit, keep="last"), 0.0)
            return records.drop(columns=["score"] * (whose == "agent")).assign(**{ours: once})
    notes["team_reward"] = "the scores of an episode's rows add up; if each is the row's own, name it local_reward"
    return records


def _slime(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Return the samples with a reward, each of which is an episode as in the groups of slime."""
    rows = _each(_scored(records, records["reward"].map(lambda reward: reward is not None), notes), _sample)
    return rows.drop(columns=[name for name in LISTS if name in rows and rows[name].isna().any()])


def _sample(record: Record) -> list[Record]:
    """Return the plain values of a sample, and its token ids if the model sampled all of its response."""
    parts = [(part, record[part]) for part in ("reward", "metadata") if isinstance(record.get(part), dict)]
    values = record | {f"{part}/{name}": value for part, inner in parts for name, value in inner.items()}
    row = {name: value for name, value in values.items() if isinstance(value, str | float | int) or name == "prompt"}
    tokens, length, logprobs = record["tokens"], record["response_length"], record.get("rollout_log_probs")
    if len(tokens) >= length > 0 and all(record.get("loss_mask") or [1]):
        row |= {"prompt_ids": list(map(int, tokens[:-length])), "completion_ids": list(map(int, tokens[-length:]))}
        row |= {} if logprobs is None else {"logprobs": list(map(float, logprobs))}
    return [row]


def _each(records: pd.DataFrame, rows_of: Callable[[Record], list[Record]]) -> pd.DataFrame:
    """Return the rows of all records; an error in one names its file and line."""
    rows, places = [], []
    for place, record in zip(records.index, records.to_dict("records"), strict=True):
        try:
            found = rows_of({key: one for key, one in record.items() if not (isinstance(one, float) and one != one)})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            what = f"{error} is missing or not a number" if isinstance(error, KeyError) else str(error)
            remedy = "correct or remove this line, or pass format= if another trainer wrote the file"
            raise TableError(f"read: {place}: the record cannot be read ({what}); {remedy}") from error
        rows += found
        places += [place] * len(found)
    return pd.DataFrame(rows, index=places)


def _tinker(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    def rows_of(record: Record) -> list[Record]:
        group = f"{record['split']} {record['iteration']}/{record['group_idx']}"
        shared = {"iteration": record["iteration"], "group": group, "trajectory": f"{group}/{record['traj_idx']}"}
        rows = []
        for step in record["steps"]:
            named = {f"{part}/{name}": one for part in ("metrics", "logs") for name, one in step.pop(part).items()}
            rows.append({**shared, "tags": record["tags"], **step, **named})
        rows[-1]["reward"] += record["final_reward"]
        return rows

    notes["agent"] = "one agent, named 'agent', also for the players of a game, which tinker-cookbook does not name"
    return _each(records, rows_of)


def _verifiers(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Return a row per sampled message; the reward of a trace is at its last one."""
    calls = _each(records, _calls)
    if calls.empty:
        return calls
    if empty := len(records) - calls.index.nunique():
        notes["episodes"] = f"{empty} episodes without a sampled message are left out"
    steps = calls.index.to_series().str.extract(r"[/\\]step_(\d+)[/\\]train[/\\]")[0]
    if steps.notna().all():  # the batch of prime-rl, which an episode may have been started for some steps before
        calls["step"] = steps.to_numpy()
    scored = calls.pop("scored").to_numpy()
    if not scored.all():
        agents = ", ".join(sorted(set(calls["agent"][~scored])))
        notes["rows"] = f"{(~scored).sum()} turns of traces without a reward are left out ({agents})"
        calls = calls[scored]
    several = calls.groupby("episode")["trace"].nunique().gt(1).any()
    ours, reward = "local_reward" if several else "team_reward", calls.pop("reward")
    if several:
        notes[ours] = "local_reward is that of a trace, at its last turn, so lab.wrong_way sees 0 before it"
    return calls.dropna(axis=1).assign(**{ours: reward})  # what only some turns have is left out


def _calls(episode: Record) -> list[Record]:
    """Return the sampled messages of an episode's traces in the order of their time."""
    rows, task = [], episode["task"]
    ids = {name: (episode.get(name) or {}).get("id") for name in ("group", "env")}
    work = (episode.get("run") or {}).get("work") or {}
    around = {"task": task.get("key") or task.get("hash"), "episode": episode["id"], **ids, "step": work.get("step")}
    for trace in episode["traces"]:
        nodes, rewards = trace["nodes"], [one for one in trace.get("rewards", {}).values() if one is not None]
        sampled = [place for place, node in enumerate(nodes) if node.get("sampled")]
        of_trace = {"agent": trace["agent"]["name"], "trace": trace["id"], "scored": bool(rewards)}
        total = sum(one["score"] * one.get("weight", 1.0) for one in rewards)
        for place in sampled:
            node, before = nodes[place], _before(nodes, place)
            row = {"time": node["timestamp"], "reward": total if place == sampled[-1] else 0.0}
            row |= {"prompt": [one["message"] for one in before], "completion": [node["message"]]}
            rows.append({**around, **of_trace, **row, **_tokens(node, before)})
    return sorted(rows, key=lambda row: row["time"])


def _before(nodes: list[Record], place: int) -> list[Record]:
    """Return the messages that lead to one, from the first on. A parent stands before its children."""
    path = []
    while (parent := nodes[place].get("parent")) is not None:
        if not 0 <= parent < place:
            raise ValueError(f"node {place} has parent {parent}, which does not stand before it")
        path.append(nodes[place := parent])
    return path[::-1]


def _tokens(node: Record, before: list[Record]) -> Record:
    """Return the token ids of a call with its log-probabilities and advantages, as far as they were recorded."""
    ids, mask = node.get("token_ids"), node.get("mask")
    if not ids or True not in mask:
        return {}
    own = [token for token, sampled in zip(ids, mask, strict=True) if sampled]
    prompt = [token for one in before for token in one.get("token_ids", [])] + ids[: mask.index(True)]
    of_tokens = {"logprobs": node.get("logprobs"), "advantage": node.get("advantages")}
    whole = {name: one for name, one in of_tokens.items() if one and len(one) == len(own)}
    return {"prompt_ids": prompt, "completion_ids": own, **whole}


VERL = {
    "prompt": "input", "completion": "output", "team_reward": "team_reward score", "local_reward": "local_reward",
    "step": "step", "task": "task_of_uid uid", "episode": "session_of_uid traj_uid trajectory_id", "policy": "wg_id",
    "depth": "output_of_uid", "turn": "turn step_id", "agent": "agent_id agent_name agent role",
    "valid": "is_action_valid",
}  # fmt: skip
TRL = {"step": "step", "prompt": "prompt", "completion": "completion", "advantage": "advantage", "team_reward": "sum"}
TINKER = {"step": "iteration", "task": "group", "episode": "trajectory", "turn": "step_idx", "team_reward": "reward",
          "done": "episode_done"}  # fmt: skip
SLIME = {"step": "rollout", "task": "group_index", "prompt": "prompt", "completion": "response",
         "team_reward": "reward", "agent": "agent metadata/agent", **{name: name for name in LISTS}}  # fmt: skip
OURS = {name: name for name in SCHEMA}
STEP, TRAIN, PRIME = "completions_*.parquet", "train_rollout_summaries.jsonl", "rollouts/step_*/train"
FORMATS = {one.name: one for one in (
    Format("table", "*.csv *.jsonl *.parquet", "team_reward", lambda records, notes: records, OURS),
    Format("trl", f"completions/{STEP} {STEP}", "step prompt completion advantage", _trl, TRL),
    Format("verl", "[0-9]*.jsonl", "input output score step", _verl, VERL),
    Format("tinker", f"iteration_*/{TRAIN} {TRAIN}", "group_idx traj_idx steps final_reward", _tinker, TINKER),
    Format("verifiers", f"traces.jsonl {PRIME}/effective/traces.jsonl {PRIME}/all/traces.jsonl", "id task traces env",
           _verifiers, OURS),
    Format("slime", "*.pt", "rollout tokens response response_length reward", _slime, SLIME, skipped="eval_"),
)}  # fmt: skip
"""The formats that `read` knows, in the order in which it tries them."""
