"""Draw plotly figures from tables by pure functions; the same figure works live, in a stored notebook and in a file.

Names, titles and labels from outside reach plotly only through `text.for_plotly`. plotly is imported when a figure is
drawn. This module leaves out the widgets and pages around figures.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, count, cycle
from zlib import crc32

import numpy as np
import pandas as pd
from plotly.graph_objects import Figure
from plotly.subplots import make_subplots

from mas_lab.display.documented_frame import documented
from mas_lab.explain.uphill import cosine_of
from mas_lab.table import require
from mas_lab.widgets.text import for_plotly

COLORS = ("#CC3311", "#6699CC", "#6B59B0", "#2A8090", "#999933", "#EE3377", "#984F52", "#777777", "#557711", "#EE6677",
          "#997700", "#40A493", "#B34FC9", "#0BA20A", "#1278F0", "#B48A8A")  # fmt: skip
"""Colours after schemes of Paul Tol (technical note SRON/EPS/TN/09-002), and others found by a search. The first seven
are distinct for colour-blind readers too (Machado, Oliveira and Fernandes 2009). For readers who lack one kind of
cones, they are at least 6 apart in OKLab (times 100). The others come with a dash. For readers with all cones, any two
of the sixteen are 8 apart. Each has a contrast of at least 3:1 on both backgrounds of a page, white and #16181b. Each
is at least 5.5 away from each colour of `figures.PALETTE`."""
WELL_APART = 7
KIT = {
    "grpo": 0, "dr_mas": 1, "at_grpo": 2, "magrpo": 3, "grpo_mixed": 4, "dr_mas_mean": 5, "dr_mas_std": 6,
    "grpo_turns": 7, "dr_mas_episodes": 8, "mareinforce": 9, "marloo": 10, "maremax": 11,
    "grpo_masked": 12, "own_pooled": 13, "own_robust": 15,
}  # fmt: skip
"""The place in `COLORS` of the recipes that have a fixed one; the others of the kit take what is free."""
ARMS = {"global": 0, "own": 1, "own mean": 5, "own scale": 6}
"""The places of grpo, dr_mas and its halves under their names in the recorded studies."""
DASHES = ("solid", "dash", "dot", "dashdot")


def recipe_colors(names: Sequence[str]) -> dict[str, str]:
    """Return a colour per recipe, whatever the order of the names.

    The recipes of the kit have fixed colours. A variant such as "grpo (ddof=1)" prefers that of the kit's recipe. Any
    other name prefers one of the first seven. If it is taken, the name takes the next free colour, in alphabetical
    order. Recipes share a colour only if there are more recipes than colours.
    """
    return {name: COLORS[place % len(COLORS)] for name, place in _places(names).items()}


def recipe_dashes(names: Sequence[str]) -> dict[str, str]:
    """Return a dash per recipe, by plotly's names, for readers who cannot tell some colours apart."""
    return {name: DASHES[place // WELL_APART % len(DASHES)] for name, place in _places(names).items()}


def _places(names: Sequence[str]) -> dict[str, int]:
    """Return each name's place in `COLORS`, or a number beyond if all places are taken."""
    taken = {KIT[name]: name for name in dict.fromkeys(names) if name in KIT}
    for name in sorted(set(names) - set(KIT), key=str):
        drawn = crc32(str(name).encode(errors="replace")) % WELL_APART
        first = KIT.get(str(name).partition(" (")[0], ARMS.get(name, drawn))
        around = [(first + more) % WELL_APART for more in range(WELL_APART)]
        taken[next(place for place in chain([first], around, count(WELL_APART)) if place not in taken)] = name
    by_name = {name: place for place, name in taken.items()}
    return {name: by_name[name] for name in names}


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C50F0", "#786428", "#F000C8", "#F0003C")
"""Eight colours, each with a contrast of at least 3:1 on white and on the dark background of a page. The first four are
by Okabe and Ito. Their other colours are too light on white or too dark on the dark background. The last four were
found by a search. For readers with all cones any two of the eight are at least 42 apart in CIELAB. With each colour
blindness simulated (Machado, Oliveira and Fernandes 2009) they are at least 16 apart, as the first four are."""
NEUTRAL = "#767676"
"""Colour of marks that belong to no agent. It is as dark on white as it is light on a dark background."""
LAYOUT = {
    "template": "plotly_white",
    "font": {"family": "system-ui, sans-serif", "size": 13},
    "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
    "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    "hoverlabel": {"namelength": -1},
}
"""Layout of all figures. Hover labels show whole names: plotly would cut them, and `for_plotly` makes some longer."""


def colors(names: Sequence[str]) -> dict[str, str]:
    """Return one colour per name, by its place; pass `env.agents`, so that a role keeps its colour.

    From the ninth on, names take colours of `COLORS`.
    """
    return dict(zip(dict.fromkeys(names), cycle([*PALETTE, *COLORS]), strict=False))


def learning_curves(scores: pd.DataFrame, y: str = "success", y_title: str = "success on held-out tasks") -> Figure:
    """Draw a score over sampled tokens: a thin line per run, a thick line for the mean of each recipe's runs.

    A dot stands where a run was scored. `scores` has the columns `recipe`, `seed`, `tokens` (sampled so far), and `y`.
    """
    figure = recipe_lines(scores, "tokens", y)
    figure.update_layout(xaxis_title="sampled tokens", yaxis_title=for_plotly(y_title), yaxis_range=[0, 1])
    return figure.update_xaxes(rangemode="nonnegative")


def uphill_dots(found: pd.DataFrame) -> Figure:
    """Draw the table of `lab.uphill`: a row per agent, and a dot per recipe with its interval, from -1 to 1.

    The dots are `cos_own`, or `cos_team` where own rewards never differ. A hollow dot is untold.
    """
    require(found, ["agent", "recipe", "verdict"], "uphill_dots")
    agents, recipes = list(dict.fromkeys(found["agent"])), list(dict.fromkeys(found["recipe"]))
    shades, figure = recipe_colors(recipes), Figure()
    for place, recipe in enumerate(recipes):
        own = found[found["recipe"] == recipe]
        x = cosine_of(own)
        y = [-agents.index(agent) - 0.6 * (place + 0.5) / len(recipes) + 0.3 for agent in own["agent"]]
        signs = ["circle-open" if verdict == "untold" else "circle" for verdict in own["verdict"]]
        figure.add_scatter(
            x=x, y=y, mode="markers", name=for_plotly(recipe), hovertext=own["verdict"],
            marker={"color": shades[recipe], "size": 10, "symbol": signs},
            error_x={"array": own["high"] - x, "arrayminus": x - own["low"], "color": shades[recipe], "thickness": 2},
            hoverinfo="x+text",
        )  # fmt: skip
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1})
    names = {"tickvals": [-place for place in range(len(agents))], "ticktext": list(map(for_plotly, agents))}
    figure.update_layout(**LAYOUT, height=140 + 26 * len(agents) * max(1, len(recipes) // 2))
    figure.update_yaxes(**names)
    return figure.update_xaxes(range=[-1, 1], title_text="downhill  ←  cosine with the agent's own reward  →  uphill")


def norm_lines(norms: pd.DataFrame, y: str = "policy_norm") -> Figure:
    """Draw gradient norms over training steps: a thin line per run, a thick line for the mean of each recipe's runs.

    `norms` has the columns `recipe`, `seed`, `step`, and `y`, and one row per step. A norm of 0 leaves a gap.
    """
    figure = recipe_lines(norms.assign(**{y: norms[y].where(norms[y] > 0)}), "step", y, every=True)
    figure.update_layout(xaxis_title="training step", yaxis_title="largest gradient norm (log scale)")
    return figure.update_yaxes(type="log", dtick="D2")


def recipe_lines(table: pd.DataFrame, x: str, y: str, every: bool = False, among: Sequence[str] = ()) -> Figure:
    """Draw each recipe's runs and mean; without `every`, each run has its own `x` and is drawn as dots and lines.

    `among`: other recipes on the page, so that each keeps its colour.
    """
    names = [*table["recipe"], *among]
    figure, shades, dashes = Figure(), recipe_colors(names), recipe_dashes(names)
    for recipe, runs in table.groupby("recipe", sort=False):
        name, line = for_plotly(recipe), {"color": shades[recipe], "dash": dashes[recipe]}
        for _, run in runs.groupby("seed"):
            figure.add_scatter(
                x=run[x], y=run[y], mode="lines" if every else "lines+markers", line=line | {"width": 1},
                marker={"size": 5}, opacity=0.35, cliponaxis=False, name=name, legendgroup=name, showlegend=False,
                hoverinfo="skip",
            )  # fmt: skip
        least = runs.groupby("seed")[x].max().min()
        grid = np.unique(runs.loc[runs[x] <= least, x]) if every else np.linspace(runs[x].min(), least, 60)
        each = [np.interp(grid, run[x], run[y]) for _, run in runs.groupby("seed")]
        figure.add_scatter(x=grid, y=np.mean(each, axis=0), mode="lines", line=line | {"width": 3}, cliponaxis=False,
                           name=name, legendgroup=name)  # fmt: skip
    return figure.update_layout(**LAYOUT)


def dialogue(turns: pd.DataFrame, episode: str) -> pd.DataFrame:
    """Return one episode as it was played: its kept rows in order, with each agent's prompt, completion and rewards."""
    require(turns, ["episode", "depth", "agent", "prompt", "completion", "team_reward", "local_reward"], "dialogue")
    played = turns[(turns["episode"] == episode) & turns["kept"].astype(bool)].sort_values("depth", kind="stable")
    if played.empty:
        raise ValueError(f"dialogue: no kept row of episode {episode!r} in the table")
    prompts = played["prompt"].str.replace(r"^user: ", "", regex=True)
    texts = played["completion"].where(played["completion"] != "", "(nothing)")
    named = {"turn": played["turn"], "agent": played["agent"], "hears": prompts, "says": texts}
    rewards = {"team_reward": played["team_reward"].round(2), "local_reward": played["local_reward"].round(2)}
    return documented(pd.DataFrame(named | rewards | {"success": played["success"]}).reset_index(drop=True), "dialogue")


def mazes(env, task, played: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw the path of one `plan_path` task in each of several tables of turns, side by side.

    `played`: title -> turns. The first episode of the task in each table is drawn.
    """
    titles = list(map(for_plotly, played))
    figure = make_subplots(rows=1, cols=len(played), subplot_titles=titles, horizontal_spacing=0.08)
    for column, (title, turns) in enumerate(played.items(), start=1):
        if not (turns["task"] == task.id).any():
            raise ValueError(f"mazes: task {task.id!r} was not played in the table {title!r}")
        _maze(figure, env.start(task).floor, way(env, task, turns), column)
    return figure.update_layout(**{**LAYOUT, "showlegend": False}, height=380, width=340 * len(played))


def way(env, task, turns: pd.DataFrame) -> list[tuple[int, int]]:
    """Return the cells that the first episode of a `plan_path` task visited, from the start on."""
    own = turns[(turns["task"] == task.id) & turns["kept"].astype(bool)]
    own = own[own["episode"] == own["episode"].iloc[0]].sort_values("depth")
    state = env.start(task)
    path = [state.place[0]]
    for agent, text in zip(own["agent"], own["completion"], strict=True):
        if agent == env.agents[-1]:
            path += [cell for cell, _ in state.floor.walk(state.place, env.read(text) or ())[1:]]
        state = env.step(state, {agent: text}).state
    return path


def _maze(figure: Figure, maze, path: Sequence[tuple[int, int]], column: int) -> None:
    cells = np.zeros((maze.size, maze.size))
    for x, y in maze.walls:
        cells[y, x] = 1.0
    x, y = zip(*path, strict=True)
    figure.add_heatmap(z=cells, colorscale=[[0, "#f4f4f4"], [1, "#44546a"]], showscale=False, xgap=2, ygap=2,
                       hoverinfo="skip", row=1, col=column)  # fmt: skip
    line = {"color": PALETTE[1], "width": 4}
    figure.add_scatter(x=x, y=y, mode="lines+markers", line=line, marker={"size": 9}, row=1, col=column)
    for (x, y), mark in zip((path[0], *maze.targets), ("start", "goal"), strict=True):
        shift = -16 if (x, y - 1) in path else 16  # keep the text off the path
        figure.add_annotation(x=x, y=y, text=f"<b>{mark}</b>", showarrow=False, yshift=shift,
                              font_color="#1c1c1c", row=1, col=column)  # fmt: skip
    ticks = list(range(maze.size))
    letters, numbers = list("abcdefghijklmnopqrstuvwxyz"[: maze.size]), [str(row + 1) for row in ticks]
    square = {"scaleanchor": "x" if column == 1 else f"x{column}", "autorange": "reversed"}
    figure.update_xaxes(tickvals=ticks, ticktext=letters, showgrid=False, zeroline=False, row=1, col=column)
    figure.update_yaxes(tickvals=ticks, ticktext=numbers, showgrid=False, zeroline=False, **square, row=1, col=column)
