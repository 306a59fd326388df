"""Write the page of the demo: learning curves, episodes, gradient norms and spikes.

The figures themselves are in `mas_lab.widgets`.
"""

from pathlib import Path

import pandas as pd

from mas_lab.demo.trials import ENV, HELD_OUT, REPEATS, STAGES, Trained
from mas_lab.display.documented_frame import key_html
from mas_lab.tasks import make_env
from mas_lab.widgets.credit_figures import two_baselines
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, frame, table_html, write
from mas_lab.widgets.figures import dialogue, learning_curves, mazes, norm_lines
from mas_lab.widgets.rewards import credit_counts, reward_table
from mas_lab.widgets.spikes import SpikeInspector

ABOUT = {
    "at_grpo": "at_grpo compares the candidates of one agent at one turn, and rewards each for its own moves.",
    "grpo": "grpo compares whole episodes by their return.",
    "grpo_mixed": "grpo_mixed adds each row's own reward to the return, and keeps grpo's comparison.",
}
LADDER = f"""{STAGES} agents, each with weights of its own, answer a chain of digits each; a stage is reached only where
all before it were right, and the team earns the share of stages that were passed. grpo judges every agent by one mean
of the task, dr_mas each agent by its own. Held equal: tasks and episodes a step, optimizer steps, learning rate. Not
equal: dr_mas samples more tokens, since it reaches later stages, so the curves stand over tokens. It is separate
policies that are called rarely and on a condition that need a baseline of their own: where one set of weights plays
all stages, both learn."""


def write_report(out: Path, runs: list[Trained], waiting: bool = False) -> Path:
    """Write `out/report.html` with all runs so far; `waiting` adds a note that more runs will follow."""
    body = []
    for name, section in ((ENV, _maze), ("ladder", _ladder)):
        own = [run for run in runs if run.trial.env["name"] == name]
        body += section(own) if own else []
    if waiting:
        body.append("<h2>The ladder</h2><p>Still learning: open this page again when the command has ended.</p>")
    page = document("Teams that learn, and what a baseline does", "".join(body), scripts=FIGURES)
    return write(out / "report.html", page)


def _maze(runs: list[Trained]) -> list[str]:
    """Return the sections about the maze; everything below the curves is from the first of `runs`."""
    best, env = runs[0], make_env(ENV)
    curves, turns, (task, before, after) = pd.concat([run.curve for run in runs]), best.last.turns, best.shown
    recipes, earned = list(dict.fromkeys(run.trial.recipe for run in runs)), reward_table(turns)
    equal = " Held equal: sampled tokens, not optimizer steps." if len(recipes) > 1 else ""
    return [
        "<h2>A planner and an executor learn to walk through mazes</h2>",
        f"<p>{' '.join(ABOUT[recipe] for recipe in recipes)}{equal} Success on {HELD_OUT} mazes that training never "
        f"shows, {REPEATS} episodes each (half of the mazes on the way).</p>",
        figure_html(learning_curves(curves), "Success on held-out mazes, a line per run", curves),
        f"<h2>What each agent earned in the last step of {escape(best.trial.recipe)}</h2>",
        table_html(earned, "Who earned what, per agent"),
        key_html("rewards", earned.columns),
        figure_html(two_baselines(turns, env.agents), "Credits and advantages of both agents", credit_counts(turns)),
        "<h2>One maze, before and after</h2>",
        "<p>Chosen: of 64 held-out mazes, the longest way that the untrained team does not find and the trained one "
        "walks without a wasted step; the first maze, where there is none.</p>",
        figure_html(
            mazes(env, task, {"before": before, "after": after}),
            "The way through one maze; the tables Before and After have each move",
        ),
        table_html(dialogue(before, before["episode"].iloc[0]), "Before"),
        table_html(dialogue(after, after["episode"].iloc[0]), "After"),
    ]


def _ladder(runs: list[Trained]) -> list[str]:
    """Return the sections about the ladder: curves, gradient norms, and the spikes of the stored run."""
    curves, norms = pd.concat([run.curve for run in runs]), largest_norms(runs)
    parts = [
        f"<h2>A ladder of {STAGES}, under two baselines</h2><p>{escape(LADDER)}</p>",
        figure_html(learning_curves(curves), "Success on held-out ladders, a line per run", curves),
        figure_html(
            norm_lines(norms), "The largest gradient norm of the eight policies at each step, a line per run", norms
        ),
    ]
    for run in (run for run in runs if run.trial.keep):
        inspector = SpikeInspector(run.trial.keep, agents=make_env(**run.trial.env).agents)
        told = f"Spikes of {run.trial.recipe}, seed {run.trial.seed}"
        parts.append(f"<h2>{escape(told)}</h2>{frame(inspector.page(), told, height=900)}")
    return parts


def largest_norms(runs: list[Trained]) -> pd.DataFrame:
    """Return one row per run and step with the largest gradient norm of its policies."""
    norms = pd.concat([run.norms for run in runs])
    return norms.groupby(["recipe", "seed", "step"], sort=False)["policy_norm"].max().reset_index()
