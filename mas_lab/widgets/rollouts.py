"""RolloutViewer: walk an episode or a tree, who heard what, all that was said, what was kept and what it earned.

The page is client-side: steps, episodes and branches are chosen in the browser, offline and by keyboard. Leaves out:
gradients (`spikes`), and what a page can not hold of a long run (ask for an episode by name).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.cells.advantages import in_words, listed
from mas_lab.table import TableError, column, require, trained
from mas_lab.widgets.document import beside, document, escape, frame, live_or_static, table_html, write
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly, visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NUMBERS = ("team_reward", "local_reward", "credit", "center", "scale", "advantage", "temperature")
NEEDED = ["episode", "agent", "completion"]


def episode_data(turns: pd.DataFrame, source: Source) -> dict[str, Any]:
    """One episode as plain data: its nodes in order, each with what the agent heard and all of its candidates."""
    nodes: dict[tuple[str, str], dict[str, Any]] = {}
    depths, names, parents = (column(turns, name) for name in ("depth", "node", "parent"))
    rows = turns.assign(depth=depths, node=names, parent=parents, action=column(turns, "action"))
    for row in rows.sort_values(["depth", "node"], kind="stable").to_dict("records"):
        node = nodes.setdefault((row["node"], row["agent"]), {
            "node": visible(row["node"]), "parent": visible(row["parent"]), "depth": int(row["depth"]),
            "agent": visible(row["agent"]), "turn": int(row.get("turn", 0)), "heard": visible(row.get("prompt", "")),
            "candidates": [],
        })  # fmt: skip
        node["candidates"].append(_candidate(row, source))
    first = rows.iloc[0]
    return {
        "name": visible(first["episode"]), "task": visible(first.get("task", "")),
        "success": _success(rows), "nodes": list(nodes.values()),
    }  # fmt: skip


def _candidate(row: dict[str, Any], source: Source) -> dict[str, Any]:
    ids = list(row.get("completion_ids", ()))
    return {
        "index": int(row.get("candidate", 0)), "action": visible(row["action"]), "kept": bool(row.get("kept", True)),
        "valid": bool(row.get("valid", True)), "finish": visible(row.get("finish", "")),
        "said": visible(row["completion"]),
        "numbers": {name: in_words(row[name]) for name in NUMBERS if not _is_missing(row.get(name))},
        "group": visible(row.get("group", "")), "info": _told(row.get("info")),
        "tokens": source.token_texts(row.get("policy", ""), ids),
        "ids": [int(number) for number in ids],
        "logprobs": [round(float(logprob), 4) for logprob in row.get("logprobs", ())],
        "advantages": listed(row.get("advantage")),
    }  # fmt: skip


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _told(info: Any) -> str:
    """What the environment told of the step, as JSON; empty where it told nothing."""
    return visible(json.dumps(info, ensure_ascii=False)) if info else ""


def _success(rows: pd.DataFrame) -> bool | None:
    """Did any path that was followed reach the goal?"""
    kept = rows[column(rows, "kept").astype(bool)]
    return bool(kept["success"].any()) if "success" in rows.columns else None


def episode_timeline(turns: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """One episode over its depth: a mark per candidate, at the credit (or reward) it earned; kept ones are filled."""
    from mas_lab.widgets.picture import Figure

    figure, shades = Figure(), colors(agents)
    earned = "credit" if "credit" in turns.columns else "local_reward"
    require(turns, ["episode", "agent", earned], "episode_timeline")
    rows = turns.assign(depth=column(turns, "depth"), kept=column(turns, "kept").astype(bool))
    for agent in agents:
        own = rows[rows["agent"] == agent].astype({"depth": float, earned: float})
        signs = ["circle" if kept else "circle-open" for kept in own["kept"]]
        figure.add_scatter(x=own["depth"], y=own[earned], mode="markers", name=for_plotly(agent),
                           marker={"color": shades[agent], "symbol": signs, "size": 10})  # fmt: skip
    figure.update_layout(
        **LAYOUT, xaxis_title="environment step in the episode", yaxis_title=f"{earned} (filled: kept)"
    )
    return figure


class RolloutViewer:
    """Read episodes and trees: prompts, all candidates, which was kept, rewards, and every token with its log p.

    `x`: a table of turns, a report or several, a run or its path. The page holds `per_step` episodes of up to `steps`
    training steps, evenly spread, or the one `episode` asked for. `team` gives tokens their text; a run's own
    checkpoint does so by itself. `.figure()`, `.to_html(path)`; a notebook shows it as it is.
    """

    def __init__(
        self,
        x: Any,
        episode: str | None = None,
        per_step: int = 3,
        steps: int = 12,
        agents: Sequence[str] | None = None,
        team: Any = None,
    ):
        self.source = Source(x, agents)
        if team is not None:
            self.source.use_team(team)
        chosen = self.source.some_steps(steps) if episode is None else self.source.steps_of(episode)
        self._episodes = [found for step in chosen for found in self._of_step(step, episode, per_step)]
        if not self._episodes:
            raise TableError(f"RolloutViewer: no episode {episode!r} in {self.source.title}; the table names them")

    def _of_step(self, step: int, episode: str | None, limit: int) -> list[tuple[int, pd.DataFrame]]:
        turns = self.source.turns(step)
        require(turns, NEEDED, "RolloutViewer")
        turns = turns[trained(turns)]
        names = list(turns["episode"].unique())
        names = names[:limit] if episode is None else [name for name in names if name == episode]
        return [(step, turns[turns["episode"] == name]) for name in names]

    @property
    def episodes(self) -> list[str]:
        """The names of the episodes on the page."""
        return [turns["episode"].iloc[0] for _, turns in self._episodes]

    def __repr__(self) -> str:
        return f"RolloutViewer({self.source.title}: {len(self._episodes)} episodes)"

    def figure(self) -> "Figure":
        """What each candidate of the first episode earned, over the episode."""
        return episode_timeline(self._episodes[0][1], self.source.agents)

    def data(self) -> dict[str, Any]:
        """What the page shows, as plain data: agents with their colours, and the episodes."""
        agents = {visible(agent): color for agent, color in colors(self.source.agents).items()}
        episodes = [{"step": step, **episode_data(turns, self.source)} for step, turns in self._episodes]
        return {"agents": agents, "episodes": episodes}

    def page(self) -> str:
        title = "Who said what"
        body = (
            f'<p class="quiet">{escape(self.source.title)}. {escape(NOTE)}</p>'
            f'<div id="rollouts">{self.static()}</div>'  # where no script replaces it
        )
        return document(title, body, self.data(), scripts=("rollouts.js",))

    def static(self) -> str:
        """The kept path of the first episode as a plain table, for where no script runs."""
        step, turns = self._episodes[0]
        kept = turns[column(turns, "kept").astype(bool)]
        shown = [name for name in ("agent", "turn", "prompt", "completion", *NUMBERS[:2], "advantage") if name in kept]
        kept = kept.assign(advantage=kept["advantage"].map(in_words)) if "advantage" in kept else kept
        return table_html(kept[shown], f"Episode {turns['episode'].iloc[0]} of step {step}, as it was played")

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        return write(path, self.page())

    def _repr_html_(self) -> str:
        return live_or_static(frame(self.page(), repr(self), height=640), beside(self.static()))


NOTE = (
    "Choose a step and an episode. A node lists all candidates that were drawn for one prompt; the state moved on "
    "through the kept one. A token's shade is its surprise, -log p, when it was sampled; where each token has an "
    "advantage of its own, that: orange above 0, blue below."
)
