"""What other trainers write about their rollouts: the files of each, their columns, and the rows that they hold.

A format turns a table of records (one per line or row of its files) into a table with one row per model call, under the
trainer's own column names. Leaves out: files and the names of `lab.SCHEMA` (`reading`).
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.table import SCHEMA, TableError, plain

Record = dict[str, Any]
Notes = dict[str, str]
"""Column of ours -> how it came about, for the warning; unsaid if the caller names another column."""


@dataclass(frozen=True)
class Format:
    """One way of writing rollouts."""

    name: str
    """Name of the format, for `read(format=)`."""
    files: tuple[str, ...]
    """Patterns of its files below a folder; the first that matches counts."""
    keys: frozenset[str]
    """Columns by which its files are recognised."""
    rows: Callable[[pd.DataFrame, Notes], pd.DataFrame]
    """Function (records, notes) -> a row per model call. It adds to the notes."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Our name -> the trainer's names, of which the first that is there counts."""
    skipped: str = "/"
    """Text in the names of evaluations' files, which are left out of a folder."""


def numbers(records: pd.DataFrame, name: str, ours: str = "team_reward") -> pd.Series:
    """Return a column as finite numbers; raise TableError for any other value, naming its file and line."""
    scalars = records[name].where(records[name].map(np.isscalar))
    found = pd.to_numeric(scalars, errors="coerce").astype(float)
    refuse(~np.isfinite(found), records, name, ours, "not a finite number")
    return found


def refuse(bad: pd.Series, records: pd.DataFrame, name: str, ours: str, why: str) -> None:
    """Raise TableError for the first value that is bad, naming its file and line."""
    if bad.any():
        place, value = records.index[bad.argmax()], plain(records[name].iloc[bad.argmax()])
        raise TableError(
            f"read: {place}: column '{name}' ({ours}) is {why} ({value!r}); correct or remove this row, or pass "
            f"another column, as in columns={{'{ours}': ...}}"
        )


def text(value: Any) -> str:
    """Return a prompt or completion as text; a list of messages becomes a line `role: content` for each."""
    if isinstance(value, str):
        return value
    value = [value] if isinstance(value, dict) else value
    if not isinstance(value, list | np.ndarray) or not all(isinstance(one, dict) and "role" in one for one in value):
        return str(value)
    if [message["role"] for message in value] == ["assistant"]:
        return _content(value[0])
    return "\n".join(f"{message['role']}: {_content(message)}" for message in value)


def _content(message: Record) -> str:
    content, calls = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str):
        parts = [] if content is None else content if isinstance(content, list | np.ndarray) else [content]
        content = "\n".join(map(_part, parts))
    if calls is None or not len(calls):
        return content
    return f"{content}\n{json.dumps(list(calls), default=plain, ensure_ascii=False)}".strip()


def _part(part: Any) -> str:
    return str(part.get("text") or f"[{part.get('type', 'part')}]" if isinstance(part, dict) else part)


def _trl(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Add up the reward functions, which are the other columns of fractions, and leave repeated steps out."""
    others = [name for name in records if name not in TRL]
    rewards = [name for name in others if set(records[name].dropna().map(type)) == {float}]
    records = _scored(records, records[rewards].notna().any(axis=1) | (not rewards), notes)
    repeated, former = [], ""
    for step, own in records.groupby("step"):
        written = repr(own[["prompt", "completion", "advantage"]].to_numpy().tolist())
        repeated += [step] * (written == former)
        former = written
    if repeated:
        notes["repeated"] = f"steps {repeated} repeat the completions of the step before and are left out"
        records = records[~records["step"].isin(repeated)]
    if len(rewards) > 1:
        weights = f"columns={{'team_reward': {dict.fromkeys(rewards, 1.0)}}}"
        notes["team_reward"] = f"team_reward is the sum of rewards, since TRL logs no weights: pass them as {weights}"
    return records.assign(**{"sum of rewards": records[rewards].sum(axis=1)}) if rewards else records


def _scored(records: pd.DataFrame, scored: pd.Series, notes: Notes) -> pd.DataFrame:
    if not scored.all():
        notes["rows"] = f"{(~scored).sum()} rows without any reward are left out"
    return records[scored]


def _verl(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Split verl's key uid_session_output, and count a score once that stands on all rows of an episode or agent."""
    if "uid" in records:
        parts = records["uid"].astype(str).str.extract(r"^(.+)_(\d+)_(\d+)$")
        if parts.notna().all(axis=None):
            of_key = {"task of uid": parts[0], "session of uid": parts[0] + "_" + parts[1]}
            records = records.assign(**of_key, **{"output of uid": parts[2].astype(int)})
    there = {ours: [name for name in names if name in records][:1] for ours, names in VERL.items()}
    episode = ["step", *there["episode"]]
    scores = pd.to_numeric(records["score"].where(records["score"].map(np.isscalar)), errors="coerce")
    if not there["episode"] or not records.duplicated(episode).any() or not np.isfinite(scores).all():
        return records
    in_order = records.sort_values(["step", *there["turn"]], key=partial(pd.to_numeric, errors="coerce"), kind="stable")
    for ours, unit in {"team_reward": episode, "local_reward": [*episode, *there["agent"]]}.items():
        if scores.groupby([records[name] for name in unit]).nunique().max() > 1:
            continue
        once = records["score"].where(~in_order.duplicated(unit, keep="last"), 0.0)
        if ours == "team_reward":
            notes[ours] = "verl repeats an episode's score on each of its rows; it counts once, at the last one"
            return records.assign(**{"score once": once})
        notes[ours] = "the scores of an episode's agents differ, so each is the agent's own, once, at its last row"
        return records.assign(score=once).rename(columns={"score": "own score"})
    notes["team_reward"] = (
        "the scores of an agent's rows in an episode differ, and the credit adds them up: pass "
        "columns={'local_reward': 'score'} if each is the row's own"
    )
    return records


def _slime(records: pd.DataFrame, notes: Notes) -> pd.DataFrame:
    """Return the samples with a reward, each of which is an episode as in the groups of slime."""
    rows = _each(_scored(records, records["reward"].map(lambda reward: reward is not None), notes), _sample)
    if "rollout_id" in rows and rows["rollout_id"].dropna().duplicated().any():
        notes["episode"] = "rollouts have several samples: each is an episode of its own, as in the groups of slime"
    tokens = [name for name in ("prompt_ids", "completion_ids", "logprobs") if name in rows]
    return rows.drop(columns=[name for name in tokens if rows[name].isna().any()])


def _sample(record: Record) -> list[Record]:
    """Return the plain values of a sample, and its token ids if the model sampled all of its response."""
    parts = {f"{part}/{name}": one for part in ("reward", "metadata") if isinstance(record.get(part), dict)
             for name, one in record[part].items()}  # fmt: skip
    row = {name: one for name, one in (record | parts).items() if isinstance(one, str | float | int)}
    tokens, length, logprobs = record["tokens"], record["response_length"], record.get("rollout_log_probs")
    if len(tokens) >= length > 0 and all(record.get("loss_mask") or [1]):
        tokens = [int(token) for token in tokens]
        row |= {"prompt_ids": tokens[:-length], "completion_ids": tokens[-length:]}
        row |= {} if logprobs is None else {"logprobs": [float(one) for one in logprobs]}
    return [row | {"prompt": record["prompt"]}]


def _each(records: pd.DataFrame, rows_of: Callable[[Record], list[Record]]) -> pd.DataFrame:
    """Return the rows of all records; an error in one names its file and line."""
    rows, places = [], []
    for place, record in zip(records.index, records.to_dict("records"), strict=True):
        there = {key: one for key, one in record.items() if not (isinstance(one, float) and math.isnan(one))}
        try:
            found = rows_of(there)
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
    scored = calls.pop("scored")
    if not scored.all():
        agents = ", ".join(sorted(calls.loc[~scored.to_numpy(), "agent"].unique()))
        notes["rows"] = f"{(~scored).sum()} turns of traces without a reward are left out ({agents})"
        calls = calls[scored.to_numpy()]
    ours, reward = "team_reward", calls.pop("reward")
    if calls.groupby("episode")["trace"].nunique().gt(1).any():
        ours = "local_reward"
        notes[ours] = "local_reward is that of a trace, at its last turn, so lab.wrong_way sees 0 before it"
    return calls.dropna(axis=1).assign(**{ours: reward})  # what only some turns have is left out


def _calls(episode: Record) -> list[Record]:
    """Return the sampled messages of an episode's traces in the order of their time."""
    rows, task = [], episode["task"]
    around = {"task": task.get("key") or task.get("hash"), "episode": episode["id"]}
    work = (episode.get("run") or {}).get("work") or {}
    around |= {
        "group": (episode.get("group") or {}).get("id"),
        "env": episode["env"].get("id"),
        "step": work.get("step"),
    }
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
    "prompt": ("input",), "completion": ("output",), "team_reward": ("score once", "score"), "step": ("step",),
    "task": ("task of uid", "uid"), "episode": ("session of uid", "traj_uid", "trajectory_id"),
    "turn": ("output of uid", "turn", "step_id"), "agent": ("agent_id", "agent_name", "agent", "role"),
    "policy": ("wg_id",), "valid": ("is_action_valid",), "local_reward": ("own score",),
}  # fmt: skip
SLIME = {
    "step": ("rollout",), "task": ("group_index",), "prompt": ("prompt",), "completion": ("response",),
    "team_reward": ("reward",), "agent": ("agent", "metadata/agent"),
    **{name: (name,) for name in ("prompt_ids", "completion_ids", "logprobs")},
}  # fmt: skip
TRL = {"team_reward": ("sum of rewards",), **{name: (name,) for name in ("step", "prompt", "completion", "advantage")}}
TINKER = {
    "step": ("iteration",), "task": ("group",), "episode": ("trajectory",), "turn": ("step_idx",),
    "team_reward": ("reward",), "done": ("episode_done",),
}  # fmt: skip
PRIME = "rollouts/step_*/train"
SUMMARIES = "train_rollout_summaries.jsonl"
FORMATS = {one.name: one for one in (
    Format("table", ("*.csv", "*.jsonl", "*.parquet"), frozenset({"team_reward"}), lambda records, notes: records,
           {name: (name,) for name in SCHEMA}),
    Format("trl", ("completions/completions_*.parquet", "completions_*.parquet"),
           frozenset({"step", "prompt", "completion", "advantage"}), _trl, TRL),
    Format("verl", ("[0-9]*.jsonl",), frozenset({"input", "output", "score", "step"}), _verl, VERL),
    Format("tinker", (f"iteration_*/{SUMMARIES}", SUMMARIES),
           frozenset({"iteration", "group_idx", "traj_idx", "steps", "final_reward"}), _tinker, TINKER),
    Format("slime", ("*.pt",), frozenset({"rollout", "tokens", "response", "response_length", "reward"}), _slime,
           SLIME, skipped="eval_"),
    Format("verifiers", ("traces.jsonl", f"{PRIME}/effective/traces.jsonl", f"{PRIME}/all/traces.jsonl"),
           frozenset({"id", "task", "traces", "env"}), _verifiers, {name: (name,) for name in SCHEMA}),
)}  # fmt: skip
"""The formats that `read` knows, in the order in which it tries them."""
