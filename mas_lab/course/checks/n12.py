"""Exercises of notebook 12: a bootstrap interval, the probability of improvement, unequal inputs, a study design."""

import numpy as np

from mas_lab.course.compare import agrees, close, names, need, result_of
from mas_lab.course.exercises import exercise
from mas_lab.recipes import RECIPES
from mas_lab.study.comparison import FEW
from mas_lab.study.design import Design
from mas_lab.study.intervals import bootstrap_interval, probability_of_improvement

SCORES = (
    (0.46, 0.41, 0.00, 0.59, 0.36),
    (0.10, 0.12, 0.13, 0.15, 0.18, 0.95),
    (0.71, 0.52, 0.64, 0.90, 0.33, 0.48, 0.61, 0.75),
    (0.02, 0.05, 0.04, 0.97, 0.93, 0.01, 0.06, 0.99, 0.90, 0.03),
)
NEAR = 0.03
"""Tolerance as a share of the scores' spread. Two intervals from 4,000 draws differ by less."""


@exercise("12.1")
def interval(answer):
    for scores in SCORES:
        low, high = result_of(answer, np.array(scores), 4000, np.random.default_rng(0))
        right, spread = bootstrap_interval([scores]), max(scores) - min(scores)
        close(low / spread, right[0] / spread, f"the low end of {scores}, in units of their spread", NEAR)
        close(high / spread, right[1] / spread, f"the high end of {scores}, in units of their spread", NEAR)


@exercise("12.2")
def better(answer):
    rng, sizes = np.random.default_rng(0), ((5, 5), (1, 1), (10, 3), (4, 9), (3, 3))
    cases = [[rng.integers(0, 4, size) / 4 for size in both] for both in sizes]
    agrees(answer, lambda x, y: probability_of_improvement([x], [y]), cases)


UNEQUAL = {"rates tried", "sampled tokens", "score"}
EQUAL = ("task", "seeds", "first weights", "episodes", "optimizer steps", "held-out tasks")
NOT_INPUTS = {"recipe": "what is compared", "success": "a result", "processor seconds": "a result"}
"""Rows of the report in 12.3."""


@exercise("12.3")
def not_equal(named):
    named = names(named, (*UNEQUAL, *EQUAL, *NOT_INPUTS))
    for name in named - UNEQUAL:
        need(False, f"{name!r} is {NOT_INPUTS.get(name, 'the same for both')}; name the unequal inputs")
    need(named == UNEQUAL, f"{3 - len(named)} more inputs are unequal")


@exercise("12.4")
def design_of_a_study(study):
    design = Design.of(study)
    swept, [task] = design.sweeps(), design.tasks
    need(swept, "every arm runs at one learning rate, which may suit one arm better: sweep it")
    env, team = swept[0].config["env"], swept[0].config["team"]
    need(env == {"name": "ladder", "n_agents": 4}, f"use a ladder of 4 agents; this is {env}")
    own = team.get("weights") == "per_agent"
    need(own, "use own weights for each agent: 'per_agent'")
    others = [name for name in design.differences(task) if not name.startswith("recipe.")]
    need(not others, f"the arms also differ in {others}, which may cause the difference")
    arms = {cell.arm: cell.training().recipe for cell in swept}
    right = len(arms) == 2 and all(RECIPES[name] in arms.values() for name in ("dr_mas", "dr_mas_mean"))
    need(right, f"use two arms with the own mean that differ only in the scale; yours are {arms}")
    budget, seeds = design.budget_of(task), len(design.seeds_of(task))
    need("tokens" in budget, f"the budget is {dict(budget)}; it should be sampled tokens")
    need(seeds >= FEW, f"{seeds} seeds give no interval")
    rates, tried = ({getattr(cell, name) for cell in swept} for name in ("lr", "seed"))
    need(len(rates) >= 3 and len(tried) >= 2, "the sweep needs 3 learning rates or more, each with 2 seeds or more")
    return f"{len(swept)} trainings of the sweep and {len(arms) * seeds} to compare"
