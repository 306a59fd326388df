"""Write the page of the demo: what each recipe reached, why, and how one maze was learned.

The figures are in `mas_lab.widgets`, late agents in `late`.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.demo.late import boxes_html, late_html
from mas_lab.demo.trials import ENV, HELD_OUT, LADDER_RECIPES, REPEATS, STAGES, Trained, elapsed, results
from mas_lab.paths import data_dir
from mas_lab.runs.run import load_run
from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded
from mas_lab.tasks import make_env
from mas_lab.widgets.document import FIGURES, document, escape, figure_html, folded, frame, table_html, write
from mas_lab.widgets.figures import NEUTRAL, dialogue, learning_curves, mazes, norm_lines, recipe_colors
from mas_lab.widgets.spikes import SpikeInspector

ABOUT = {
    "at_grpo": "at_grpo compares the candidates of one agent at one turn, and rewards each for its own moves.",
    "grpo": "grpo compares whole episodes by their return.",
    "grpo_mixed": "grpo_mixed adds each answer's own reward to the return, and compares as grpo does.",
}
SAID = ["agent", "hears", "says", "success"]
STYLE = """<style>
.lead { font-size: 1.15rem; max-width: 46rem; }
main > p:not(.quiet) { max-width: 46rem; }
.reached { display: grid; grid-template-columns: 7rem minmax(4rem, 24rem) auto; gap: .4rem .8rem; align-items: center;
  justify-content: start; margin: .8rem 0; }
.reached i { background: var(--soft); height: 1.1rem; } .reached i i { display: block; }
.boxes { display: flex; flex-wrap: wrap; gap: .8rem; }
.boxes > div { display: flex; flex: 1 1 17rem; flex-direction: column; max-width: 23rem; padding: .2rem .8rem;
  border: 1px solid var(--line); border-radius: .4rem; }
.boxes svg { margin-top: auto; }
.paper { display: none; } @media print { .paper { display: block; } .screen { display: none; } .two { zoom: .9; } }
.two { display: flex; flex-wrap: wrap; gap: 0 1rem; } .two figure { max-width: 100%; }
@media (max-width: 40rem) { .reached { grid-template-columns: 7rem 1fr; } .reached small { grid-column: 1 / -1; } }
</style>"""


def write_report(out: Path, runs: list[Trained], waiting: bool = False) -> Path:
    """Write `out/report.html` with all runs so far; `waiting` adds a note that more runs will follow."""
    parts = {"ladder": _ladder, "paid_help": _real, ENV: _maze}
    own = {name: [run for run in runs if run.trial.env["name"] == name] for name in parts}
    body = [STYLE, *(line for name, write_part in parts.items() if own[name] for line in write_part(own[name]))]
    if waiting:
        body.insert(1, "<p>The ladder is still learning. Open this page again when the command has ended.</p>")
    page = document("Who is compared with whom?", "".join(body), scripts=FIGURES)
    return write(out / "report.html", page)


def _ladder(runs: list[Trained]) -> list[str]:
    """Return the sections about the ladder: the result, who is compared with whom, a late agent, curves and norms."""
    curves, norms, trial = pd.concat([run.curve for run in runs]), largest_norms(runs), runs[0].trial
    reached = results(runs).groupby("recipe", sort=False)["after"].mean()
    *rates, last = (f"{value:.2f} under {recipe}" for recipe, value in reached.items())
    stored, agents = next(run for run in runs if run.trial.keep).trial, make_env(**trial.env).agents
    inspector, named = SpikeInspector(stored.keep, agents=agents), f"{stored.recipe}, seed {stored.seed}"
    return [
        f'<p class="lead"><b>A team of {STAGES} agents learns to climb a ladder. Its success is {", ".join(rates)} and '
        f"{last}.</b></p>",
        _reached(runs, norms=True),
        f'<p class="quiet">Tasks, first weights, {_count(runs)}, learning rate ({trial.lr:g}) and steps '
        f"({trial.steps}) are equal. Each agent has its own weights. These trainings took {elapsed(runs):.0f} s.</p>",
        "<p>The recipes differ in who is compared with whom. A stage is reached only if all stages before it were "
        "right. The team earns the share of stages that it passed. Success is the rate of passing all stages, on "
        f"{trial.held_out} held-out tasks with {REPEATS} episodes each.</p>",
        "<p>These first weights solve half of the problems. Over ten other first weights <code>dr_mas</code> ended at "
        "0.27 in a recorded study, and four of the ten stayed near 0. With one set of weights for all stages, the "
        "difference was small (three seeds). "
        "Studies with ten seeds and tuned learning rates are in <code>docs/findings.md</code> of the project.</p>",
        f"<h2>What the last agent learns</h2>{last_agent_html()}",
        f"<h2>Three ways to compare</h2>{boxes_html()}",
        f"<h2>One late agent of this run ({named})</h2>{late_html(load_run(stored.keep).turns, agents)}",
        "<h2>Success over training</h2>",
        "<p>A team that reaches later stages samples more tokens in the same number of steps.</p>",
        figure_html(learning_curves(curves), "Success on held-out ladders, a line per run", curves),
        "<h2>Gradient norms, and one spike opened</h2>",
        figure_html(norm_lines(norms), "The largest gradient norm of the policies, a line per run", norms),
        *([_spike(inspector.first)] if inspector.spikes else []),
        f'<div class="screen">{frame(inspector.page(), f"Spikes of {named}", height=1000)}</div>',
        f'<div class="paper">{inspector.static()}</div>',
    ]


def last_agent_html() -> str:
    """Return how often the last stage is right when asked alone, in the recorded study, as HTML with a bar each."""
    agents = Recorded(data_dir() / "results" / "studies" / "baselines").agents
    last = agents[(agents["task"] == f"ladder of {STAGES}") & (agents["agent"] == f"stage_{STAGES}")]
    asked = last.groupby(["seed", "arm"])[["quiz_before", "quiz_after"]].first().unstack("arm")
    right = {"before": asked["quiz_before"]["grpo"]} | {arm: asked["quiz_after"][arm] for arm in LADDER_RECIPES}
    bars = {name: (of_seed.mean(), f"<b>{of_seed.mean():.2f}</b>") for name, of_seed in right.items()}
    gain, change = right["dr_mas"] - right["grpo"], right["grpo"] - right["before"]
    (_, low, high), (_, least, most) = t_test(gain), t_test(change)
    chance = ", so it may be chance" if least < 0 < most else ""
    return (
        f"<p>In a recorded study with {len(asked)} other first weights, stage {STAGES} answered 64 problems alone, "
        f"before and after training. This is its share of right answers:</p>{_bars(bars)}<p>Under dr_mas it is "
        f"{gain.mean():.2f} higher than under grpo ({low:.2f} to {high:.2f}). The change under grpo is "
        f"{change.mean():+.2f} ({least:+.2f} to {most:+.2f}){chance}. Both are 95 % intervals of paired t "
        "tests. Source: <code>data/results/studies/baselines</code>, quiz_after.</p>"
    )


def _spike(spike: dict[str, Any]) -> str:
    """Return what a record of the watch says about its rows, and the largest of them, as HTML."""
    ((row, without),) = spike["without"].items()
    return (
        f"<p>In step {spike['step']} of the stored run (the first is 0), the norm of {escape(spike['policy'])} was "
        f"{spike['norm']:.1f}. The usual norm of the team was {spike['usual']:.1f}. The number of answers in this "
        f"gradient is {len(spike['rows'])}, and the largest share of one is {100 * spike['rows'][row]:.0f}&nbsp;%. "
        f"Without that answer the norm would be {without:.1f}. Open it, down to its tokens.</p>"
    )


def _real(runs: list[Trained]) -> list[str]:
    """Return the sections about the team of a language model. The episodes are from the last of `runs`."""
    curves, trial, (_, before, after) = pd.concat([run.curve for run in runs]), runs[0].trial, runs[-1].example
    ways = {"before training": before, f"after {trial.steps} steps of {runs[-1].trial.recipe}": after}
    return [
        "<h2>A real language model answers in words</h2>",
        f"<p>Both agents are {trial.base}, a language model of 135 million weights. The solver answers a question. If "
        "it is wrong, the helper sees its answer and tries too. A right answer of the solver earns 1, one of the "
        "helper 0.2. Each agent trains an adapter of its own. Both adapters start from the same demonstrations.</p>",
        _reached(runs),
        f'<p class="quiet">Trained with {_count(runs)} in {elapsed(runs):.0f} s. The score is success on '
        f"{trial.held_out} held-out questions, {REPEATS} episodes each, so chance alone moves it by about "
        f"{(0.25 / trial.held_out) ** 0.5:.2f}.</p>",
        figure_html(learning_curves(curves), "Success on held-out questions, a line per run", curves),
        "<p>This is one held-out question. It was chosen: of 64, the untrained team fails it and the trained team "
        "solves it, with the helper if there is such a question.</p>",
        *(
            table_html(dialogue(own, own["episode"].iloc[0])[SAID], f"What both said {name}")
            for name, own in ways.items()
        ),
    ]


def _maze(runs: list[Trained]) -> list[str]:
    """Return the sections about the maze. Everything below the curves is from the first of `runs`."""
    curves, (task, before, after), env = pd.concat([run.curve for run in runs]), runs[0].example, make_env(ENV)
    recipes = dict.fromkeys(run.trial.recipe for run in runs)
    equal = " Sampled tokens are equal, optimizer steps are not." if len(recipes) > 1 else ""
    ways = {"before": before, "after": after}
    drawn = [figure_html(mazes(env, task, {name: own}), f"The way {name} training") for name, own in ways.items()]
    tables = [
        table_html(dialogue(own, own["episode"].iloc[0]), f"Each move {name} training") for name, own in ways.items()
    ]
    return [
        "<h2>A planner and an executor learn to walk through a maze</h2>",
        f"<p>The planner proposes moves and the executor makes them. {' '.join(ABOUT[recipe] for recipe in recipes)}"
        f"{equal}</p>",
        _reached(runs),
        f'<p class="quiet">Trained with {_count(runs)} in {elapsed(runs):.0f} s. The score is success on {HELD_OUT} '
        f"held-out mazes, {REPEATS} episodes each. Scores on the way use half of these mazes.</p>",
        figure_html(learning_curves(curves), "Success on held-out mazes, a line per run", curves),
        "<p>The pictures show one maze before and after training. It was chosen: of 64 held-out mazes, it has the "
        "longest way that only the trained team walks, without a wasted step. If there is none, it is the first "
        "maze.</p>",
        f'<div class="two">{"".join(drawn)}</div>',
        folded("What both said, move by move", "".join(tables)),
    ]


def _reached(runs: list[Trained], norms: bool = False) -> str:
    """Return a bar per recipe as HTML: success before and after, the mean over seeds, and each seed."""
    bars = {}
    for recipe, own in results(runs).groupby("recipe", sort=False):
        after, norm = own["after"].mean(), f"; largest norm {own['largest_norm'].max():.1f}" if norms else ""
        seeds = ", ".join(f"{value:.2f}" for value in own["after"])
        each = f" (seeds: {seeds})" if len(own) > 1 else ""
        bars[recipe] = after, f"<b>{own['before'].mean():.2f} → {after:.2f}</b>{each}{norm}"
    return _bars(bars)


def _bars(bars: dict[str, tuple[float, str]]) -> str:
    """Return a bar per name as HTML: its length, from 0 to 1, and what stands beside it."""
    colors = recipe_colors(list(bars)) | {"before": NEUTRAL}
    rows = [
        f'<span>{name}</span><i><i style="width:{length:.0%};background:{colors[name]}"></i></i><small>{beside}</small>'
        for name, (length, beside) in bars.items()
    ]
    return f'<div class="reached">{"".join(rows)}</div>'


def _count(runs: list[Trained]) -> str:
    count = len({run.trial.seed for run in runs})
    return f"{count} seed{'s' if count > 1 else ''}"


def largest_norms(runs: list[Trained]) -> pd.DataFrame:
    """Return one row per run and step with the largest gradient norm of its policies."""
    norms = pd.concat([run.norms for run in runs])
    return norms.groupby(["recipe", "seed", "step"], sort=False)["policy_norm"].max().reset_index()
