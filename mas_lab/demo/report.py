"""Write the page of the demo: two recipes on a ladder, what they reached and why, and how one maze was learned.

The texts are in the HTML files of this folder, the figures in `mas_lab.widgets`, one agent in `late`.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.demo.late import boxes, one_agent
from mas_lab.demo.trials import ENV, HELD_OUT, REPEATS, STAGES, Trained, results, seconds
from mas_lab.paths import data_dir, notebooks_dir
from mas_lab.runs.run import load_run
from mas_lab.tasks import make_env
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, folded, frame, table_html, write
from mas_lab.widgets.figures import dialogue, learning_curves, mazes, norm_lines, recipe_colors
from mas_lab.widgets.spikes import SpikeInspector

WAITING = "<p>The ladder is still learning. Open this page again when the command has ended.</p>"


def write_report(out: Path, runs: list[Trained]) -> Path:
    """Write `out/report.html` with all runs so far; without runs on the ladder it says that they will follow."""
    parts = {"ladder": _ladder, "paid_help": _real, ENV: _maze}
    own = {name: [run for run in runs if run.trial.env["name"] == name] for name in parts}
    body = "".join(write_part(own[name]) for name, write_part in parts.items() if own[name])
    body = body if own["ladder"] else WAITING + body
    body += _filled("next", notebooks=notebooks_dir().as_uri())
    page = document("Who is compared with whom?", body, scripts=FIGURES, styles=["demo.css"])
    return write(out / "report.html", page)


def _filled(template: str, **values: Any) -> str:
    return Path(__file__).with_name(f"{template}.html").read_text(encoding="utf-8").format(**values)


def recorded() -> pd.DataFrame:
    """Return the success at the end of ten recorded seeds of each recipe: a row per seed, a column per recipe."""
    study = data_dir() / "results" / "studies" / "robust"
    runs = pd.read_csv(study / "runs.csv").query("phase == 'compare' and task == 'ladder of 8'")
    ends = pd.read_csv(study / "curves.csv").groupby("cell")["success"].last()
    return runs.assign(success=runs["cell"].map(ends)).pivot(index="seed", columns="arm", values="success")


def _ladder(runs: list[Trained]) -> str:
    """Return the sections about the ladder: the task, the recipes, the result, one agent, curves and norms."""
    curves, norms = (pd.concat([getattr(run, name) for run in runs]) for name in ("curve", "norms"))
    means = results(runs).groupby("recipe", sort=False)["after"].mean()
    *rates, last = (f"{after:.2f} under <code>{recipe}</code>" for recipe, after in means.items())
    ends, trial = recorded()[list(means.index)], next(run for run in runs if run.trial.keep).trial
    shown = one_agent(load_run(trial.keep).turns)
    inspector = SpikeInspector(trial.keep, agents=make_env(**trial.env).agents)
    own = (one for one in inspector.opened if one["policy"] == shown["agent"] and len(one["rows"]) > 1)
    inspector.first = next(own, inspector.first)
    return _filled(
        "ladder", stages=STAGES, rates=", ".join(rates), last_rate=last, trial=trial, seeds=curves["seed"].nunique(),
        recorded_rates=" and ".join(f"{mean:.2f}" for mean in ends.mean()), reached=_reached(runs, ends),
        seconds=seconds(runs), repeats=REPEATS, boxes=boxes(), **shown,
        curves=figure_html(learning_curves(curves), "Success on held-out ladders, a line per run", curves),
        norms=figure_html(norm_lines(norms), "The largest gradient norm of the policies, a line per run", norms),
        spike=_spike(inspector.first) if inspector.spikes else "", printed=inspector.static(),
        inspector=frame(inspector.page(), f"Spikes of {trial.recipe}, seed {trial.seed}", height=1000),
    )  # fmt: skip


def _spike(spike: dict[str, Any]) -> str:
    """Return what a record of the watch says about its rows, and the largest of them, as HTML."""
    ((row, without),) = spike["without"].items()
    known = {**spike, "policy": escape(spike["policy"]), "without": without, "answers": len(spike["rows"])}
    return _filled("spike", **known, share=100 * spike["rows"][row])


def _real(runs: list[Trained]) -> str:
    """Return the sections about the team of a language model. The episodes are from the last of `runs`."""
    curves, trial, (_, before, after) = pd.concat([run.curve for run in runs]), runs[-1].trial, runs[-1].example
    ways = {"before training": before, f"after {trial.steps} steps of {trial.recipe}": after}
    said = "".join(_talk(own, f"What both said {name}") for name, own in ways.items())
    return _filled(
        "real", trial=trial, reached=_reached(runs), seconds=seconds(runs), repeats=REPEATS, episodes=said,
        chance=(0.25 / trial.held_out) ** 0.5,
        curves=figure_html(learning_curves(curves), "Success on held-out questions, a line per run", curves),
    )  # fmt: skip


def _maze(runs: list[Trained]) -> str:
    """Return the sections about the maze, which has one run."""
    [run], env = runs, make_env(ENV)
    task, before, after = run.example
    ways = {"before": before, "after": after}
    drawn = {name: figure_html(mazes(env, task, {name: own}), f"The way {name} training") for name, own in ways.items()}
    said = "".join(_talk(own, f"Each move {name} training") for name, own in ways.items())
    return _filled(
        "maze", reached=_reached(runs), seconds=run.seconds, held_out=HELD_OUT, repeats=REPEATS, **drawn,
        curve=figure_html(learning_curves(run.curve), "Success on held-out mazes", run.curve),
        moves=folded("What both said, move by move", said),
    )  # fmt: skip


def _talk(turns: pd.DataFrame, caption: str) -> str:
    """Return the first episode of a table as HTML."""
    return table_html(dialogue(turns, turns["episode"].iloc[0]), caption)


def _reached(runs: list[Trained], recorded: pd.DataFrame | None = None) -> str:
    """Return a bar per recipe as HTML: success before and after, the mean over seeds, each seed, and recorded ones."""
    shades, rows = recipe_colors([run.trial.recipe for run in runs]), []
    for recipe, own in results(runs).groupby("recipe", sort=False):
        after, seeds = own["after"].mean(), ", ".join(f"{value:.2f}" for value in own["after"])
        each = f" (seeds: {seeds})" if len(own) > 1 else ""
        norm = f"; largest norm {own['largest_norm'].max():.1f}"
        marks = "".join(f'<b style="left:{one:.1%}"></b>' for one in ([] if recorded is None else recorded[recipe]))
        rows.append(
            f'<span>{recipe}</span><i><i style="width:{after:.0%};background:{shades[recipe]}"></i>{marks}</i>'
            f"<small><b>{own['before'].mean():.2f} → {after:.2f}</b>{each}{norm}</small>"
        )
    return f'<div class="reached">{"".join(rows)}</div>'
