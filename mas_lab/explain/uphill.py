"""Measure which recipe's gradient points uphill, agent by agent, before any training.

A recipe turns the rows of a rollout into a gradient. Is it the direction in which reward grows? That direction is not
known, but other rollouts of the same team estimate it without bias. So the cosine between a recipe's gradient on one
rollout and such an estimate from the others says how much of the recipe's step goes uphill. No step is made.

There are two references, because they can disagree. The first is the gradient of the team's return, the second that of
the agent's own reward. Leaves out: clipping, the optimizer, and everything that happens after the first step.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import learners
from mas_lab.display.documented_frame import documented
from mas_lab.display.progress import progress_bar
from mas_lab.env import Env
from mas_lab.explain.diagnostics import restored_gradients
from mas_lab.explain.wrong_way import difference
from mas_lab.locks import locked
from mas_lab.losses import reinforce
from mas_lab.policy import Policy, samples_of
from mas_lab.recipes import RECIPES, Recipe, by_name
from mas_lab.table import in_batch
from mas_lab.team import Team

DEFAULTS = ("grpo", "grpo_masked", "dr_mas", "own_robust")
EXACT, SKETCH = 2**20, 2**16
"""A gradient of more numbers than the first is projected onto as many as the second."""
FEW, WIDE, UNTOLD = 10, 0.5, "untold"
"""Fewer rows per rollout, or a wider interval, say nothing: the verdict is then the third."""


def uphill(
    team: Team,
    env: Env,
    recipes: str | Recipe | Sequence[str | Recipe] = DEFAULTS,
    rollouts: int = 12,
    tasks: int = 16,
    seed: int = 0,
) -> pd.DataFrame:
    """Return for each agent and recipe how much of the recipe's gradient points uphill; weights stay as they are.

    >>> lab.uphill(team, env, recipes=["grpo", "dr_mas"])

    Args:
        team: The team. Each agent that learns is measured; its back end must give gradients.
        env: The environment.
        recipes: Names or recipes. All explore alike (their `plan`), since they read the same rollouts.
        rollouts: Number of rollouts B, 2 or more. Each costs the sampling of a training step, and for every agent a
            forward and backward pass for each recipe and for both references.
        tasks: Number of tasks of a rollout, as in a training step.
        seed: Seed of tasks and draws.

    Returns:
        A table with a row per agent and recipe, described by `lab.schema("uphill")`:
        - `cos_team`, `cos_own`: mean over rollouts of the cosine with the reference of the team's return, and with that
          of the agent's own reward (`local_reward`). NaN where a reference vanishes.
        - `low`, `high`: 95 % t interval of `cos_own` over rollouts (of `cos_team` where own rewards never differ).
        - `norm`: mean norm of the gradient of the mean token loss.
        - `rows`: mean number of rows per rollout whose advantage is not 0.
        - `verdict`: "uphill" or "downhill" if the interval lies on one side of 0, else "across". "untold" below
          `FEW` rows per rollout, or if the interval is wider than `WIDE`.

    Raises:
        ValueError: An argument has no meaning, or two recipes explore differently.

    With z_i the gradient of row i's summed log-probability, rollout b has the gradients

        g_b = sum_i A_i z_i,    r_b = sum_i (R_i - m_i) z_i,

    where A is the recipe's advantage, R the team's return or the agent's own reward, and m a mean that row i's episode
    does not enter: `own_robust` without a scale, or the agent's mean reward in the other tasks. So E r_b is the policy
    gradient (Williams 1992, REINFORCE). The table has the mean of cos(g_b, sum of r_c over c != b). Gradients of more
    than a million numbers are compared by a count sketch (Charikar, Chen and Farach-Colton 2002): its cosines are off
    by about 1 / sqrt(65,536) = 0.004. All gradients are kept: B x agents x (recipes + 2) vectors.
    """
    check_arguments(uphill, locals(), rollouts=2, tasks=1, seed=0)
    chosen = by_name(recipes, "uphill")
    plans = {repr(recipe.plan) for recipe in chosen.values()}
    if len(plans) != 1:
        raise ValueError(f"uphill: recipes={list(chosen)} must have one plan; they have {plans}")
    plan = next(iter(chosen.values())).plan

    learning = [(name, agent) for name in team.policies for agent in team.learners(name)]
    gradients: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    cost = f"uphill: {rollouts} rollouts of {tasks} tasks, {rollouts * len(learning) * (len(chosen) + 2)} gradients"
    with progress_bar(rollouts, cost, "rollout", even=True) as bar:
        for number in range(rollouts):
            drawn = env.tasks(tasks, "train", seed=seed * 10_007 + number)
            weights = weights_of(rollout(env, team, drawn, plan, seed=seed, step=number), chosen, team)
            with locked(learners(team)):
                for name, agent in learning:
                    own = weights[weights["agent"] == agent]
                    for column in (*chosen, "team", "own"):
                        gradients[agent, column].append(projected(team.policies[name], own, own[column]))
                        rows[agent, column].append(int((own[column] != 0).sum()))
            bar.update()
    found = [
        {"agent": agent, "recipe": recipe, **_cosines(gradients, agent, recipe, float(np.mean(rows[agent, recipe])))}
        for _, agent in learning for recipe in chosen
    ]  # fmt: skip
    return documented(pd.DataFrame(found), "uphill")


def weights_of(turns: pd.DataFrame, recipes: dict[str, Recipe], team: Team) -> pd.DataFrame:
    """Return the rows with a column per recipe, its advantages, and with the references' weights `team` and `own`."""
    unbiased = RECIPES["own_robust"].replace(scale="none", lone="zero")
    columns = {name: recipe.advantages(turns, team)["advantage"] for name, recipe in recipes.items()}
    turns = turns[in_batch(turns)]
    columns["team"] = unbiased.advantages(turns)["advantage"]
    own = turns["local_reward"].groupby(turns["agent"])
    task = turns["local_reward"].groupby([turns["agent"], turns["task"]])
    others = own.transform("size") - task.transform("size")
    mean = (own.transform("sum") - task.transform("sum")) / others.where(others > 0)
    columns["own"] = difference(turns["local_reward"], mean).fillna(0.0)
    return turns.drop(columns=[name for name in columns if name in turns]).assign(**columns)


def projected(policy: Policy, rows: pd.DataFrame, weight: pd.Series) -> np.ndarray:
    """Return the gradient of the rows' weighted mean token loss, and its count sketch if it is long."""
    import torch

    used = rows.assign(advantage=weight)[weight != 0]
    total = sum(map(len, rows["completion_ids"]))
    with restored_gradients(policy):
        if len(used):
            policy.forward_backward(samples_of(used, weight=1 / total), reinforce())
        flat = torch.cat([gradient.detach().reshape(-1).float().cpu() for _, gradient in policy.gradients()])
    if len(flat) <= EXACT:
        return flat.double().numpy()
    random = torch.Generator().manual_seed(0)
    place = torch.randint(SKETCH, (len(flat),), generator=random)
    sign = torch.randint(2, (len(flat),), generator=random, dtype=torch.int8) * 2 - 1
    return torch.zeros(SKETCH).index_add_(0, place, flat * sign).double().numpy()


def cosines(gradients: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> np.ndarray:
    """Return the cosine (B,) of each rollout's gradient and the sum of the other rollouts' references."""
    total = np.sum(references, axis=0)
    found = []
    for gradient, own in zip(gradients, references, strict=True):
        length = np.linalg.norm(gradient) * np.linalg.norm(total - own)
        found.append(gradient @ (total - own) / length if length > 0 else np.nan)
    return np.array(found)


def _cosines(gradients: Mapping[tuple[str, str], Sequence[np.ndarray]], agent: str, recipe: str, rows: float) -> dict:
    """Return the numbers and the verdict of one row."""
    from scipy.stats import t as student

    own = gradients[agent, recipe]
    of_team, of_own = (cosines(own, gradients[agent, reference]) for reference in ("team", "own"))
    known = of_own if np.isfinite(of_own).sum() > 1 else of_team
    known, low, high = known[np.isfinite(known)], np.nan, np.nan
    if len(known) > 1:
        half = student.ppf(0.975, len(known) - 1) * known.std(ddof=1) / len(known) ** 0.5
        low, high = known.mean() - half, known.mean() + half
    if rows < FEW or not high - low <= WIDE:
        verdict = UNTOLD
    else:
        verdict = "uphill" if low > 0 else "downhill" if high < 0 else "across"
    means = [float(np.nanmean(one)) if np.isfinite(one).any() else np.nan for one in (of_team, of_own)]
    return {
        "cos_team": means[0], "cos_own": means[1], "low": low, "high": high,
        "norm": float(np.mean([np.linalg.norm(one) for one in own])), "rows": rows, "verdict": verdict,
    }  # fmt: skip


def cosine_of(found: pd.DataFrame) -> pd.Series:
    """Return the cosine behind each verdict of `uphill`: `cos_own`, or `cos_team` if own rewards never differ."""
    return found["cos_own"].fillna(found["cos_team"])
