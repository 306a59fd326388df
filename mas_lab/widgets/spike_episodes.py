"""Collect the episodes with the largest samples of a run's spikes, as data of a RolloutViewer on the same page.

This module leaves out the choice of spikes (`spikes`), and the form of an episode (`episodes`).
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import pandas as pd

from mas_lab.widgets.choice import Room
from mas_lab.widgets.figures import colors
from mas_lab.widgets.index import index_of
from mas_lab.widgets.reading import MEMBERS, Reading
from mas_lab.widgets.shares import Shares
from mas_lab.widgets.source import Source
from mas_lab.widgets.states import PATIENCE, States
from mas_lab.widgets.text import escape_control_chars

LIMIT = 1_500_000
"""Maximum bytes of episodes on the page of spikes."""
MOST = 64
"""Maximum number of episodes on that page."""
NEEDED = {"episode", "agent", "completion"}

Spikes = Sequence[Mapping[str, Any]]


def episodes_of(spikes: Spikes, source: Source) -> dict[str, Any] | None:
    """Return the data for `MasLabRollouts.mount`, or `None` if the turns name no episodes.

    It takes the episode of each spike's largest sample, then of each spike's second, and so on, while there is room.
    """
    steps = {spike["step"]: source.turns(spike["step"]) for spike in spikes}
    if not steps or any(not set(turns.columns) >= NEEDED for turns in steps.values()):
        return None
    held = Source(pd.concat([turns.assign(step=step) for step, turns in steps.items()]), source.agents)
    index = index_of(held)
    reading = Reading(source, states=States(source, patience=PATIENCE), shares=_shares(spikes))
    names = list(zip(index["step"], index["episode"], strict=True))
    room = Room(lambda place: reading.with_groups(*names[place], MEMBERS))
    wanted = [names.index(named) for named in _wanted(spikes, steps)[:MOST]]
    room.take_all(wanted[:1], float("inf"))
    room.take_all(wanted, LIMIT)
    told = room.data(index)
    told["shades"].sort(key=lambda name: name != "share")  # "share" comes first here
    agents = {escape_control_chars(agent): color for agent, color in colors(source.agents).items()}
    return {**told, "agents": agents, "runs": [held.title], "at": ""}


def _shares(spikes: Spikes) -> Shares:
    """Return the token shares of each row, those of its highest spike if there are several; proxies are left out."""
    exact = [spike for spike in spikes if spike.get("exact", True)]
    return {(spike["step"], int(row)): own for spike in exact[::-1] for row, own in spike["tokens"].items()}


def _wanted(spikes: Spikes, steps: Mapping[int, pd.DataFrame]) -> list[tuple[int, str]]:
    """Return (step, episode) of samples with tokens, each once: every spike's largest, then its second, and so on."""
    columns = []
    for spike in spikes:
        names = steps[spike["step"]]["episode"]
        largest = sorted(map(int, spike["tokens"]), key=lambda row: -abs(spike["rows"][str(row)]))
        columns.append([(spike["step"], names.iloc[row]) for row in largest])
    return list(dict.fromkeys(named for rank in zip_longest(*columns) for named in rank if named is not None))
