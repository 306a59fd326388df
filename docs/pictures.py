"""Draws the README's pictures: `python docs/pictures.py [name ...]`.

The curves, the spike, its rewards and the board come from the recorded runs in `data/results/`; the others from a short
training of their own, a few minutes in all. Needs `pip install kaleido pillow` and a Chrome or
Chromium (BROWSER_PATH names it where it is not found). Leaves out: the figures themselves (`mas_lab.widgets`).
"""

import argparse
import html
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from io import BytesIO
from pathlib import Path

import pandas as pd
from PIL import Image, ImageChops
from plotly import graph_objects as go
from plotly.subplots import make_subplots

import mas_lab as lab
from mas_lab.demo import trials as demo
from mas_lab.paths import data_dir
from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded
from mas_lab.widgets.figures import LAYOUT, colors, recipe_colors
from mas_lab.widgets.rewards import two_baselines

HERE, RESULTS = Path(__file__).parent, data_dir() / "results"
WIDTH, LETTERS = 880, 18
"""Pixels of a picture as the README shows it, and of its letters: half of that is still legible."""
SEED = 0
ADDS = {
    "1 rollout": ["agent", "completion", "team_reward", "local_reward"],
    "2 group": ["credit", "group"],
    "3 normalize": ["center", "scale", "advantage"],
    "4 update": ["policy", "agent", "turns", "tokens", "grad_norm", "grad_norm_clipped"],
}
"""What each cell adds to a row, and what the last one returns."""
STYLE = """
body { font: 20px/1.35 system-ui, "DejaVu Sans", sans-serif; margin: 0; padding: 14px 16px; background: #fff;
  color: #1c1c1c; }
h2 { font-size: 20px; margin: 16px 0 4px; } h2:first-child { margin-top: 0; }
table { border-collapse: collapse; font-size: 18px; } th { text-align: left; font-weight: 600; color: #444; }
th, td { padding: 2px 8px 2px 0; border-bottom: 1px solid #e3e3e3; white-space: nowrap; vertical-align: top; }
tr.over th { color: #1c1c1c; font-size: 20px; } td, th { padding-left: 8px; } .tint0 { background: #fdf1d6; }
.tint1 { background: #eaf3fb; } .said { white-space: normal; } img { display: block; }
"""


def save(image: bytes | Path, name: str) -> None:
    """A PNG of few colours, cut to what is drawn: small, and sharp at the README's width."""
    with Image.open(BytesIO(image) if isinstance(image, bytes) else image) as drawn:
        picture = drawn.convert("RGB")
    white = Image.new("RGB", picture.size, "white")
    left, top, right, bottom = ImageChops.difference(picture, white).getbbox()
    edge = 16
    box = (
        max(0, left - edge),
        max(0, top - edge),
        min(picture.width, right + edge),
        min(picture.height, bottom + edge),
    )
    picture.crop(box).quantize(96, dither=Image.Dither.NONE).save(HERE / name, optimize=True)


def draw(figure, name: str, height: int, width: int = WIDTH) -> None:
    figure.update_layout(font_size=LETTERS).update_annotations(font_size=LETTERS)
    figure.update_xaxes(title_font_size=LETTERS, automargin=True)
    figure.update_yaxes(title_font_size=LETTERS, automargin=True)
    save(figure.to_image("png", width=width, height=height, scale=2), name)


def photograph(body: str, name: str, height: int, width: int = WIDTH) -> None:
    """A page, or what stands in one, as the browser shows it."""
    named = [os.environ.get("BROWSER_PATH"), *map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))]
    browser = next((path for path in named if path), None)
    if browser is None:
        raise SystemExit("pictures: no Chrome or Chromium is found; install one, or name it in BROWSER_PATH")
    with tempfile.TemporaryDirectory() as scratch:
        page, shot = Path(scratch) / "page.html", Path(scratch) / "shot.png"
        head = "" if body.startswith("<!doctype") else f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>'
        page.write_text(head + body, encoding="utf-8")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=2",
                   "--virtual-time-budget=10000"]  # fmt: skip
        command = [browser, *options, f"--window-size={width},{height}", f"--screenshot={shot}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        save(shot, name)


def table(rows: pd.DataFrame, adds: dict[str, list[str]], shades: dict[str, str]) -> str:
    """A table with the cell over the columns that it adds, each of which has a tint; each agent has its colour."""
    tints = {name: place % 2 for place, names in enumerate(adds.values()) for name in names}

    def cell(kind: str, name: str, value) -> str:
        text = f"{value:.2f}" if isinstance(value, float) else str(value)
        color = f' style="color:{shades[text]};font-weight:600"' if text in shades else ""
        return f"<{kind} class=tint{tints[name]}{color}>{html.escape(text)}</{kind}>"

    over = "".join(f"<th colspan={len(names)} class=tint{tints[names[0]]}>{cell}</th>" for cell, names in adds.items())
    head = "".join(cell("th", name, name) for name in tints)
    lines = ["".join(cell("td", name, row[name]) for name in tints) for _, row in rows.iterrows()]
    return f"<table><tr class=over>{over}</tr><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def cells() -> None:
    """The same six rows growing through the four cells."""
    env = lab.make_env(demo.ENV)
    team = demo.make_team(env)
    turns = lab.rollout(env, team, env.tasks(16, "train", SEED), lab.tree(3), seed=SEED)
    grown = lab.RECIPES["at_grpo"].advantages(turns)
    alive = grown.groupby("group")["advantage"].transform(lambda own: (own != 0).any())
    episode = grown[alive].groupby("episode")["agent"].nunique().eq(2).idxmax()
    rows = grown[(grown["episode"] == episode) & (grown["turn"] == 0)].head(6)
    rows = rows.assign(group=rows["group"].str.replace(r"^\S+", "…", regex=True))
    shades = colors(env.agents)
    *before, (update, returned) = ADDS.items()
    parts = [table(rows, dict(before), shades), table(lab.update(team, grown), {update: returned}, shades)]
    photograph("<br>".join(parts), "cells.png", 700, width=1090)


def baselines() -> None:
    """The same rewards under two baselines."""
    env = lab.make_env("math", fixer=True)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    turns = lab.rollout(env, team, env.tasks(32, "train", SEED), lab.episodes(8), seed=SEED)
    draw(two_baselines(lab.RECIPES["dr_mas"].advantages(turns), env.agents), "baselines.png", 520)


def forest(name: str, arms: list[str] | None = None, paired: bool = False):
    """A recorded study, a line for each task and arm: every run a dot; from five seeds on the middle with its interval.

    `arms`: those shown, all by default. `paired`: differences to the baseline by seed instead of scores. Returns the
    figure and its height.
    """
    board = lab.AblationBoard(RESULTS / "studies" / name)
    tables = (board.differences, board.pairs) if paired else (board.table, board.runs)
    table, runs = (one.set_index(["env", "recipe"]) for one in tables)
    shades, figure = recipe_colors(board.table["recipe"]), go.Figure()
    rows = [row for row in table.index if arms is None or row[1] in arms]
    for place, row in enumerate(rows):
        color, y = shades[row[1]], -place
        finals = runs.loc[[row], "final"]
        dots = {"color": color, "size": 7, "opacity": 0.55}
        figure.add_scatter(
            x=finals, y=[y + 0.12 * (i % 3 - 1) for i in range(len(finals))], mode="markers", marker=dots
        )
        if not pd.isna(table.loc[row, "final_low"]):
            ends = table.loc[row, ["final_low", "final_high"]]
            figure.add_scatter(x=ends, y=[y, y], mode="lines", line={"color": color, "width": 5})
            diamond = {"color": color, "symbol": "diamond", "size": 13}
            figure.add_scatter(x=[table.loc[row, "final"]], y=[y], mode="markers", marker=diamond)
    named = [arm if place and rows[place - 1][0] == task else f"<b>{task}</b>   {arm}"
             for place, (task, arm) in enumerate(rows)]  # fmt: skip
    figure.update_yaxes(tickvals=[-place for place in range(len(rows))], ticktext=named, showgrid=False, zeroline=False)
    minus = f" minus that of {board.baseline}, by seed" if paired else ""
    figure.update_xaxes(title_text=f"{board.score} on held-out tasks{minus}", zeroline=paired, zerolinecolor="#555")
    return figure.update_layout(**LAYOUT, showlegend=False), 90 + min(24 * len(rows), 1000)


def studies() -> None:
    """The recorded studies, every run a dot."""
    for name, file in FORESTS.items():
        figure, height = forest(name)
        draw(figure, file, height)


def baselines_study() -> None:
    """The README's picture of the study of baselines: what each arm is better or worse than `grpo`, by seed."""
    figure, height = forest("baselines", ["grpo_masked", "dr_mas", "own_pooled"], paired=True)
    draw(figure, "whose_baseline.png", height)


def spike() -> None:
    """A spike of the fixer, opened to its tokens."""
    folder, env = RESULTS / "gradient_spikes", lab.make_env("math", fixer=True)
    remembered = json.loads((folder / "spikes.json").read_text())
    fixers = [spike for spike in remembered["spikes"] if spike["policy"] == "fixer"]
    watch = lab.SpikeWatch()
    watch.load_state(remembered | {"spikes": fixers[:1]})
    tables = [pd.read_parquet(folder / f"spike_{name}.parquet") for name in ("turns", "stats")]
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents)
    instrument(lab.SpikeInspector(tables, watch=watch, agents=env.agents, team=team), "spike.png", 1060)


def instrument(made, name: str, height: int, width: int = WIDTH, hide: str = "") -> None:
    """The page of an instrument as the browser shows it, without its heading, tool bars and what `hide` selects."""
    small = f"<style>h1, main > .quiet, caption, .modebar{hide} {{ display: none !important }}</style>"
    with tempfile.TemporaryDirectory() as scratch:
        page = made.to_html(Path(scratch) / "page.html").read_text(encoding="utf-8")
    photograph(page.replace("</head>", f"{small}</head>"), name, height, width)


def rewards() -> None:
    """Who is harmed on the ladder under `grpo`."""
    env = lab.make_env("ladder")
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents)
    reports = list(lab.train(env, team, "grpo", 8, seed=SEED, tasks=16))
    instrument(lab.RewardInspector(reports), "rewards.png", 560, width=900, hide=", details")


def walk() -> None:
    """One decision of a trained team, with the candidates that were not chosen."""
    env = lab.make_env(demo.ENV)
    team = demo.make_team(env)
    reports = list(lab.train(env, team, demo.METHOD, 8, seed=SEED, **demo.SETTINGS))
    viewer = lab.RolloutViewer(reports[-1])
    instrument(viewer, "walk.png", 680, width=660, hide=", .viewer .index, .viewer .head")


def training() -> None:
    """A training as its dashboard shows it, with held-out scores."""
    env = lab.make_env(demo.ENV)
    watched = {"watch": lab.SpikeWatch(), "foreground": True, "score_every": 5, **demo.SETTINGS}
    trained = lab.LiveDashboard(env, demo.make_team(env), "grpo", demo.STEPS, seed=SEED, **watched)
    instrument(trained, "training.png", 795, width=760, hide=", .described, details")


def staleness() -> None:
    """What success loses with staleness, by seed: mean and 95 % interval of each correction, recipe and task."""
    runs = Recorded(RESULTS / "studies/asynchronous").table
    runs[["recipe", "staleness", "correction"]] = runs["arm"].str.extract(r"(\w+) (\d) ?(\w*)")
    tasks, recipes = ("ladder of 4", "paid help 0.2"), ("grpo", "own_robust", "at_grpo")
    labels = {"none": ("no correction", "#777777"), "clip": ("clipping", "#d55e00"), "tis": ("tis", "#0072b2")}
    figure = make_subplots(
        len(tasks), len(recipes), shared_xaxes=True, shared_yaxes="rows", column_titles=recipes, row_titles=tasks,
        vertical_spacing=0.06, horizontal_spacing=0.02,
    )  # fmt: skip
    for (row, task), (column, recipe) in itertools.product(enumerate(tasks, 1), enumerate(recipes, 1)):
        own = runs[(runs["task"] == task) & (runs["recipe"] == recipe)]
        for shift, (correction, (label, color)) in enumerate(labels.items()):
            finals = own[own["correction"] == correction].pivot(index="seed", columns="staleness", values="final")
            lost = finals.sub(own[own["staleness"] == "0"].set_index("seed")["final"], axis=0)
            error = {"array": [t_test(one)[2] - one.mean() for _, one in lost.items()], "thickness": 2, "width": 0}
            figure.add_scatter(
                x=[place + 0.12 * (shift - 1) for place in range(len(lost.columns))], y=lost.mean(), error_y=error,
                mode="lines+markers", line={"color": color, "width": 2}, marker_size=9, name=label, legendgroup=label,
                showlegend=row == column == 1, row=row, col=column,
            )  # fmt: skip
    figure.update_xaxes(tickvals=[*range(4)], ticktext=["1", "2", "4", "8"])
    figure.update_xaxes(title_text="staleness", row=len(tasks))
    figure.update_yaxes(title_text="success, minus<br>that of staleness 0", col=1)
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.12})
    draw(figure, "staleness.png", 620)


def flat() -> None:
    """Success against the share of flat groups, for more candidates and for other temperatures: seeds and means."""
    parts = [pd.read_csv(RESULTS / f"claims/{name}/groups.csv") for name in ("flat", "flat_other_rates")]
    found = pd.concat(parts).set_index("arm")
    lines = {
        "2 to 16 candidates": ("#0072b2", "bottom center", {
            "K 2": "2", "K 4": "4", "K 8 at 0.001": "8", "K 16 at 0.001": "16"}),
        "the same at 3e-4": ("#56b4e9", "bottom center", {"K 4 at 0.0003": "4", "K 8": "8", "K 16": "16"}),
        "temperature 0.7 to 2": ("#d55e00", "top center", {
            "temperature 0.7": "0.7", "K 4": "1", "temperature 1.5": "1.5", "temperature 2": "2"}),
    }  # fmt: skip
    figure = go.Figure()
    for name, (color, place, arms) in lines.items():
        own, look = found.loc[[*arms]], {"color": color}
        figure.add_scatter(x=own["flat"], y=own["success"], mode="markers", opacity=0.3, showlegend=False,
                           marker={"size": 6, **look})  # fmt: skip
        means = own.groupby(level=0, sort=False)[["flat", "success"]].mean()
        figure.add_scatter(x=means["flat"], y=means["success"], mode="lines+markers+text", text=[*arms.values()],
                           textposition=place, textfont=look, name=name, line={"width": 2, **look},
                           marker={"size": 11, **look})  # fmt: skip
    figure.update_xaxes(title_text="share of flat groups in the last ten steps")
    figure.update_yaxes(title_text="success")
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.02})
    draw(figure, "flat.png", 460)


def carries() -> None:
    """Three arms minus grpo against the number of weights: right when asked, and the largest gradient norm."""
    found = pd.read_csv(RESULTS / "carries/contrasts.csv")
    sizes, settings = found["size"].unique().tolist(), found["setting"].unique().tolist()
    shades = {"grpo_masked": "#777777", "dr_mas": "#d55e00", "own_pooled": "#0072b2"}
    ends = [-0.5, len(sizes) - 0.5]
    figure = make_subplots(
        2, len(settings), shared_xaxes=True, shared_yaxes="rows", vertical_spacing=0.08, horizontal_spacing=0.02,
        column_titles=[one.replace("_", " ") for one in settings],
    )  # fmt: skip
    for row, measure in enumerate(("asked", "largest_norm"), 1):
        for (column, setting), (shift, arm) in itertools.product(enumerate(settings, 1), enumerate(shades)):
            own = found[(found["measure"] == measure) & (found["setting"] == setting) & (found["arm"] == arm)]
            shown = own[["difference", "low", "high"]] if row == 1 else 10 ** own[["difference", "low", "high"]]
            error = {"array": shown["high"] - shown["difference"], "arrayminus": shown["difference"] - shown["low"],
                     "thickness": 2, "width": 0}  # fmt: skip
            figure.add_scatter(
                x=[sizes.index(size) + 0.15 * (shift - 1) for size in own["size"]], y=shown["difference"],
                error_y=error, mode="markers", marker={"size": 9, "color": shades[arm]}, name=arm, legendgroup=arm,
                showlegend=row == column == 1, row=row, col=column,
            )  # fmt: skip
        same = {"x": ends, "y": [row - 1, row - 1], "mode": "lines", "line": {"width": 1, "color": "black"}}
        figure.add_scatter(**same, showlegend=False, row=row, col="all")
        reach = found.loc[found["measure"] == measure, ["low", "high"]]
        span = [min(reach["low"].min(), 0) - 0.02, max(reach["high"].max(), 0) + 0.02]
        figure.update_yaxes(range=span, type=("linear", "log")[row - 1], row=row)
    figure.update_xaxes(tickvals=[*range(len(sizes))], ticktext=sizes, tickangle=0, tickfont_size=12, range=ends)
    figure.update_yaxes(title_text="right when asked,<br>minus grpo", row=1, col=1)
    figure.update_yaxes(title_text="largest norm,<br>over grpo's", row=2, col=1)
    figure.update_yaxes(tickvals=[0.03, 0.1, 0.3, 1, 3, 10], row=2)
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.1})
    draw(figure, "carries.png", 560)


def gain() -> None:
    """What leaving out rows without a peer and an agent's own mean gain by size, at one rate: seeds and their mean."""
    from findings_of_size import found, scores

    sizes = [*dict.fromkeys(found("asked")["size"]), "0.5B"]
    settings = {"paid_help": "paid help", "finisher": "finisher", "ladder": "ladder", "spot_check": "spot check"}
    shades = {"grpo_masked": "#777777", "own_pooled": "#0072b2"}
    figure = make_subplots(1, len(settings), shared_yaxes=True, horizontal_spacing=0.02,
                           column_titles=[*settings.values()])  # fmt: skip
    for (column, setting), (shift, arm) in itertools.product(enumerate(settings, 1), enumerate(shades)):
        for size in sizes if setting == "paid_help" else sizes[:-1]:
            by_seed = scores(size, setting).pivot(index="seed", columns="arm", values="asked")
            apart = (by_seed[arm] - by_seed["grpo"]).dropna()
            x = sizes.index(size) + 0.3 * (shift - 0.5)
            look = {"color": shades[arm]}
            where = {"row": 1, "col": column, "showlegend": False}
            figure.add_scatter(x=[x] * len(apart), y=apart, mode="markers", opacity=0.55,
                               marker={"size": 8, **look}, **where)  # fmt: skip
            where["showlegend"] = column == 1 and size == sizes[0]
            figure.add_scatter(x=[x - 0.13, x + 0.13], y=[apart.mean()] * 2, mode="lines", line={"width": 4, **look},
                               name=arm, **where)  # fmt: skip
    figure.update_xaxes(tickvals=[*range(len(sizes))], ticktext=sizes, tickangle=-50, range=[-0.5, len(sizes) - 0.5])
    figure.update_yaxes(zeroline=True, zerolinecolor="#555")
    figure.update_yaxes(title_text="right when asked, minus grpo", col=1)
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.2})
    draw(figure, "gain.png", 460)


def shares() -> None:
    """Which share of wrong answers is reinforced, and of right ones punished, under each recipe by size."""
    from findings_of_size import answers

    table = answers()
    table = table[table["said"] != "paid help: wrong answers reinforced"]
    shades = {"grpo": "#d55e00", "grpo_masked": "#777777", "own_pooled": "#0072b2"}
    titles = [one.replace(": ", ":<br>") for one in dict.fromkeys(table["said"])]
    figure = make_subplots(1, len(titles), shared_yaxes=True, horizontal_spacing=0.03, column_titles=titles)
    for column, (_, own) in enumerate(table.groupby("said", sort=False), 1):
        for arm, color in shades.items():
            labels = [f"{share:.2f}".lstrip("0") if share else "0" for share in own[arm]]
            figure.add_bar(x=own["size"], y=own[arm], name=f"{arm} (and dr_mas)" * (arm == "own_pooled") or arm,
                           marker_color=color, text=labels, textposition="outside", textangle=0, row=1, col=column,
                           textfont_size=13, legendgroup=arm, showlegend=column == 1)  # fmt: skip
    figure.update_yaxes(range=[0, 1.12], tickvals=[0, 0.5, 1])
    figure.update_yaxes(title_text="share of answers", col=1)
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.35}, margin_t=120)
    draw(figure, "shares.png", 460)


def cosine() -> None:
    """The difference of cosines before training against what came of it, for all agents of the fixed test."""
    agents = pd.read_csv(RESULTS / "uphill/agents.csv").query("contrast == 'own_robust - grpo'")
    sure = agents["p"] < 0.05
    figure = go.Figure()
    for which, color, name in ((~sure, "#bbbbbb", "not sure over six seeds"), (sure, "#0072b2", "sure")):
        own = agents[which]
        figure.add_scatter(
            x=own["cos_own"], y=own["own"], mode="markers", marker={"size": 9, "color": color}, name=name
        )
    for bound in (-0.1, 0.1):
        figure.add_vline(bound, line={"dash": "dot", "width": 1, "color": "#555"})
    figure.update_xaxes(title_text="cosine before training, own_robust minus grpo (it speaks beyond the dotted lines)")
    figure.update_yaxes(title_text="own reward after training,<br>own_robust minus grpo", zeroline=True)
    figure.update_xaxes(zeroline=True, zerolinecolor="#555").update_yaxes(zerolinecolor="#555")
    figure.update_layout(**LAYOUT).update_layout(legend={"orientation": "h", "y": 1.12})
    draw(figure, "cosine.png", 480)


def board() -> None:
    """Every seed a dot: a task where the recipe matters, and two teams that per-agent normalisation does not help."""
    mazes, math = (pd.read_csv(RESULTS / name) for name in ("quickstart/curves.csv", "gradient_spikes/scores.csv"))
    named = {"fixer": "math with a fixer", "pair": "math without a fixer"}
    curves = [mazes.assign(env="plan_path"), math.assign(env=math["form"].map(named))]
    draw(lab.AblationBoard(pd.concat(curves, ignore_index=True), baseline="grpo").figure(), "board.png", 440)


FORESTS = {
    "baselines": "study_baselines.png", "ladder": "study_ladder.png", "paid_help": "study_paid_help.png",
    "at_grpo": "study_at_grpo.png", "magrpo": "study_magrpo.png",
}  # fmt: skip
PICTURES = {
    "cells": cells, "baselines": baselines, "whose_baseline": baselines_study,
    "spike": spike, "board": board, "rewards": rewards, "walk": walk, "training": training, "studies": studies,
    "staleness": staleness, "carries": carries, "gain": gain, "flat": flat, "shares": shares, "cosine": cosine,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *PICTURES], help="default: all of them")
    lab.set_threads(1)
    for name in parser.parse_args().names or PICTURES:
        PICTURES[name]()


if __name__ == "__main__":
    main()
