"""Exercises of notebook 12: a bootstrap interval, the probability of improvement, unequal inputs, a study design."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.course.compare import asked, close, tables
from mas_lab.course.exercises import NotYet, exercise
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.study.comparison import FEW
from mas_lab.study.design import Cell, Design
from mas_lab.study.intervals import bootstrap_interval, probability_of_improvement
from mas_lab.train.config import ConfigError, Place

SCORES = (
    (0.46, 0.41, 0.00, 0.59, 0.36),
    (0.10, 0.12, 0.13, 0.15, 0.18, 0.95),
    (0.71, 0.52, 0.64, 0.90, 0.33, 0.48, 0.61, 0.75),
    (0.02, 0.05, 0.04, 0.97, 0.93, 0.01, 0.06, 0.99, 0.90, 0.03),
)
SAMPLES = 4000
NEAR = 0.03
"""Tolerance as a share of the scores' spread. Two intervals from that many draws differ by less."""


@exercise(
    "12.1",
    "Draw as many scores as there are, with replacement: `rng.choice(scores, size=(samples, len(scores)))`.",
    "The interquartile mean of each draw comes next, along its last axis: `iqm(drawn)`.",
    "The middle 95 % lies between the quantiles 0.025 and 0.975 of those `samples` numbers.",
)
def interval(answer: Callable) -> str:
    for scores in SCORES:
        yours, ours = asked(answer, np.array(scores), SAMPLES, np.random.default_rng(0)), bootstrap_interval([scores])
        if not isinstance(yours, Iterable) or len(yours := list(yours)) != 2:
            raise NotYet("two numbers are asked for, (low, high)")
        spread = max(scores) - min(scores)
        for end, one, right in zip(("low", "high"), yours, ours, strict=True):
            close(one / spread, right / spread, f"the {end} end of {list(scores)}, in units of their spread", NEAR)
    return f"for {len(SCORES)} sets of scores"


@exercise(
    "12.2",
    "Every run of `x` meets every run of `y`: `x[:, None] > y` is a table of all of these pairs.",
    "A tie is half a win: add half of the mean of `x[:, None] == y`.",
)
def better(answer: Callable) -> str:
    rng = np.random.default_rng(0)
    for size_x, size_y in ((5, 5), (1, 1), (10, 3), (4, 9), (3, 3)):
        x, y = (rng.integers(0, 4, size) / 4 for size in (size_x, size_y))
        told = f"x = {x.tolist()}, y = {y.tolist()}"
        close(asked(answer, x, y), probability_of_improvement([x], [y]), told, tolerance=1e-6)
    return "ties count half, and the arms may have unequal numbers of runs"


UNEQUAL = {"rates tried", "sampled tokens", "score"}
OUTCOME = {"success", "processor seconds"}


def two_runs() -> pd.DataFrame:
    """Return a report on two invented runs."""
    told = {
        "recipe": ("grpo", "dr_mas"),
        "task": ("ladder of 8", "ladder of 8"),
        "seeds": ("0 to 4", "0 to 4"),
        "first weights": ("one set a seed", "one set a seed"),
        "rates tried": ("1", "5"),
        "episodes": ("3,840", "3,840"),
        "optimizer steps": ("30", "30"),
        "sampled tokens": ("79,100", "105,300"),
        "held-out tasks": ("64, by the seed", "64, by the seed"),
        "score": ("after the last step", "best of 6 on the way"),
        "processor seconds": ("14.7", "17.2"),
        "success": ("0.12", "0.41"),
    }
    return pd.DataFrame(told, index=["run A", "run B"]).T


@exercise(
    "12.3",
    "Go through the rows in which A and B differ. Is it what is compared, what came out, or what went in?",
    "Three things went in unequally. One is luck twice over, one is a choice, one follows from how far a team gets.",
)
def not_equal(named: Any) -> str:
    if isinstance(named, str) or not isinstance(named, Iterable):
        raise NotYet("a set of row names is asked for")
    named, runs = set(named), two_runs()
    if unknown := named - set(runs.index):
        raise NotYet(f"the report has no row {sorted(map(str, unknown))[0]!r}")
    same = sorted(name for name in named if runs.loc[name].nunique() == 1)
    if same:
        raise NotYet(f"{same[0]!r} is the same for both")
    if "recipe" in named:
        raise NotYet("'recipe' is what is compared")
    if outcome := sorted(named & OUTCOME):
        raise NotYet(f"{outcome[0]!r} is what came out; asked for is what went in")
    if missing := UNEQUAL - named:
        raise NotYet(f"{len(missing)} more went in unequally")
    return "and each of them could make B look better by itself"


RATES, TRIED_WITH, AGENTS = 3, 2, 4


@exercise(
    "12.4",
    "Start from the study above: `n_agents` 4, the two arms `dr_mas` and `dr_mas_mean`, and `budget` in tokens.",
    'A sweep replaces the one `lr` of the team: `"sweep": {"lr": [...], "seeds": [...]}`, with seeds of its own.',
    "Below five seeds there is no interval; the sweep wants three rates or more, over two seeds or more.",
)
def design_of_a_study(said: Any) -> str:
    if not isinstance(said, Mapping):
        raise NotYet(f"a design is a dict, and this is {type(said).__name__}")
    try:
        design = Design.of(said, Place(Path("study")))
        swept = design.sweeps()
    except (ConfigError, TypeError, ValueError) as error:
        raise NotYet(f"no study can be made of it: {error}") from error
    if not swept:
        raise NotYet("every arm runs at one learning rate, which may suit one of them better: sweep it")
    _refuse_another_question(design, swept)
    _refuse_too_little(design, swept)
    compared = sum(len(design.arms_of(task)) * len(design.seeds_of(task)) for task in design.tasks)
    return f"{len(swept)} trainings of the sweep and {compared} to compare"


def _refuse_another_question(design: Design, swept: list[Cell]) -> None:
    env, team = swept[0].config["env"], swept[0].config["team"]
    if len(design.tasks) != 1 or env != {"name": "ladder", "n_agents": AGENTS}:
        raise NotYet(f"one task is asked for, a ladder of {AGENTS} agents; this is {env}")
    if team.get("weights") != "per_agent":
        raise NotYet("with one set of weights for all, an agent's own statistics are another matter: 'per_agent'")
    [task] = design.tasks
    if others := [name for name in design.differences(task) if not name.startswith("recipe.")]:
        raise NotYet(f"the arms differ in {others[0]} too, which might be what makes the difference")
    arms = {cell.arm: cell.training().recipe for cell in swept}
    if sorted(map(_statistics, arms.values())) != ["own mean", "own mean and scale"]:
        told = ", ".join(f"{arm}: {_statistics(recipe)}" for arm, recipe in arms.items())
        raise NotYet(f"two arms are asked for that both have the own mean and differ in the scale alone; these: {told}")


def _statistics(recipe: Recipe) -> str:
    """Return whose statistics a recipe uses, found by comparing its advantages with known recipes."""
    known = {"global": "grpo", "own mean": "dr_mas_mean", "own scale": "dr_mas_std", "own mean and scale": "dr_mas"}
    rows = list(tables(3, seed=12))
    made = [recipe.advantages(table)["advantage"] for table in rows]
    for called, name in known.items():
        theirs = [RECIPES[name].advantages(table)["advantage"] for table in rows]
        if all(np.allclose(one, other) for one, other in zip(made, theirs, strict=True)):
            return called
    return "something else"


def _refuse_too_little(design: Design, swept: list[Cell]) -> None:
    [task] = design.tasks
    if "tokens" not in design.budget_of(task):
        kind = next(iter(design.budget_of(task))).replace("_", " ")
        raise NotYet(f"held equal are {kind}; asked for are sampled tokens")
    if (seeds := len(design.seeds_of(task))) < FEW:
        raise NotYet(f"{seeds} seeds to compare give dots, and no interval")
    if len({cell.lr for cell in swept}) < RATES:
        raise NotYet(f"{RATES} learning rates or more are asked for: with fewer, the best is an end of those tried")
    if len({cell.seed for cell in swept}) < TRIED_WITH:
        raise NotYet("a rate that was tried with a single seed may be chosen for that seed's luck")
