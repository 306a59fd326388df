"""Describe a gradient spike as plain data: agents hold groups, groups hold samples, samples hold tokens.

Each of them has its share of the gradient. The episodes of the largest samples come along, for a RolloutViewer on the
same page. This module leaves out the shares themselves (`diagnostics`) and how they are shown (`static/spikes.js`).
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pandas as pd

from mas_lab.table import TableError, require
from mas_lab.widgets.episodes import Reading, in_words, index_of, listed, page_data, spike_shares
from mas_lab.widgets.figures import colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.states import States
from mas_lab.widgets.text import escape_control_chars as escaped
from mas_lab.widgets.text import visible_data

SAMPLE = ["agent", "policy", "task", "group", "turn", "prompt", "completion", "completion_ids", "credit", "center",
          "scale", "advantage", "episode", "node", "candidate"]  # fmt: skip
RECORDED = ("step", "optimizer_step", "policy", "agent", "agents", "norm", "usual", "score", "norms", "without",
        "baselines")  # fmt: skip
LIMIT, MOST = 1_500_000, 64
"""Maximum bytes of episodes, and number of episodes, on the page of spikes."""

Spike = Mapping[str, Any]


def anatomy(spike: Spike, turns: pd.DataFrame, source: Source) -> dict[str, Any]:
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
        name = str(record.get("group", record.get("task", "")))
        agent = agents.setdefault(record["agent"], {"agent": escaped(record["agent"]), "share": 0.0, "groups": {}})
        new = {"group": escaped(name), "share": 0.0, "rows": 0, "little": 0, "samples": []}
        group = agent["groups"].setdefault(name, new)
        agent["share"] += share
        group["share"] += share
        group["rows"] += 1
        if row in spike["tokens"] or abs(share) >= 1e-3:
            group["samples"].append(_sample(record, row, share, spike, source))
        else:
            group["little"] += 1
    for agent in agents.values():
        agent["groups"] = _by_share(agent["groups"])
    fields = visible_data({name: spike[name] for name in RECORDED})
    return {**fields, "exact": spike.get("exact", True), "anatomy": _by_share(agents)}


def _by_share(parts: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(parts.values(), key=lambda part: -abs(part["share"]))


def _sample(record: Mapping[str, Any], row: str, share: float, spike: Spike, source: Source) -> dict[str, Any]:
    numbers = {name: in_words(record[name]) for name in ("credit", "center", "scale", "advantage") if name in record}
    sample = {"row": int(row), "share": share, "turn": int(record.get("turn", 0)), "numbers": numbers}
    if "episode" in record:  # the fields of an address of the RolloutViewer
        sample["at"] = {name: escaped(str(record[name])) for name in ("episode", "node", "candidate") if name in record}
    if row in spike["tokens"]:
        judged = {name: advantages.get(row) for name, advantages in spike.get("judged", {}).items()}
        sample |= {
            "heard": escaped(record.get("prompt", "")), "said": escaped(record["completion"]),
            "tokens": source.token_texts(record.get("policy", ""), record["completion_ids"]),
            "shares": [round(one, 6) for one in spike["tokens"][row]], "advantages": listed(record.get("advantage")),
            "judged": {name: round(value, 4) for name, value in judged.items() if value is not None},
        }  # fmt: skip
    return sample


def episodes_of(spikes: Sequence[Spike], source: Source) -> dict[str, Any] | None:
    """Return the data for `mount` of the page's RolloutViewer, or `None` if the turns name no episodes.

    It takes the episode of each spike's largest sample, then of each spike's second, and so on, while there is room.
    """
    steps = {spike["step"]: source.turns(spike["step"]) for spike in spikes}
    if not steps or any(not set(turns.columns) >= {"episode", "agent", "completion"} for turns in steps.values()):
        return None
    opened = Source(pd.concat([turns.assign(step=step) for step, turns in steps.items()]), source.agents)
    index = index_of(opened)
    reading = Reading(source, states=States(source), shares=spike_shares(spikes))
    names = list(zip(index["step"], index["episode"], strict=True))
    largest = []
    for spike in spikes:
        rows = sorted(map(int, spike["tokens"]), key=lambda row: -abs(spike["rows"][str(row)]))
        largest.append([(spike["step"], steps[spike["step"]]["episode"].iloc[row]) for row in rows])
    named = dict.fromkeys(one for rank in zip_longest(*largest) for one in rank if one is not None)
    places = [names.index(one) for one in named][:MOST]
    data = page_data(index, lambda place: reading.with_groups(*names[place]), places, LIMIT)
    data["shades"].sort(key=lambda name: name != "share")  # "share" comes first here
    agents = {escaped(agent): color for agent, color in colors(source.agents).items()}
    return {**data, "agents": agents, "runs": [opened.title], "at": ""}
