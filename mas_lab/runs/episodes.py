"""Episodes as plain data, for viewers that others wrote: what each came to, and its model calls one after the other.

Leaves out: which are shown first (`explain.index`), and the forms of those viewers (`train.traces`, `inspect_log`).
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.explain.index import index_of_turns
from mas_lab.table import column, plain, require, trained
from mas_lab.visible import visible

NEEDED = ["task", "episode", "agent", "policy", "prompt", "completion", "completion_ids", "logprobs"]
NUMBERS = ("team_reward", "local_reward", "credit", "center", "scale", "advantage")


def episodes(turns: pd.DataFrame, n: int | None = None, who: str = "episodes") -> Iterator[dict[str, Any]]:
    """The `n` episodes of one step's table that tell most, in that order; without `n`, all of them.

    Each is a row of the index as plain values, with `calls`: a dict for each model call in acting order, candidates
    beside each other. All texts are visible (`mas_lab.visible`); what a table does not hold is left out, and a number
    that is none is None. Continuations that were played to value a candidate are left out.

    Raises `TableError` where the table holds no texts.
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
    """The episode as it was played, as chat messages: what each kept call heard and said. Those viewers show no `name`
    of a message, so that the agent's stands before the text as well."""
    pairs = ((call["agent"], (("user", call["heard"]), ("assistant", call["said"]))) for call in calls if call["kept"])
    return [{"role": role, "name": who, "content": f"{who}: {text}"} for who, pair in pairs for role, text in pair]


def turns_of(calls: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """("solver, turn 0", its candidates) for each agent at each node, in acting order."""
    for _, drawn in groupby(calls, key=lambda call: (call["node"], call["agent"])):
        held = list(drawn)
        yield f"{held[0]['agent']}, turn {held[0]['turn']}", held


def title(call: dict[str, Any]) -> str:
    """A candidate in the width of a column: `#3 kept, advantage +1.67`; of an advantage per token, the largest."""
    advantage = call.get("advantage")
    if isinstance(advantage, list):
        advantage = max(advantage, key=abs, default=None)
    name = f"#{call['candidate']}" + (" kept" if call["kept"] else "")
    return name if advantage is None else f"{name}, advantage {advantage:+.2f}"


def _call(row: dict[str, Any]) -> dict[str, Any]:
    logprobs = np.asarray(row["logprobs"], float)
    told = {
        "agent": visible(str(row["agent"])), "policy": visible(str(row["policy"])), "turn": int(row.get("turn", 0)),
        "node": visible(str(row["node"])), "candidate": int(row["candidate"]), "kept": bool(row["kept"]),
        "valid": bool(row["valid"]), "finish": visible(str(row.get("finish", ""))),
        "heard": visible(row["prompt"]).removeprefix("user: "), "said": visible(row["completion"]),
        "prompt_tokens": len(row.get("prompt_ids", ())), "tokens": len(row["completion_ids"]),
        "logprob": _plain(logprobs.sum()), "surprise": _plain(-logprobs.mean()) if len(logprobs) else None,
    }  # fmt: skip
    if "group" in row:
        told["group"] = visible(str(row["group"]))
    return told | {name: _plain(row[name]) for name in NUMBERS if name in row}


def _plain(value: Any) -> Any:
    """A value that JSON has; of an advantage per token, a list."""
    value = plain(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float):
        return round(value, 6) if np.isfinite(value) else None
    return visible(value) if isinstance(value, str) else None if value is pd.NA else value
