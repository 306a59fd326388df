"""Turn episodes into plain data for external viewers: the result of each, and its model calls in order.

Leaves out: which are shown first (`explain.index`), and the formats of those viewers (`train.tracking`).
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.display.escape import escape_control_chars as escaped
from mas_lab.explain.index import index_of_turns
from mas_lab.table import column, plain, require, trained

NEEDED = ["task", "episode", "agent", "policy", "prompt", "completion", "completion_ids", "logprobs"]
NUMBERS = ("team_reward", "local_reward", "credit", "center", "scale", "advantage")


def episodes(turns: pd.DataFrame, n: int | None = None, who: str = "episodes") -> Iterator[dict[str, Any]]:
    """Yield the `n` most informative episodes of one step's table, in that order; all of them if `n` is `None`.

    Each is a row of the index as plain values, with `calls`: a dict for each model call in acting order, with
    candidates side by side. Control characters are escaped. Values that the table lacks are left out, and
    a number that is not finite is `None`. Continuations that were played only to value a candidate are left out.

    Raises `TableError` if the table holds no texts.
    """
    require(turns, NEEDED, who)
    rows = turns[trained(turns)]
    found = index_of_turns(rows).head(len(rows) if n is None else n)
    rows = rows[rows["episode"].isin(found["episode"])]
    rows = rows.assign(**{name: column(rows, name) for name in ("depth", "node", "kept", "valid", "candidate")})
    own = dict(list(rows.sort_values(["depth", "node"], kind="stable").groupby("episode", sort=False)))
    for told in found.to_dict("records"):
        calls = [_call(row) for row in own[told["episode"]].to_dict("records")]
        yield {name: _plain(value) for name, value in told.items()} | {"calls": calls}


def path(calls: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the played episode as chat messages; each text names the agent, since viewers do not show `name`."""
    pairs = ((call["agent"], (("user", call["heard"]), ("assistant", call["said"]))) for call in calls if call["kept"])
    return [{"role": role, "name": who, "content": f"{who}: {text}"} for who, pair in pairs for role, text in pair]


def turns_of(calls: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield ("solver, turn 0", its candidates) for each agent at each node, in acting order."""
    for _, drawn in groupby(calls, key=lambda call: (call["node"], call["agent"])):
        held = list(drawn)
        yield f"{held[0]['agent']}, turn {held[0]['turn']}", held


def title(call: dict[str, Any]) -> str:
    """Return a title such as `#3 kept, advantage +1.67`; of an advantage per token, the largest in size."""
    advantage = call.get("advantage")
    if isinstance(advantage, list):
        advantage = max(advantage, key=abs, default=None)
    name = f"#{call['candidate']}" + (" kept" if call["kept"] else "")
    return name if advantage is None else f"{name}, advantage {advantage:+.2f}"


def _call(row: dict[str, Any]) -> dict[str, Any]:
    logprobs = np.asarray(row["logprobs"], float)
    told = {
        "agent": escaped(str(row["agent"])), "policy": escaped(str(row["policy"])), "turn": int(row.get("turn", 0)),
        "node": escaped(str(row["node"])), "candidate": int(row["candidate"]), "kept": bool(row["kept"]),
        "valid": bool(row["valid"]), "finish": escaped(str(row.get("finish", ""))),
        "heard": escaped(row["prompt"]).removeprefix("user: "), "said": escaped(row["completion"]),
        "prompt_tokens": len(row.get("prompt_ids", ())), "tokens": len(row["completion_ids"]),
        "logprob": _plain(logprobs.sum()), "surprise": _plain(-logprobs.mean()) if len(logprobs) else None,
    }  # fmt: skip
    if "group" in row:
        told["group"] = escaped(str(row["group"]))
    return told | {name: _plain(row[name]) for name in NUMBERS if name in row}


def _plain(value: Any) -> Any:
    """Return a value as JSON data; an advantage per token becomes a list."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 6) if np.isfinite(value) else None
    return escaped(value) if isinstance(value, str) else None if value is pd.NA else value
