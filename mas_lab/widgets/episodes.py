"""Turn an episode into plain data for a page: its nodes in order, and each node's candidates with their tokens.

This module leaves out the choice of episodes (`index`), and how they are shown (`static/rollouts.js`).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mas_lab.widgets.advantages import in_words, listed
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import escape_control_chars as escaped

NUMBERS = ("team_reward", "local_reward", "credit", "center", "scale", "advantage", "temperature")
SHADES = ("surprise", "entropy", "advantage", "share")
SAID = 80
"""Characters of a completion in the list of a group."""

Row = dict[str, Any]


def episode_data(rows: Sequence[Row], source: Source, states: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return one episode as plain data: its nodes in order, each with its prompt and all of its candidates.

    `rows`: the rows of the episode. `states`: node -> SVG.
    """
    nodes: dict[tuple[str, str], dict[str, Any]] = {}
    seats = {agent: seat for seat, agent in enumerate(source.agents)}
    most = max((size(row.get("advantage")) for row in rows), default=0.0)
    for row in sorted(rows, key=lambda row: (row["depth"], row["node"], seats.get(row["agent"], len(seats)))):
        node = nodes.setdefault((row["node"], row["agent"]), {
            "node": escaped(row["node"]), "parent": escaped(row["parent"]), "depth": int(row["depth"]),
            "agent": escaped(row["agent"]), "turn": int(row.get("turn", 0)), "heard": escaped(row.get("prompt", "")),
            "candidates": [],
        })  # fmt: skip
        if states and row["node"] in states:
            node["state"] = states[row["node"]]
        node["candidates"].append(_candidate(row, source, most))
    for node in nodes.values():
        node["candidates"].sort(key=lambda one: one["index"])
    return {
        "name": escaped(rows[0]["episode"]), "task": escaped(rows[0].get("task", "")), "success": _success(rows),
        "nodes": list(nodes.values()),
    }  # fmt: skip


def _candidate(row: Row, source: Source, most: float) -> dict[str, Any]:
    ids = [int(number) for number in row.get("completion_ids", ())]
    shades = _shades(row, len(ids))
    is_telling = (most > 0 and size(row.get("advantage")) == most) or row.get("finish") == "length"
    return {
        "index": int(row.get("candidate", 0)), "action": escaped(row["action"]), "kept": bool(row.get("kept", True)),
        "valid": bool(row.get("valid", True)), "finish": escaped(row.get("finish", "")),
        "said": escaped(row["completion"]),
        "numbers": {name: in_words(row[name]) for name in NUMBERS if not _is_missing(row.get(name))},
        "group": escaped(row.get("group", "")), "info": _told(row.get("info")),
        "tokens": source.token_texts(row.get("policy", ""), ids), "ids": ids, "shades": shades,
        "tell": bool(is_telling or "share" in shades),
    }  # fmt: skip


def _shades(row: Row, length: int) -> dict[str, list[float]]:
    """Return the known values of each token, with four decimals."""
    advantage = row.get("advantage")
    if not _is_missing(advantage):
        advantage = listed(advantage) if hasattr(advantage, "__len__") else [round(float(advantage), 4)] * length
    logprobs, entropies, shares = (row.get(name) for name in ("logprobs", "entropies", "shares"))
    known = {
        "surprise": [0.0 - round(float(logprob), 4) for logprob in logprobs] if logprobs is not None else [],
        "entropy": listed(entropies), "advantage": advantage or [], "share": listed(shares),
    }  # fmt: skip
    return {name: numbers for name, numbers in known.items() if numbers and len(numbers) == length}


def size(advantage: Any) -> float:
    """Return the largest |advantage| of a row, or 0 if it has none."""
    if isinstance(advantage, float):
        return abs(advantage) if advantage == advantage else 0.0
    return 0.0 if advantage is None else float(np.max(np.abs(np.asarray(advantage, float)), initial=0.0))


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _told(info: Any) -> str:
    """Return the environment's `info` on the step as JSON, or an empty string if there is none."""
    return escaped(json.dumps(info, ensure_ascii=False)) if info else ""


def _success(rows: Sequence[Row]) -> bool | None:
    """Return whether any kept path reached the goal, or `None` without the column `success`."""
    return any(row["success"] for row in rows if row.get("kept", True)) if "success" in rows[0] else None


def member(row: Row) -> dict[str, Any]:
    """Return one row of a comparison group, as a list shows it."""
    numbers = {name: None if _is_missing(row.get(name)) else in_words(row[name]) for name in ("credit", "advantage")}
    return {
        **{name: escaped(row[name]) for name in ("episode", "node", "agent")},
        "candidate": int(row.get("candidate", 0)), **numbers, "said": escaped(row["completion"])[:SAID],
    }  # fmt: skip
