"""RolloutViewer: find the telling episode of a run and walk it: who heard what, what was kept and what it earned.

The page is client-side: it holds the telling episodes of all steps up to a limit, works offline and by keyboard, and
its address names what is open. Leaves out: gradients (`spikes`).
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from mas_lab.cells.advantages import in_words
from mas_lab.env import Env, Task
from mas_lab.explain.index import RULE, in_order
from mas_lab.progress import front_end
from mas_lab.table import TableError, column, require
from mas_lab.widgets.address import address, fields
from mas_lab.widgets.answers import Answers
from mas_lab.widgets.bridge import connect, new_name
from mas_lab.widgets.choice import Room, filled
from mas_lab.widgets.document import beside as in_notebook
from mas_lab.widgets.document import document, escape, frame, live_or_static, table_html, write
from mas_lab.widgets.episodes import NUMBERS
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.index import index_of
from mas_lab.widgets.live import LIVE
from mas_lab.widgets.reading import MEMBERS, Reading
from mas_lab.widgets.shares import token_shares
from mas_lab.widgets.source import Source
from mas_lab.widgets.states import PATIENCE, States
from mas_lab.widgets.text import for_plotly, visible

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

PARTS = ("parts", "filter", "marks", "address", "kernel", "source", "walk", "tree", "tokens", "candidate", "episode",
         "cells", "index", "pane", "bar", "acts", "viewer")  # fmt: skip
SCRIPTS = ("parts.js", *(f"rollouts_{part}.js" for part in PARTS), "rollouts.js")
"""The page's scripts; without `#rollouts`, `MasLabRollouts.mount(root, data)` puts the viewer anywhere on a page."""
STYLES = ("rollouts.css",)
HEIGHT = 760
"""Of its frame in a notebook, in pixels."""
TEN = 10
"""Rows of the index that are shown where no script runs."""


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

    Where an env draws its states (`draw`), each decision has a picture of the one before it: of a run of the kit's own
    env by itself, else `env`, and `tasks` where they were not drawn by seed 0 (see `states.States`). A token's share of
    the gradient is that of `shares`, the table of `lab.attribute` on the turns of `x`, or what a `SpikeWatch` recorded;
    its entropy stands in the column that `lab.entropies` adds.
    """

    def __init__(
        self,
        x: Any,
        episode: str | None = None,
        beside: Any = None,
        env: Env | None = None,
        team: Any = None,
        agents: Sequence[str] | None = None,
        shares: pd.DataFrame | None = None,
        at: str | None = None,
        limit_mb: float = 4.0,
        tasks: Sequence[Task] = (),
    ):
        sources = [Source(one, agents) for one in ([x] if beside is None else [x, beside])]
        for source in sources if team is not None else ():
            source.use_team(team)
        self.index = in_order(pd.concat([index_of(source, run) for run, source in enumerate(sources)]))
        self._states = [States(source, env, tasks, PATIENCE) for source in sources]
        found = [token_shares(source, given) for source, given in zip(sources, (shares, None), strict=False)]
        self._readings = [Reading(source, run, self._states[run], found[run]) for run, source in enumerate(sources)]
        self._limit, self._at, self._asked = limit_mb * 1e6, "", None
        if episode is not None:
            self._asked = self.index.index[self.index["episode"] == episode].tolist()
            if not self._asked:
                raise TableError(f"RolloutViewer: no episode {episode!r} in {self.title}; `.index` names them")
        self._opened = None if at is None else self._place(at)
        self._bridges: list[Any] = []

    @property
    def source(self) -> Source:
        return self._readings[0].source

    @property
    def title(self) -> str:
        return " beside ".join(reading.source.title for reading in self._readings)

    def _place(self, at: str) -> int:
        """The row of the index that an address names; `_at` is the address anew."""
        told = fields(at)
        step, run, episode = told.get("step", ""), told.get("run", "0"), told.get("episode")
        if not (step.isdecimal() and run.isdecimal() and episode):
            raise ValueError(f"RolloutViewer: at={at!r} is no address of an episode; .link(step, episode) gives one")
        own = (self.index["step"] == int(step)) & (self.index["run"] == int(run))
        names = self.index.loc[own, "episode"]
        if (found := names.index[names.map(visible) == episode]).empty:
            raise TableError(
                f"RolloutViewer: no episode {episode!r} at step {step} in {self.title}; `.index` names them"
            )
        self._at = address(**told)
        return int(found[0])

    def link(self, step: int, episode: str, node: str | None = None, run: int | None = None) -> str:
        """The part of an address that opens an episode on the page, or a node of it: `#step=3&episode=...`."""
        return address(run=run, step=step, episode=episode, node=node)

    @cached_property
    def _room(self) -> Room:
        """What the page holds."""
        first = [] if self._opened is None else [self._opened]
        if self._asked is None:
            room = filled(self.index, self._read, self._limit, first)
        else:
            room = Room(self._read)
            room.take_all(dict.fromkeys([*first, *self._asked]), float("inf"))
        for states in self._states:  # what is asked for later is asked for by itself
            states.patience = float("inf")
        return room

    def _read(self, place: int) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
        """The episode of a row of the index, and its comparison groups under the names that a page gives them."""
        run, step, name = (self.index[column].iat[place] for column in ("run", "step", "episode"))
        return self._readings[run].with_groups(int(step), name, MEMBERS)

    @property
    def episodes(self) -> list[str]:
        """The names of the episodes on the page, the most telling first."""
        return self.index["episode"].iloc[sorted(self._room.episodes)].tolist()

    def __repr__(self) -> str:
        return f"RolloutViewer({self.title}: {len(self.index)} episodes)"

    def _first(self) -> tuple[pd.Series, pd.DataFrame]:
        """The episode that opens: its row of the index, and its table."""
        asked = self._opened if self._opened is not None else (self._asked or [0])[0]
        row = self.index.iloc[asked]
        rows = self._readings[row["run"]].rows(int(row["step"]), row["episode"])
        return row, pd.DataFrame({name: pd.Series([one[name] for one in rows], dtype=object) for name in rows[0]})

    def figure(self) -> "Figure":
        """What each candidate of the most telling episode earned, or of the one asked for, over the episode."""
        return episode_timeline(self._first()[1], self.source.agents)

    def data(self) -> dict[str, Any]:
        """What the page shows, as plain data."""
        agents = dict.fromkeys(agent for reading in self._readings for agent in reading.source.agents)
        return {
            "agents": {visible(agent): color for agent, color in colors(list(agents)).items()},
            "runs": [visible(reading.source.title) for reading in self._readings],
            "at": self._at, **self._room.data(self.index),
        }  # fmt: skip

    def page(self) -> str:
        title, data = "Who said what", self.data()
        told = ". ".join([self.title, *filter(None, dict.fromkeys(states.told for states in self._states))])
        body = (
            f'<p class="quiet">{escape(told)}</p>'
            f'<div id="rollouts">{self.static()}</div>'  # where no script replaces it
        )
        return document(title, body, data, scripts=SCRIPTS, styles=STYLES)

    def static(self) -> str:
        """The ten most telling rows of the index, and the first episode as it was played, as tables."""
        index = self.index.head(TEN).astype({"success": object})
        index = index.assign(success=index["success"].map({True: "yes", False: "no"}).fillna("–"))
        index.insert(0, "telling", index.pop("telling"))  # a narrow viewer cuts the last columns off
        caption = f"The most telling of {len(self.index)} episodes. {RULE}"
        row, turns = self._first()
        kept = turns[column(turns, "kept").astype(bool)].sort_values("depth", kind="stable")
        shown = [name for name in ("agent", "turn", "prompt", "completion", *NUMBERS[:2], "advantage") if name in kept]
        kept = kept.assign(advantage=kept["advantage"].map(in_words)) if "advantage" in kept else kept
        played = table_html(kept[shown], f"Episode {row['episode']} of step {row['step']}, as it was played")
        return table_html(index.drop(columns=[] if len(self._readings) > 1 else "run"), caption) + played

    def to_html(self, path: str | Path) -> Path:
        """One standalone file that works offline."""
        return write(path, self.page())

    def _repr_html_(self, name: str = "") -> str:
        return live_or_static(frame(self.page(), repr(self), HEIGHT, name), in_notebook(self.static()))

    def _ipython_display_(self) -> None:
        """Where a widget lives, the page reaches the whole run; elsewhere IPython shows the page alone."""
        if front_end() not in LIVE:
            raise NotImplementedError
        from IPython.display import display

        name = new_name()
        display({"text/plain": repr(self), "text/html": self._repr_html_(name)}, raw=True)
        self._bridges.append(connect(name, self._answers.answer))

    def beside_widgets(self) -> str:
        """Its HTML for an output beside widgets that live, through which the page reaches the whole run too."""
        name = new_name()
        self._bridges.append(connect(name, self._answers.answer, is_first=False))
        return self._repr_html_(name)

    def let_go(self) -> None:
        """What is shown of it reaches the kernel no more."""
        while self._bridges:
            self._bridges.pop().close()

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.index, self._readings)

    @property
    def marks(self) -> pd.DataFrame:
        """What somebody marked on the page, with notes, as far as a live kernel heard of it."""
        return self._answers.marks
