"""RolloutViewer: find the most telling episodes of a run, and read them turn by turn.

It shows each agent's prompt, the kept candidates, and what they earned. The page is client-side: it holds the most
telling episodes of all steps up to a limit. It works offline and by keyboard, and its address names what is open. This
module leaves out gradients (`spikes`).
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pandas as pd
from plotly.graph_objects import Figure

from mas_lab.explain.index import RULE, in_order
from mas_lab.table import TableError, column, require
from mas_lab.widgets.document import Framed, document, escape, table_html
from mas_lab.widgets.episodes import NUMBERS, Reading, in_rounds, in_words, index_of, page_data, recorded_shares
from mas_lab.widgets.figures import LAYOUT, colors
from mas_lab.widgets.source import Source
from mas_lab.widgets.text import escape_control_chars, for_plotly

SCRIPTS = ("parts.js", "rollouts_source.js", "rollouts_index.js", "rollouts_episode.js", "rollouts.js")
"""Scripts of the page. Without `#rollouts`, `mount(root, data)` puts the viewer anywhere on a page."""
STYLES = ("rollouts.css",)
TEN = 10
"""Rows of the index that are shown where no script runs."""
FIELDS = ("run", "step", "episode", "node", "candidate")
"""Parts of an address within the page."""


def address(**where: Any) -> str:
    """Return `#run=0&step=3&...` with the given `FIELDS` that are not `None`, with names as a page shows them."""
    fields = {name: escape_control_chars(str(where[name])) for name in FIELDS if where.get(name) is not None}
    return "#" + urlencode(fields)


def episode_timeline(turns: pd.DataFrame, agents: Sequence[str]) -> Figure:
    """Draw an episode over its depth: a mark per candidate at its credit (or reward), filled if it was kept."""
    figure, shades = Figure(), colors(agents)
    value = "credit" if "credit" in turns.columns else "local_reward"
    require(turns, ["episode", "agent", value], "episode_timeline")
    rows = turns.assign(depth=column(turns, "depth"), kept=column(turns, "kept").astype(bool))
    for agent in agents:
        own = rows[rows["agent"] == agent].astype({"depth": float, value: float})
        signs = ["circle" if followed else "circle-open" for followed in own["kept"]]
        figure.add_scatter(x=own["depth"], y=own[value], mode="markers", name=for_plotly(agent),
                           marker={"color": shades[agent], "symbol": signs, "size": 10})  # fmt: skip
    figure.update_layout(**LAYOUT, yaxis_title=f"{value} (filled: kept)")
    return figure.update_xaxes(title_text="environment step in the episode")


class RolloutViewer(Framed):
    """Find an episode and read it: prompts, all candidates, the kept one, rewards, and the log p of each token.

    A notebook shows the viewer as it is. Use `.figure()` and `.to_html(path)`. A page opens on `.index`, a table with a
    row per episode. It holds the most telling episodes of all steps, as ranked by `explain.index.RULE`.

    Tokens show their entropy if the table has the column that `lab.entropies` adds, and their share of the gradient at
    the spikes that a kept run recorded. A chain of digits (`solve 3 + 4`)
    stands with its running values and the right answer.

    Args:
        x: A table of turns, one report or several, a run, its path, or a live dashboard.
        beside: A second source of the same kinds as `x`, to read both side by side, task by task.
        team: Team whose tokenizers give tokens their text. A run's own checkpoint does so without it.
        agents: Names of the agents, in acting order. `None` takes them from `x`.
        at: Address from `.link`, at which the page opens. `None` opens on the index.
        limit_mb: Maximum size of the episodes on a page, in megabytes. In a stored notebook they take a third more.

    Raises:
        RunError: If there is no readable run at the path.
        TableError: If `x` is empty or lacks a column, or if there is no such episode.
        TypeError: If `x` is none of the above.
        ValueError: If `at` is not the address of an episode.
    """

    def __init__(
        self,
        x: Any,
        beside: Any = None,
        team: Any = None,
        agents: Sequence[str] | None = None,
        at: str | None = None,
        limit_mb: float = 0.6,
    ):
        sources = [Source(one, agents, team) for one in ([x] if beside is None else [x, beside])]
        self.index = in_order(pd.concat([index_of(source, run) for run, source in enumerate(sources)]))
        self._readings = [Reading(source, run, recorded_shares(source)) for run, source in enumerate(sources)]
        self._limit, self._at = limit_mb * 1e6, ""
        self._opened = None if at is None else self._place(at)

    @property
    def source(self) -> Source:
        """Return the source of `x`."""
        return self._readings[0].source

    @property
    def title(self) -> str:
        """Return the titles of the sources."""
        return " beside ".join(reading.source.title for reading in self._readings)

    def _place(self, at: str) -> int:
        """Return the index row that an address names, and write the address anew into `_at`."""
        fields = dict(parse_qsl(at.removeprefix("#")))
        try:
            step, run, episode = int(fields["step"]), int(fields.get("run", 0)), fields["episode"]
        except (KeyError, ValueError):
            raise ValueError(
                f"RolloutViewer: at={at!r} is no address of an episode; .link(step, episode) gives one"
            ) from None
        names = self.index.loc[(self.index["step"] == step) & (self.index["run"] == run), "episode"]
        if (found := names.index[names.map(escape_control_chars) == episode]).empty:
            raise TableError(
                f"RolloutViewer: no episode {episode!r} at step {step} in {self.title}; `.index` names them"
            )
        self._at = address(**fields)
        return int(found[0])

    def link(self, step: int, episode: str, node: str | None = None, run: int | None = None) -> str:
        """Make the part of an address that opens an episode, or one of its nodes: `#step=3&episode=...`.

        Args:
            step: Training step of the episode, from 0.
            episode: Name of the episode.
            node: Node of the episode to open. `None` names no node.
            run: 0 for `x`, 1 for `beside`. `None` names no run, and the page takes `x`.

        Returns:
            Text to append to the address of the page.
        """
        return address(run=run, step=step, episode=episode, node=node)

    @cached_property
    def _content(self) -> dict[str, Any]:
        """Return the content of the page."""
        first = [] if self._opened is None else [self._opened]
        return page_data(self.index, self._read, in_rounds(self.index), self._limit, first)

    def _read(self, place: int) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
        """Return the episode of an index row, and its comparison groups under the names that a page gives them."""
        run, step, name = (self.index[column].iat[place] for column in ("run", "step", "episode"))
        return self._readings[run].with_groups(int(step), name)

    @property
    def episodes(self) -> list[str]:
        """Return the names of the episodes on the page, the most telling first."""
        return [episode["name"] for episode in self._content["episodes"]]

    def __repr__(self) -> str:
        return f"RolloutViewer({self.title}: {len(self.index)} episodes)"

    def _first(self) -> tuple[pd.Series, pd.DataFrame]:
        """Return the episode that opens: its row of the index, and its table."""
        row = self.index.iloc[self._opened or 0]
        rows = self._readings[row["run"]].rows(int(row["step"]), row["episode"])
        return row, pd.DataFrame({name: pd.Series([one[name] for one in rows], dtype=object) for name in rows[0]})

    def figure(self) -> Figure:
        """Draw what each candidate earned, over the course of the episode that opens.

        Returns:
            Plotly figure of the most telling episode, or of the one that `at` names.
        """
        return episode_timeline(self._first()[1], self.source.agents)

    def data(self) -> dict[str, Any]:
        """Collect what the page shows.

        Returns:
            Plain data with the agents' colours, the names of the runs, the address that opens, the index and the
            episodes.
        """
        agents = dict.fromkeys(agent for reading in self._readings for agent in reading.source.agents)
        return {
            "agents": {escape_control_chars(agent): color for agent, color in colors(list(agents)).items()},
            "runs": [escape_control_chars(reading.source.title) for reading in self._readings],
            "at": self._at, **self._content,
        }  # fmt: skip

    def page(self) -> str:
        """Make the page as one standalone document.

        Returns:
            Text of an HTML page.
        """
        body = (
            f'<p class="quiet">{escape(self.title)}</p>{self.source.verdict}'
            f'<div id="rollouts">{self.static()}</div>'  # remains if no script replaces it
        )
        return document("Who said what", body, self.data(), scripts=SCRIPTS, styles=STYLES)

    def static(self) -> str:
        """Make tables of the ten most telling rows of the index, and of the first episode as it was played.

        Returns:
            HTML for viewers in which no script runs.
        """
        index = self.index.head(TEN).astype({"success": object})
        index = index.assign(success=index["success"].map({True: "yes", False: "no"}).fillna("–"))
        index.insert(0, "telling", index.pop("telling"))  # first, because a narrow viewer cuts the last columns off
        caption = f"The most telling of {len(self.index)} episodes. {RULE}"
        row, turns = self._first()
        played = turns[column(turns, "kept").astype(bool)].sort_values("depth", kind="stable")
        columns = [
            name for name in ("agent", "turn", "prompt", "completion", *NUMBERS[:2], "advantage") if name in played
        ]
        played = played.assign(advantage=played["advantage"].map(in_words)) if "advantage" in played else played
        episode = table_html(played[columns], f"Episode {row['episode']} of step {row['step']}, as it was played")
        return table_html(index.drop(columns=[] if len(self._readings) > 1 else "run"), caption) + episode
