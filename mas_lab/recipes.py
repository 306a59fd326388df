"""Recipes: published methods and their ablations as rows of one table.

A recipe holds the arguments of the four cells: how to explore, which rows to compare on which number, and how to step.
`mas_lab.train` uses it. A recipe is data: it can be printed, compared and saved, and `replace` changes it:

    RECIPES["at_grpo"].replace(plan=tree(4), loss=clipped(0.2, high=0.28))

Leaves out: the cells themselves (`mas_lab.cells`).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mas_lab.arguments import did_you_mean
from mas_lab.cells.centers import group_mean, pooled_deviation, running_mean, shrunken_mean
from mas_lab.cells.credits import (
    Credit,
    counterfactual,
    difference_return,
    episode_return,
    mixed,
    own_return,
    return_to_go,
)
from mas_lab.cells.episode import Plan
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import Center, Scale, normalize
from mas_lab.cells.plans import episodes, joint, tree, without
from mas_lab.cells.selection import Selector, not_flat, select
from mas_lab.describe import PARTS, learns
from mas_lab.lazy import Registry
from mas_lab.losses import Loss, clipped, reinforce
from mas_lab.table import COMPARED, has_several_steps, step_by_step
from mas_lab.team import Team, arguments_of


@dataclass(frozen=True)
class Recipe:
    """One method; the fields are the arguments of the four cells."""

    name: str
    """Name of the method."""
    plan: Plan
    """Exploration of an environment instance (cell 1), such as `episodes(8)`."""
    by: tuple[str, ...]
    """Columns whose values identify a group (cell 2)."""
    credit: Credit
    """The number that is compared (cell 2)."""
    center: Sequence[str] | str | Center | None = None
    """The baseline (cell 3), see `normalize`. `None`: the mean of the group."""
    scale: Sequence[str] | str | Scale | None = None
    """The divisor (cell 3), see `normalize`. `None`: the standard deviation of the group."""
    once_per: str | Mapping[str, str | None] | None = None
    """Column whose values each enter the statistics once, see `normalize`. `None`: every row counts."""
    loss: Loss = clipped(0.2)  # noqa: RUF009 - a frozen value
    """Loss per token (cell 4)."""
    aggregate: str = "token"
    """Average over tokens, see `update`: "token", "turn", "agent" or "sum"."""
    same_prompt: bool = False
    """Refuse groups whose rows answer different prompts, see `group`."""
    ddof: int = 0
    """0: standard deviation of the population; 1: of a sample."""
    eps: float = 1e-6
    """Number that is added to the scale."""
    lone: tuple[str, ...] | str = "zero"
    """Rule for rows with nothing to be compared with, see `normalize`."""
    select: Selector | None = None
    """Selector of the rows to train on, see `select`. `None`: all rows."""

    def replace(self, **changes: Any) -> "Recipe":
        """Return a copy with some fields changed.

        Args:
            **changes: New values by field name.

        Returns:
            The new recipe.
        """
        return dataclasses.replace(self, **changes)

    def advantages(self, turns: pd.DataFrame, team: Team | None = None) -> pd.DataFrame:
        """Apply cells 2 and 3, and the selector if there is one.

        Args:
            turns: Table of turns, as `rollout` returns it. The columns of an earlier comparison are replaced. A batch
                is a step: rows of several steps (column `step`) are compared step by step.
            team: The team that played `turns`, with the same weights, for a part with `needs_team = True`. `None`:
                there is none.

        Returns:
            The table with `credit`, `group`, `center`, `scale` and `advantage`, and `selected` if the recipe has a
            selector.

        Raises:
            TableError: A column is missing, or a value in it cannot be used.
            ValueError: A part needs the team, and there is none.
        """
        if has_several_steps(turns):
            return step_by_step(turns, lambda rows: self.advantages(rows, team))
        bare = turns.drop(columns=[*COMPARED, *(["selected"] if self.select else [])], errors="ignore")
        return self.normalize(self.group(bare, team), team)

    def group(self, turns: pd.DataFrame, team: Team | None = None) -> pd.DataFrame:
        """Apply cell 2 to the table of a rollout, see `advantages`."""
        return group(turns, self.by, self.credit, self.same_prompt, team)

    def normalize(self, turns: pd.DataFrame, team: Team | None = None) -> pd.DataFrame:
        """Apply cell 3 to the table of `group`, and then the selector if there is one."""
        turns = normalize(turns, **self.normalization, team=team)
        return turns if self.select is None else select(turns, self.select)

    def after(self, turns: pd.DataFrame, team: Team | None = None) -> "Recipe":
        """Return the recipe of the next step, whose parts have learned from this one. The recipe itself stays the same.

        Args:
            turns: The table of `advantages`, before `update` changes the weights.
            team: The team that played `turns`, see `advantages`.

        Returns:
            The recipe with the next value of each part that learns, such as `running_mean`. Such a part is a frozen
            dataclass with a field `state` (plain data) and a method `after(turns)`, or `after(turns, team)` if it has
            `needs_team = True`. The method returns `dataclasses.replace(self, state=...)`.
        """
        return self.replace(**{
            place: part.after(*arguments_of(part, turns, team, f"{place}.after"))
            for place, part in stateful_parts(vars(self)).items()
        })  # fmt: skip

    @property
    def normalization(self) -> dict[str, Any]:
        """Return the arguments of cell 3."""
        names = ("center", "scale", "once_per", "ddof", "eps", "lone")
        return {name: getattr(self, name) for name in names}


def stateful_parts(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that learn, by their place; raise TypeError for one that does so without `state` and `after`."""
    for place, part in parts.items():
        has_state = dataclasses.is_dataclass(part) and any(one.name == "state" for one in dataclasses.fields(part))
        if learns(part) and not has_state:
            raise TypeError(
                f"train: {place}={part!r} must learn as an immutable value. Write a frozen dataclass with a field "
                f"`state` (plain data) and a method after({'report' if place == 'curriculum' else 'turns'}) that "
                "returns dataclasses.replace(self, state=...); docs/extending.md has examples"
            )
    return {place: part for place, part in parts.items() if learns(part)}


TASK, TASK_AGENT, TURN, NODE = ("task",), ("task", "agent"), ("episode", "agent", "turn"), ("node", "agent")
CENTER_ONCE, SCALE_ONCE = {"center": "episode", "scale": None}, {"center": None, "scale": "episode"}
RELEASED = {"ddof": 1, "lone": "reward", "loss": clipped(0.2, dual=3.0)}
JOINT = {
    "plan": joint(8),
    "by": NODE,
    "credit": return_to_go(),
    "scale": "none",
    "loss": reinforce(),
    "aggregate": "sum",
}

SHIPPED = (
    # GRPO, arXiv 2402.03300: one baseline for all agents of a task. Dr. MAS argues against it.
    Recipe("grpo", episodes(8), TASK, episode_return(), once_per="episode"),
    # GRPO that counts every turn: an ablation that no paper ran.
    Recipe("grpo_turns", episodes(8), TASK, episode_return()),
    # `grpo` in which rows of a lone or flat (task, agent) group get advantage 0, as in every arm of Dr. MAS. It
    # separates this effect from the effect of the agent's own mean.
    Recipe("grpo_masked", episodes(8), TASK, episode_return(), once_per="episode", lone=TASK_AGENT),
    # Dr. MAS, arXiv 2602.08847: each agent's advantages by its own reward statistics; below, only by its mean or std.
    # The paper's penalty for an invalid output is a separate switch: credit=episode_return(invalid=0.1).
    Recipe("dr_mas", episodes(8), TASK_AGENT, episode_return()),
    # Its released code: a lone row keeps its raw reward, deviations are unbiased, and the loss has a dual clip.
    Recipe("dr_mas_released", episodes(8), TASK_AGENT, episode_return(), **RELEASED),
    Recipe("dr_mas_mean", episodes(8), TASK_AGENT, episode_return(), TASK_AGENT, scale=TASK, once_per=SCALE_ONCE),
    # The agent's own std alone is biased if its rewards do not vary: see `normalize`.
    Recipe("dr_mas_std", episodes(8), TASK_AGENT, episode_return(), TASK, scale=TASK_AGENT, once_per=CENTER_ONCE),
    # Per agent, but a trajectory counts once, however often the agent spoke in it.
    Recipe("dr_mas_episodes", episodes(8), TASK_AGENT, episode_return(), once_per="episode"),
    # Each agent's own mean per task, and one standard deviation per agent over all its credits in the batch. This is
    # the total deviation; scale=pooled_deviation() is the one within groups. A row without a peer gets advantage 0.
    Recipe("own_pooled", episodes(8), TASK_AGENT, episode_return(), scale=("agent",)),
    # The same with another center: the agent's mean with a prior.
    Recipe("own_robust", episodes(8), TASK_AGENT, episode_return(), shrunken_mean(), scale=("agent",), lone=TASK_AGENT),
    # AT-GRPO, arXiv 2510.11062: candidates of one agent at one turn are compared; the best moves the state.
    Recipe("at_grpo", tree(8, pick=mixed()), TURN, mixed(), same_prompt=True),
    # C3, arXiv 2603.06859: alternatives at a fixed context, each played on to the end, leave-one-out.
    Recipe("c3", tree(4, follow=2), TURN, counterfactual(), "loo", scale="none", same_prompt=True, loss=reinforce()),
    # CCPO, arXiv 2603.21563: what the team earned, minus what it earns without the agent.
    Recipe("ccpo", without(8), TASK_AGENT, difference_return()),
    # MARSHAL, arXiv 2510.15414: an agent's own return from this turn on, compared over all turns of its role.
    Recipe("marshal", episodes(8), ("agent",), own_return(to_go=True)),
    # `max_rl` of prime-rl: relative to the group's mean, so that rare successes weigh most.
    Recipe("max_rl", episodes(8), TASK, episode_return(), scale=group_mean(), eps=0.0),
    # Each row's own reward, as in AT-GRPO, with GRPO's grouping and without a tree. It isolates the effect of the
    # reward. Rows of an episode have different credits, so each row counts.
    Recipe("grpo_mixed", episodes(8), TASK, episode_return(own=1.0)),
    # MAGRPO, arXiv 2508.04652, and its variants: joint actions of one node are compared by their joint return.
    Recipe("magrpo", **JOINT),
    Recipe("mareinforce", **JOINT, center="none"),
    Recipe("marloo", **JOINT, center="loo"),
    Recipe("maremax", **JOINT, center="max"),
)
RECIPES = Registry({recipe.name: recipe for recipe in SHIPPED})
"""The recipes of the kit by name."""


def find(recipe: str | Recipe) -> Recipe:
    """Return a recipe by name; an unknown name raises an error that lists the known ones."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe not in RECIPES:
        meant = did_you_mean(recipe, RECIPES)
        raise ValueError(
            f"unknown recipe {recipe!r}; {meant}known are {', '.join(RECIPES)}, or pass a Recipe of your own"
        )
    return RECIPES[recipe]


def by_name(recipes: str | Recipe | Sequence[str | Recipe], cell: str) -> dict[str, Recipe]:
    """Return recipes by their names; ValueError if two have one name, under which a table could not tell them apart."""
    recipes = [recipes] if isinstance(recipes, str | Recipe) else recipes
    named = {recipe.name: recipe for recipe in map(find, recipes)}
    if len(named) < len(recipes):
        raise ValueError(
            f"{cell}: two of the recipes {[find(one).name for one in recipes]} have one name; "
            "give a variant its own with recipe.replace(name='mine')"
        )
    return named


KNOWN = (Recipe, episodes, tree, joint, without, episode_return, own_return, mixed, return_to_go, counterfactual,
         difference_return, running_mean, group_mean, pooled_deviation, shrunken_mean, not_flat, clipped,
         reinforce)  # fmt: skip
PARTS |= {part.__name__: part for part in KNOWN}


def from_data(data: Any) -> Any:
    """Return the part that `describe` wrote, with tuples for lists; ValueError names one that is not the kit's own."""
    if isinstance(data, list):
        return tuple(from_data(one) for one in data)
    if not isinstance(data, dict) or "is" not in data:
        return data
    if data["is"] not in PARTS:
        raise ValueError(
            f"the recipe holds {data['is']!r}, which is not part of mas_lab and cannot be made from data; "
            "build it in your own code and pass it to train()"
        )
    fields = {name: from_data(value) for name, value in data.items() if name != "is"}
    return PARTS[data["is"]](**fields)


def typed(data: Any) -> str:
    """Return the output of `describe` as source code."""
    if isinstance(data, Mapping) and "is" in data:
        arguments = ", ".join(f"{name}={typed(value)}" for name, value in data.items() if name != "is")
        return f"{data['is']}({arguments})"
    return repr(data)
