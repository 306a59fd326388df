"""The checks of a call of `train`: arguments that have no meaning, or that do not fit each other.

Leaves out: types and ranges of single arguments (`arguments`, `Settings`), and the env itself (`check_env`).
"""

from inspect import signature
from pathlib import Path

from mas_lab.arguments import check_arguments
from mas_lab.cells.normalization import check_normalize
from mas_lab.cells.update import check_update
from mas_lab.describe import part_name
from mas_lab.recipes import Recipe, stateful_parts
from mas_lab.train.progress import Progress
from mas_lab.train.record import describe_parts
from mas_lab.train.staleness import check_staleness

CALLS = {
    "credit": ("turns",), "select": ("turns",),
    "loss": ("logprobs_N", "old_N", "advantages_N", "row_N", "entropy_N", "reference_N"),
}  # fmt: skip
"""Parts of a recipe, and what each is called with."""


def check_training(now: Progress, run: str | Path | None, fork: str | Path | None) -> None:
    """Raise TypeError or ValueError if the arguments of `train` make no training."""
    team, recipe, settings = now.team, now.recipe, now.settings
    if now.steps is None and now.budget is None:
        raise TypeError("train: give steps=, how many to make, or budget={'tokens': ...}, at which it ends")
    if now.budget is None and (every := settings.score_every or 1) < 1:
        raise TypeError(f"train: score_every={every} is a share of a budget; give budget=, or whole steps")
    if fork is not None and run is None:
        raise TypeError(f"train: fork={str(fork)!r} begins a new run; give run=, a folder to keep it in")
    check_arguments(Recipe, vars(recipe), "train")
    check_normalize(**recipe.normalization)
    for name, arguments in CALLS.items():
        if part := getattr(recipe, name):
            try:
                takes = signature(part)
                takes.bind(*arguments, **{name: None for name in ("team",) if name in takes.parameters})
            except TypeError as error:
                called = f"{name}({', '.join(arguments)})"
                raise TypeError(f"train: {name} {part_name(part)} cannot be called as {called}: {error}") from None
    if settings.rounds > 1 and recipe.select is None:
        raise ValueError(
            f"train: rounds={settings.rounds} draws more tasks until enough are worth learning from, and recipe "
            f"{recipe.name!r} does not say which are: recipe.replace(select=lab.not_flat())"
        )
    across = {"task", "episode", "node"}.isdisjoint(recipe.by)  # such groups need no siblings
    if 1 in [getattr(recipe.plan, name, None) for name in ("n", "k", "g")] and not across:
        raise ValueError(f"train: {recipe.plan} gives groups of one (K = 1): nothing is compared; use two or more")
    stateful_parts(now.parts)
    check_update(team, recipe.loss, recipe.aggregate, settings.max_norm, now.watch, "train")
    if run is not None:
        describe_parts(now)  # refuses a part that cannot be compared when the run goes on
    if missing := [agent for agent in now.env.agents if agent not in team]:
        raise ValueError(
            f"train: agent {missing[0]!r} has no policy; the env plays {now.env.agents}, the team {list(team)}"
        )
    able = [agent for agent in team if agent not in team.frozen]
    for agent in able:
        own = team.sampling[agent]
        if own.temperature == 0 or own.top_p < 1 or own.top_k is not None:
            raise ValueError(f"train: agent {agent!r} samples with {own}; to learn it needs a temperature above 0, "
                             "top_p=1 and top_k=None")  # fmt: skip
    for start, agents in (settings.learn or {}).items():
        if set(able).isdisjoint(agents) or not set(agents) <= set(team):
            raise ValueError(
                f"train: learn has {list(agents)} from step {start} on; name at least one agent that is not frozen, of "
                f"{able}"
            )
    if settings.staleness:
        check_staleness(settings.staleness, team, now.parts)
