"""Five trainings with one silent defect each: they run and draw curves, but something is wrong.

`broken("A")` trains with the defect, `broken("A", mended=True)` without it. Both use the same weights, tasks and draws.
This file contains the answers of notebook 13. Leaves out: the instruments that show the defects, and the exercises
(`checks/n13`).
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.backends.loading import load_policy
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import update
from mas_lab.course.exercises import ExerciseError
from mas_lab.env import Env
from mas_lab.recipes import RECIPES, Recipe
from mas_lab.tasks import make_env
from mas_lab.team import Team
from mas_lab.train.evaluate import evaluate

COLUMNS = ["recipe", "seed", "step", "tokens", "success"]
TASKS = 16
"""Number of tasks in a step."""
PAD = 0
"""Token id of padding of the pocket models."""


class Lesson(NamedTuple):
    """Settings of one training."""

    env: dict[str, Any]
    recipe: str
    steps: int
    per_agent: bool
    lr: float

    def team(self, env: Env) -> Team:
        """Return a new team with pocket weights."""
        if self.per_agent:
            return Team.per_agent(lambda agent: load_policy(env.pocket, lr=self.lr), env.agents)
        return Team.shared(load_policy(env.pocket, lr=self.lr), env.agents)


@dataclass(frozen=True)
class Training:
    """Result of a training: tables of all steps, the reported curve, and the trained team."""

    turns: pd.DataFrame
    stats: pd.DataFrame
    curve: pd.DataFrame
    team: Team = field(repr=False)
    env: Env = field(repr=False)

    def __repr__(self) -> str:
        name, (first, last) = self.curve["recipe"].iloc[0], self.curve["success"].iloc[[0, -1]]
        rows = f"{len(self.turns)} rows in {self.turns['step'].nunique()} steps"
        return f"{name}: {rows}, success as reported {first:.2f} -> {last:.2f}"


def _stride(turns: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """Form groups of eight by position, although the rows were shuffled."""
    turns = turns.sample(frac=1, random_state=len(turns)).reset_index(drop=True)
    right = recipe.advantages(turns)
    groups = np.arange(len(turns)) // 8
    of_group = right["credit"].groupby(groups)
    center, scale = of_group.transform("mean"), of_group.transform("std", ddof=0)
    advantage = ((right["credit"] - center) / (scale + 1e-6)).where(scale > 0, 0.0)
    names = [f"s{step}.{number}" for step, number in zip(right["step"], groups, strict=True)]
    return right.assign(group=names, center=center, scale=scale, advantage=advantage)


def _credit_if_lone(turns: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """Keep the credit of a row that is alone in its group as its advantage."""
    right = recipe.advantages(turns)
    lone = right.groupby("group")["group"].transform("size") == 1
    return right.assign(advantage=right["advantage"].where(~lone, right["credit"]))


def _padded(turns: pd.DataFrame, recipe: Recipe) -> pd.DataFrame:
    """Pad every completion to the longest one, as in a rectangular batch, without a mask."""
    longest = turns["completion_ids"].map(len).max()
    ids = [[*ids, *[PAD] * (longest - len(ids))] for ids in turns["completion_ids"]]
    logprobs = [[*row, *[0.0] * (longest - len(row))] for row in turns["logprobs"]]
    return recipe.advantages(turns.assign(completion_ids=ids, logprobs=logprobs))


MAZE = Lesson({"name": "plan_path"}, "at_grpo", steps=12, per_agent=False, lr=1e-3)
LADDER = Lesson({"name": "ladder", "n_agents": 6}, "dr_mas", steps=24, per_agent=True, lr=3e-4)
LESSONS = {"A": MAZE, "B": LADDER, "C": MAZE, "D": MAZE, "E": LADDER}
ADVANTAGES = {"B": _credit_if_lone, "D": _padded, "E": _stride}


def broken(letter: str, mended: bool = False, steps: int | None = None) -> Training:
    """Train one of the five defective runs of notebook 13.

    Args:
        letter: The run, "A" to "E".
        mended: True trains without the defect, from the same weights, with the same tasks and draws.
        steps: Number of training steps. `None`: the number of that run, 12 or 24.

    Returns:
        A `Training` with the tables of all steps, the reported success, and the team.

    Raises:
        ExerciseError: No run has this letter.
        ValueError: `steps` is not a count from 1.
    """
    check_arguments(broken, locals(), steps=1)
    if letter not in LESSONS:
        raise ExerciseError(f"no broken training {letter!r}; there are {', '.join(LESSONS)}")
    lesson, defect = LESSONS[letter], "" if mended else letter
    name, recipe, steps = "mended" if mended else f"run {letter}", RECIPES[lesson.recipe], steps or lesson.steps
    env = make_env(**lesson.env)
    team = lesson.team(env)
    speaking = lesson.team(env) if defect == "A" else team  # these keep their first weights
    all_tasks, tables, stats, tokens = env.tasks(TASKS * steps, "train", 0), [], [], 0
    curve = [(name, 0, 0, 0, _test_success(env, team))]
    for step in range(steps):
        turns = rollout(env, speaking, all_tasks[step * TASKS :][:TASKS], recipe.plan, seed=0, step=step)
        tokens += int(turns["completion_ids"].map(len).sum())
        turns = ADVANTAGES[defect](turns, recipe) if defect in ADVANTAGES else recipe.advantages(turns)
        # The old weights of A and the padding of D would be refused.
        stats.append(update(team, turns, recipe.loss, off_policy=True).assign(step=step))
        tables.append(turns)
        if (step + 1) % max(1, steps // 4) == 0 or step + 1 == steps:
            of_training = turns.groupby("episode")["success"].any().mean()  # the best candidates of each tree
            success = float(of_training) if defect == "C" else _test_success(env, team)
            curve.append((name, 0, step + 1, tokens, success))
    both = (pd.concat(parts, ignore_index=True) for parts in (tables, stats))
    return Training(*both, pd.DataFrame(curve, columns=COLUMNS), team, env)


def _test_success(env: Env, team: Team) -> float:
    return float(evaluate(env, team, env.tasks(64, "test", seed=0), k=2)["success"].mean())
