"""Exercises of notebook 00: advantages by hand, reading the table, another baseline, and a step of training."""

import pandas as pd

from mas_lab.backends.loading import load_policy
from mas_lab.cells.credits import mixed
from mas_lab.cells.normalization import normalize
from mas_lab.cells.plans import tree
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import update
from mas_lab.course.compare import close, close_by, entries, mistakes, need, result_of, same_advantages
from mas_lab.course.exercises import NotebookData, StudentCode, exercise
from mas_lab.recipes import RECIPES
from mas_lab.tasks import make_env
from mas_lab.team import Team

CREDITS = (0.2, 0.2, 0.2, 0.6, 0.8)


@exercise("00.1")
def by_hand(advantages):
    table = pd.DataFrame({"credit": CREDITS, "group": "g"})
    right, wrong = normalize(table)["advantage"], pd.DataFrame(mistakes(table))
    for row, yours in enumerate(entries(advantages, len(CREDITS), "advantages")):
        close(yours, right[row], f"row {row}, credit {CREDITS[row]}", 0.02, dict(wrong.loc[row]))
    return f"they sum to {abs(sum(advantages)):.1f}, as advantages of one group always do"


@exercise("00.2")
def not_chosen(turns: NotebookData, number):
    close(number, ((turns["agent"] == "executor") & ~turns["kept"]).sum(), "the count", tolerance=1e-9)


@exercise("00.3")
def global_baseline(table):
    need(isinstance(table, pd.DataFrame) and "advantage" in table, "give the table that `normalize` returns")
    kept = (table["credit"] - mixed()(table)).abs().max() < 1e-9
    need(kept, "its credit is another one; keep `credit=lab.mixed(alpha=1.0)`, and change only `by`")
    groups, tasks = table["group"].nunique(), table["task"].nunique()
    need(groups == tasks, f"{groups} groups for {tasks} tasks")
    same_advantages(table["advantage"], table)


@exercise("00.4")
def step(answer: StudentCode):
    env = make_env("plan_path")
    tasks, steps = env.tasks(3, "train", 5), []
    for make in (lambda *arguments: result_of(answer, *arguments), _step):
        steps.append(make(env, Team.shared(load_policy(env.pocket), env.agents), tasks, 7))
    need(isinstance(steps[0], pd.DataFrame) and "grad_norm" in steps[0], "return the table of `lab.update`")
    yours, ours = (stats.set_index("agent")["grad_norm"] for stats in steps)
    need(yours.index.is_unique, "your step makes several optimizer steps; make one, with one epoch and one minibatch")
    close_by(yours, ours, "the gradient norm", tolerance=1e-3)


def _step(env, team, tasks, seed):
    recipe = RECIPES["at_grpo"]
    return update(team, recipe.advantages(rollout(env, team, tasks, tree(4), seed)), recipe.loss)
