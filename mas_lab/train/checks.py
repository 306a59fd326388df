"""The checks of a call of `train`: arguments that have no meaning, or that do not fit each other.

Leaves out: types and ranges of single arguments (`arguments`, `Settings`), and the env itself (`check_env`).
"""

from pathlib import Path

from mas_lab.arguments import check_arguments
from mas_lab.cells.normalization import check_normalize
from mas_lab.cells.update import UpdateCallback, check_update
from mas_lab.env import Env
from mas_lab.recipes import Recipe, stateful_parts
from mas_lab.team import Team
from mas_lab.train.budget import Budget
from mas_lab.train.drawing import Curriculum
from mas_lab.train.record import describe_parts
from mas_lab.train.settings import Settings
from mas_lab.train.staleness import check_staleness


def check_training(
    env: Env,
    team: Team,
    recipe: Recipe,
    settings: Settings,
    steps: int | None,
    budget: Budget | None,
    run: str | Path | None,
    fork: str | Path | None,
    watch: UpdateCallback | None,
    curriculum: Curriculum | None,
) -> None:
    """Raise TypeError or ValueError if the arguments of `train` make no training."""
    if steps is None and budget is None:
        raise TypeError("train: give steps=, how many to make, or budget={'tokens': ...}, at which it ends")
    if budget is None and (every := settings.score_every or 1) < 1:
        raise TypeError(f"train: score_every={every} is a share of a budget; give budget=, or whole steps")
    if fork is not None and run is None:
        raise TypeError(f"train: fork={str(fork)!r} begins a new run; give run=, a folder to keep it in")
    _check_recipe(recipe, settings)
    stateful_parts({**vars(recipe), "curriculum": curriculum})
    check_update(team, recipe.loss, recipe.aggregate, settings.max_norm, watch, "train")
    if run is not None:
        describe_parts(env, recipe, curriculum)  # refuses a part that cannot be compared when the run goes on
    _check_team(env, team, settings)
    if settings.staleness:
        check_staleness(settings.staleness, team, {**vars(recipe), "curriculum": curriculum})


def _check_recipe(recipe: Recipe, settings: Settings) -> None:
    check_arguments(Recipe, vars(recipe), "train")
    check_normalize(**recipe.normalization)
    if type(recipe).advantages is not Recipe.advantages:
        raise TypeError(
            f"train: {type(recipe).__name__} overrides advantages(), and train calls group() and normalize(); override "
            "normalize(self, turns, team=None), which returns the table with advantages"
        )
    if settings.rounds > 1 and recipe.select is None:
        raise ValueError(
            f"train: rounds={settings.rounds} draws more tasks until enough are worth learning from, and recipe "
            f"{recipe.name!r} does not say which are: recipe.replace(select=lab.not_flat())"
        )
    across = {"task", "episode", "node"}.isdisjoint(recipe.by)  # such groups need no siblings
    if 1 in [getattr(recipe.plan, name, None) for name in ("n", "k", "g")] and not across:
        raise ValueError(f"train: {recipe.plan} gives groups of one (K = 1): nothing is compared; use two or more")


def _check_team(env: Env, team: Team, settings: Settings) -> None:
    for agent in env.agents:
        if agent not in team:
            raise ValueError(f"train: agent {agent!r} has no policy; the env plays {env.agents}, the team {list(team)}")
    for start, agents in (settings.learn or {}).items():
        if not set(agents) - set(team.frozen) or not set(agents) <= set(team):
            raise ValueError(
                f"train: learn has {list(agents)} from step {start} on; name at least one agent that is not frozen, of "
                f"{[agent for agent in team if agent not in team.frozen]}"
            )
