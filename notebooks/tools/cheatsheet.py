"""The kit on one printed page: the four cells, the recipes and the columns.

The page is made from `RECIPES` and `SCHEMA`. Leaves out: everything that these do not contain.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from mas_lab.recipes import RECIPES, Recipe
from mas_lab.table import ADDED_BY, SCHEMA
from mas_lab.widgets.document import escape

CODE = """env   = lab.make_env("plan_path")
team  = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
turns = lab.rollout(env, team, env.tasks(32), plan=lab.tree(8))        # 1  who said what, and what it earned
turns = lab.group(turns, by=("episode", "agent", "turn"),
                  credit=lab.mixed())                                  # 2  who is compared, on which number
turns = lab.normalize(turns)                                           # 3  the advantage
stats = lab.update(team, turns, loss=lab.clipped(0.2))                 # 4  the optimizer steps
for report in lab.train(env, team, "at_grpo", steps=40, run="mine"): ...   # the same in a loop, by a recipe's name"""
RULES = (
    ("advantage", "A = (credit − center) / scale; 0 where the group is lone or flat"),
    ("ratio", "ρ = p<sub>now</sub>(token) / p<sub>sampled</sub>(token)"),
    ("clipped", "− min(ρ A, clip(ρ, 1 − ε, 1 + ε) A), the mean over tokens; <code>low</code> = ε"),
    ("reinforce", "− A log p, <code>sum</code>med over a row's tokens"),
    ("inflation", "F = v + b² = σ<sub>k</sub>²/σ² + (μ<sub>k</sub> − μ)²/σ²: agent k under the mean of all"),
    ("signal", "σ<sub>k</sub>²/(σ<sub>k</sub>² + (μ<sub>k</sub> − μ)²): what of F is no offset"),
)
TOOLS = (
    ("lab.RewardInspector(report)", "who earned what, under either baseline"),
    ("lab.RolloutViewer(report)", "who said what, and what was not chosen"),
    ("lab.SpikeInspector(run)", "a tall norm, opened to its tokens"),
    ("lab.uphill(team, env)", "which recipe's gradient points uphill?"),
    ("lab.evaluate(env, team, tasks)", "success on tasks that training never shows"),
    ("lab.AblationBoard(folder)", "recipes over seeds, every run a dot"),
    ("lab.export(run, zip)", "a run to hand in"),
    ("lab.check_env(env)", "what is wrong with an env of your own"),
)
LOOK = """
@page { size: A4; margin: 9mm; }
* { box-sizing: border-box; }
body { font: 8.1pt/1.27 system-ui, "DejaVu Sans", sans-serif; color: #111; margin: 0 auto; max-width: 192mm; }
h1 { font-size: 14pt; margin: 0 0 1mm; } h2 { font-size: 9pt; margin: 1.8mm 0 0.6mm; }
pre, code { font-family: ui-monospace, Menlo, "DejaVu Sans Mono", monospace; font-size: 7pt; }
pre { background: #f2f4f6; padding: 1.4mm 2mm; margin: 0; border-radius: 1mm; line-height: 1.28; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.2mm 1.2mm 0.2mm 0; border-bottom: 0.2pt solid #ccc; }
p { margin: 0.6mm 0; } .recipes td { white-space: nowrap; }
.recipes td, .recipes th { font-size: 7pt; } .recipes code { font-size: 5.6pt; }
.two { display: grid; grid-template-columns: 5fr 6fr; gap: 0 5mm; }
.columns { columns: 3; column-gap: 4mm; font-size: 6.8pt; line-height: 1.18; }
.columns p { margin: 0; break-inside: avoid; padding-left: 3mm; text-indent: -3mm; }
.columns code { font-size: 6.4pt; }
.columns h3 { font-size: 7.6pt; margin: 0.6mm 0 0; color: #2f5d8a; }
@media screen { body { padding: 1rem; max-width: 215mm; } pre, table { display: block; overflow-x: auto; } }
@media screen and (max-width: 45rem) { .two, .columns { display: block; columns: 1; } }
"""


def cheatsheet() -> str:
    """Return an HTML page in A4 that loads no other file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>mas_lab on one page</title><style>{LOOK}</style></head><body><h1>mas_lab on one page</h1>"
        f"<pre>{escape(CODE)}</pre>"
        f"<h2>Recipes: what is sampled, who is compared, on which number</h2>{_recipes()}"
        f'<div class="two"><div><h2>By hand</h2>{_pairs(RULES, code=False)}</div>'
        f"<div><h2>Look</h2>{_pairs(TOOLS, code=True)}</div></div>"
        f'<h2>Columns: a row is one call of a model</h2><div class="columns">{"".join(_columns())}</div>'
        "</body></html>"
    )


def _recipes() -> str:
    heads = ("recipe", "plan", "group", "credit", "center", "scale", "loss", "mean over")
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _row(recipe))}</tr>" for recipe in RECIPES.values())
    note = (
        "<p>* an episode counts once, however many rows it has. by …: over those rows, not over the group. "
        "alone 0: a row without a peer keeps its whole credit. mean over: what the losses are averaged over.</p>"
    )
    return f"<table class=recipes><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>{rows}</table>{note}"


def _row(recipe: Recipe) -> Iterator[str]:
    yield f"<code>{recipe.name}</code>"
    yield f"<code>{escape(short(recipe.plan, pick=recipe.credit))}</code>"
    yield " · ".join(recipe.by)
    yield f"<code>{escape(short(recipe.credit))}</code>"
    names = {None: "mean", "none": "0", "loo": "mean of others", "max": "largest"}
    yield _statistic(recipe, "center", names)
    yield _statistic(recipe, "scale", {None: "deviation", "none": "1"})
    yield f"<code>{escape(short(recipe.loss))}</code>"
    yield {"token": "tokens", "turn": "rows", "agent": "agents", "sum": "row sums"}[recipe.aggregate]


def _statistic(recipe: Recipe, which: str, names: Mapping[Any, str]) -> str:
    """Describe the center or the scale; a star if an episode counts once, for any number of rows."""
    held = getattr(recipe, which)
    if callable(held):
        return f"<code>{escape(short(held))}</code>"
    told = f"by {' · '.join(held)}" if isinstance(held, tuple) else names[held]
    once = recipe.once_per.get(which) if isinstance(recipe.once_per, Mapping) else recipe.once_per
    lone = ", alone 0" if which == "center" and recipe.lone == "reward" else ""
    return f"{told}{'*' if once else ''}{lone}"


def short(part: Any, **usual: Any) -> str:
    """Return a recipe's part as short text, such as `tree(8)`.

    It has the first number, and the values that differ from the defaults and from `usual`.
    """
    told = []
    for place, (name, parameter) in enumerate(inspect.signature(type(part)).parameters.items()):
        value = getattr(part, name)
        usually = usual.get(name, parameter.default)
        if place == 0 and value and isinstance(value, int | float) and parameter.kind is not parameter.KEYWORD_ONLY:
            told.append(f"{value:g}")
        elif value not in (usually, {}) and usually is not parameter.empty:
            shown = short(value) if is_dataclass(value) else f"{value:g}" if isinstance(value, float) else value
            told.append(f"{name}={shown}")
    return f"{type(part).__name__}({', '.join(told)})"


def _pairs(pairs: tuple[tuple[str, str], ...], code: bool) -> str:
    rows = (
        f"<tr><td>{f'<code>{escape(name)}</code>' if code else f'<b>{name}</b>'}</td><td>{told}</td></tr>"
        for name, told in pairs
    )
    return f"<table>{''.join(rows)}</table>"


def _columns() -> Iterator[str]:
    cell = ""
    for name, column in SCHEMA.items():
        if ADDED_BY[name] != cell:
            cell = ADDED_BY[name]
            yield f"<h3>{cell} adds</h3>"
        meaning = re.sub("`([^`]+)`", r"<code>\1</code>", escape(column.description))
        yield f"<p><code>{name}</code> {meaning}</p>"
