"""Describe a gradient spike as plain data: agents hold groups, groups hold samples, samples hold tokens.

Each of them has its share of the gradient. This module leaves out the shares themselves (`diagnostics`) and how they
are shown (`static/spikes_anatomy.js`).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from mas_lab.table import TableError, require
from mas_lab.widgets.advantages import in_words, listed
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import escape_control_chars, visible_data

SAMPLE = ["agent", "policy", "task", "group", "turn", "prompt", "completion", "completion_ids", "credit", "center",
          "scale", "advantage", "episode", "node", "candidate"]  # fmt: skip


def anatomy(spike: Mapping[str, Any], turns: pd.DataFrame, source: Source) -> dict[str, Any]:
    """Return one record of a `SpikeWatch` as plain data, together with its prompts and completions.

    Agents hold groups and groups hold samples, each sorted by the size of its share. Only the `samples` largest samples
    of the watch have texts and tokens. Other samples below 0.1 % are counted, not listed.
    """
    require(turns, ["agent", "completion", "completion_ids"], "SpikeInspector")
    last = max(map(int, spike["rows"]), default=-1)
    if last >= len(turns):
        raise TableError(
            f"SpikeInspector: the watch names row {last} of step {spike['step']}, and the table has {len(turns)} rows "
            "of it; give it all rows of the step, in the order in which they were trained on"
        )
    agents: dict[str, dict[str, Any]] = {}
    records = turns[[name for name in SAMPLE if name in turns.columns]].to_dict("records")
    for row, share in sorted(spike["rows"].items(), key=lambda item: -abs(item[1])):
        record = records[int(row)]
        agent = agents.setdefault(
            record["agent"], {"agent": escape_control_chars(record["agent"]), "share": 0.0, "groups": {}}
        )
        name = str(record.get("group", record.get("task", "")))
        group = agent["groups"].setdefault(
            name, {"group": escape_control_chars(name), "share": 0.0, "rows": 0, "little": 0, "samples": []}
        )
        for level in (agent, group):
            level["share"] += share
        group["rows"] += 1
        if row in spike["tokens"] or abs(share) >= 1e-3:
            group["samples"].append(_sample(record, row, share, spike, source))
        else:
            group["little"] += 1
    for agent in agents.values():
        agent["groups"] = sorted(agent["groups"].values(), key=lambda group: -abs(group["share"]))
    kept = ("step", "optimizer_step", "policy", "agent", "agents", "norm", "usual", "score", "norms", "without",
            "baselines")  # fmt: skip
    ordered = sorted(agents.values(), key=lambda agent: -abs(agent["share"]))
    told = visible_data({name: spike[name] for name in kept})
    return {**told, "exact": spike.get("exact", True), "anatomy": ordered}


def _sample(
    record: Mapping[str, Any], row: str, share: float, spike: Mapping[str, Any], source: Source
) -> dict[str, Any]:
    names = [name for name in ("credit", "center", "scale", "advantage") if name in record]
    numbers = {name: in_words(record[name]) for name in names}
    sample = {"row": int(row), "share": share, "turn": int(record.get("turn", 0)), "numbers": numbers}
    if "episode" in record:
        named = {
            name: escape_control_chars(str(record[name])) for name in ("episode", "node", "candidate") if name in record
        }
        sample["at"] = named  # the fields of an address of the RolloutViewer
    if row in spike["tokens"]:
        sample["heard"], sample["said"] = (
            escape_control_chars(record.get("prompt", "")),
            escape_control_chars(record["completion"]),
        )
        sample["tokens"] = source.token_texts(record.get("policy", ""), record["completion_ids"])
        sample["shares"] = [round(one, 6) for one in spike["tokens"][row]]
        sample["advantages"] = listed(record.get("advantage"))
        judged = {name: advantages.get(row) for name, advantages in spike.get("judged", {}).items()}
        sample["judged"] = {name: round(value, 4) for name, value in judged.items() if value is not None}
    return sample
