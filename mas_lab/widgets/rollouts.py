"""RolloutViewer: find the telling episode of a run and walk it: who heard what, what was kept and what it earned.

The page is client-side: it holds the telling episodes of all steps up to a limit, works offline and by keyboard, and
its address names what is open. Leaves out: gradients (`spikes`).
"""

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import pandas as pd

from mas_lab.cells.advantages import in_words
from mas_lab.explain.index import RULE, TOLD, in_order
from mas_lab.table import TableError, column, require
from mas_lab.widgets.document import beside as in_notebook
from mas_lab.widgets.document import document, escape, frame, live_or_static, table_html, write
from mas_lab.widgets.episodes import NUMBERS, SHADES, episode_data, member
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.index import choice, index_of
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import for_plotly, visible, visible_data

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PARTS = ("parts", "filter", "marks", "address", "kernel", "source", "walk", "tree", "tokens", "episode", "index",
         "pane", "bar", "viewer")  # fmt: skip
SCRIPTS = (*(f"rollouts_{part}.js" for part in PARTS), "rollouts.js")
"""The page's scripts; without `#rollouts`, `MasLabRollouts.mount(root, data)` puts the viewer anywhere on a page."""
STYLES = ("rollouts.css",)
MEMBERS = 100
"""Members of a comparison group that a page lists."""


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
    """Find an episode and read it: prompts, all candidates, which was kept, rewards, and every token with its log p.

    `x`: a table of turns, a report or several, a run or its path, a live dashboard. `beside`: another such, to be read
    side by side, task by task. A page opens on `.index`, a row per episode, and holds the telling ones of all steps up
    to `limit_mb`, or the one `episode` asked for. `at`: where it opens, an address that `.link` gave. `team` gives
    tokens their text; a run's own checkpoint does so by itself. `.figure()`, `.to_html(path)`; a notebook shows it as
    it is.
    """

    def __init__(
        self,
        x: Any,
        episode: str | None = None,
        beside: Any = None,
        env: Any = None,
        team: Any = None,
        agents: Sequence[str] | None = None,
        shares: pd.DataFrame | None = None,
        at: str | None = None,
        limit_mb: float = 4.0,
    ):
        self.sources = [Source(one, agents) for one in ([x] if beside is None else [x, beside])]
        for source in self.sources if team is not None else ():
            source.use_team(team)
        self.index = in_order(pd.concat([index_of(source, run) for run, source in enumerate(self.sources)]))
        self._limit, self._at, self._first = limit_mb * 1e6, "", []
        self._is_one = episode is not None
        if episode is not None:
            self._first = self.index.index[self.index["episode"] == episode].tolist()
            if not self._first:
                raise TableError(f"RolloutViewer: no episode {episode!r} in {self.title}; .index names them")
        if at is not None:
            self._at, place = self._read(at)
            self._first = [place, *self._first]

    @property
    def source(self) -> Source:
        return self.sources[0]

    @property
    def title(self) -> str:
        return " beside ".join(source.title for source in self.sources)

    def _read(self, at: str) -> tuple[str, int]:
        """(the address anew, the row of the index that it names)."""
        told = dict(parse_qsl(at.removeprefix("#")))
        step, run = told.get("step", ""), told.get("run", "0")
        if not (step.isdigit() and run.isdigit() and "episode" in told):
            raise ValueError(f"RolloutViewer: at={at!r} is no address; .link(step, episode) gives one")
        index = self.index
        own = (index["step"] == int(step)) & (index["run"] == int(run)) & (index["episode"] == told["episode"])
        if not own.any():
            raise TableError(f"RolloutViewer: no episode {told['episode']!r} at step {step} in {self.title}")
        return self.link(int(step), told["episode"], told.get("node"), int(run)), int(own.idxmax())

    def link(self, step: int, episode: str, node: str | None = None, run: int | None = None) -> str:
        """The part of an address that opens an episode on the page, or a node of it: `#step=3&episode=...`."""
        told = {"run": run, "step": step, "episode": episode, "node": node}
        return "#" + urlencode({name: visible(str(value)) for name, value in told.items() if value is not None})

    @cached_property
    def _chosen(self) -> dict[int, dict[str, Any]]:
        """The episodes on the page by their rows of the index, in its order."""
        chosen: dict[int, dict[str, Any]] = {}
        used, refused = 0, 0
        for place in self._wanted(chosen):
            data = self.episode(place)
            size = len(json.dumps(data, separators=(",", ":")))
            if chosen and used + size > self._limit and place not in self._first:
                refused += 1
                if refused > 20:
                    break
                continue
            chosen[place], used = data, used + size
        return dict(sorted(chosen.items()))

    def _wanted(self, chosen: dict[int, Any]) -> Iterator[int]:
        """What to try next; each once."""
        tried = set()
        for place in (*self._first, *(() if self._is_one else choice(self.index))):
            if place not in tried:
                tried.add(place)
                yield place

    def episode(self, place: int) -> dict[str, Any]:
        """One row of the index as plain data."""
        row = self.index.iloc[place]
        source, step = self.sources[row["run"]], int(row["step"])
        rows = source.rows(step, "episode", [row["episode"]])
        return {"run": int(row["run"]), "step": step, **episode_data(rows, source)}

    @property
    def episodes(self) -> list[str]:
        """The names of the episodes on the page, the most telling first."""
        return self.index["episode"].iloc[list(self._chosen)].tolist()

    def __repr__(self) -> str:
        return f"RolloutViewer({self.title}: {len(self.index)} episodes)"

    def figure(self) -> "Figure":
        """What each candidate of the most telling episode earned, over the episode."""
        return episode_timeline(self._shown(), self.source.agents)

    def _shown(self) -> pd.DataFrame:
        """The rows of the first episode on the page."""
        row = self.index.iloc[next(iter(self._first), 0)]
        source = self.sources[row["run"]]
        rows = source.rows(int(row["step"]), "episode", [row["episode"]])
        return pd.DataFrame({name: pd.Series([one[name] for one in rows], dtype=object) for name in rows[0]})

    def data(self) -> dict[str, Any]:
        """What the page shows, as plain data."""
        agents = dict.fromkeys(agent for source in self.sources for agent in source.agents)
        chosen = list(self._chosen.values())
        known = {
            name for one in chosen for node in one["nodes"] for said in node["candidates"] for name in said["shades"]
        }
        return {
            "agents": {visible(agent): color for agent, color in colors(list(agents)).items()},
            "runs": [visible(source.title) for source in self.sources],
            "index": plain(self.index.iloc[list(self._chosen)]),
            "told": TOLD, "rule": RULE, "total": len(self.index), "left_out": len(self.index) - len(chosen),
            "episodes": chosen, "groups": self._groups(), "at": self._at,
            "shades": [name for name in SHADES if name in known],
        }  # fmt: skip

    def _groups(self) -> dict[str, list[dict[str, Any]]]:
        """The comparison groups of the rows on the page: all of their members, wherever these are."""
        wanted: dict[tuple[int, int], set[str]] = {}
        for place in self._chosen:
            row = self.index.iloc[place]
            source = self.sources[row["run"]]
            rows = source.rows(int(row["step"]), "episode", [row["episode"]])
            wanted.setdefault((int(row["run"]), int(row["step"])), set()).update(
                one["group"] for one in rows if one.get("group")
            )
        found = {}
        for (run, step), groups in wanted.items():
            rows = self.sources[run].rows(step, "group", sorted(groups)) if groups else []
            for row in rows:
                members = found.setdefault(f"{run}|{step}|{visible(row['group'])}", [])
                if len(members) < MEMBERS:
                    members.append(member(row))
        return found

    def page(self) -> str:
        title = "Who said what"
        body = (
            f'<p class="quiet">{escape(self.title)}</p>'
            f'<div id="rollouts">{self.static()}</div>'  # where no script replaces it
        )
        return document(title, body, self.data(), scripts=SCRIPTS, styles=STYLES)

    def static(self) -> str:
        """The kept path of the first episode as a plain table, for where no script runs."""
        turns = self._shown()
        require(turns, ["episode", "agent", "completion"], "RolloutViewer")
        kept = turns[column(turns, "kept").astype(bool)].sort_values("depth", kind="stable")
        shown = [name for name in ("agent", "turn", "prompt", "completion", *NUMBERS[:2], "advantage") if name in kept]
        kept = kept.assign(advantage=kept["advantage"].map(in_words)) if "advantage" in kept else kept
        row = self.index.iloc[next(iter(self._first), 0)]
        return table_html(kept[shown], f"Episode {row['episode']} of step {row['step']}, as it was played")

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        return write(path, self.page())

    def _repr_html_(self) -> str:
        return live_or_static(frame(self.page(), repr(self), height=640), in_notebook(self.static()))


def plain(index: pd.DataFrame) -> dict[str, list[Any]]:
    """Columns of an index as plain data: texts visible, numbers to four decimals, null where there is none."""
    found = {}
    for name in TOLD:
        values = index[name].astype(object).where(index[name].notna(), None).tolist()
        found[name] = [round(one, 4) if isinstance(one, float) else one for one in visible_data(values)]
    return found
