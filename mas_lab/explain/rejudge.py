"""Judge the same rows again under several recipes: whose advantages change sign, who loses its peers.

It needs rewards alone, so it works on a table that another trainer wrote. Leaves out: what a recipe would have sampled.
"""

from collections.abc import Sequence
from itertools import chain

import pandas as pd

from mas_lab.cells.update import compute_gradients, learners, policy_batches, restored_gradients
from mas_lab.display.documented_frame import documented
from mas_lab.explain.wrong_way import wrong_way
from mas_lab.locks import locked
from mas_lab.recipes import Recipe, by_name
from mas_lab.table import trained
from mas_lab.team import Team


def rejudge(turns: pd.DataFrame, recipes: Sequence[str | Recipe], team: Team | None = None) -> pd.DataFrame:
    """Return what each recipe would have made of the same rows, agent by agent.

    >>> lab.rejudge(lab.read("completions/"), recipes=["grpo", "dr_mas"])

    Args:
        turns: Table with the columns of a rollout; credits and advantages that it has are not used.
        recipes: Names or recipes. The first is the one that the others are compared with.
        team: A team with the weights that played `turns`, which then need token ids. It adds the column `norm` at the
            price of a forward and a backward pass for each recipe. `None`: no model is needed.

    Returns:
        A table with a row per agent and recipe, described by `lab.schema("rejudge")`:
        - `rows`: its rows. `silent`: the share of them with advantage 0, which teach nothing.
        - `other_sign`: the share whose advantage has the other sign than under the first recipe.
        - `without_peer`: the share with an advantage under the first recipe, and none under this one.
        - `size`: the mean of |advantage|.
        - `wrong_way`, `reinforced`: see `wrong_way`; NaN without own rewards.
        - `norm` (with a team): the norm of the agent's gradient before clipping, under the recipe's own loss.

    Raises:
        TableError: A column is missing, or a value in it cannot be used.
        ValueError: Two recipes have one name.
    """
    columns = ["recipe", "rows", "silent", "other_sign", "without_peer", "size", "wrong_way", "reinforced"]
    columns += ["norm"] if team is not None else []
    turns, first, tables = turns.reset_index(drop=True), None, []
    for recipe in by_name(recipes, "rejudge").values():
        judged = recipe.advantages(turns)
        advantage = judged["advantage"][trained(judged)]
        first = advantage if first is None else first
        parts = pd.DataFrame({
            "agent": judged["agent"], "silent": advantage == 0, "other_sign": advantage * first < 0,
            "without_peer": (advantage == 0) & (first != 0), "size": advantage.abs(),
        }).loc[advantage.index]  # fmt: skip
        by_agent = parts.groupby("agent", sort=False, observed=True)
        found = by_agent.mean(numeric_only=True).assign(rows=by_agent.size())
        if "local_reward" in judged:
            found = found.join(wrong_way(judged).groupby("agent", observed=True)[["wrong_way", "reinforced"]].mean())
        if team is not None:
            found["norm"] = pd.Series(_norms(team, judged, recipe), dtype=float)
        tables.append(found.assign(recipe=recipe.name).reindex(columns=columns).reset_index())
    found = pd.concat(tables).sort_values("agent", kind="stable", ignore_index=True)
    return documented(found, "rejudge")


def _norms(team: Team, judged: pd.DataFrame, recipe: Recipe) -> dict[str, float]:
    """Return the norm of each agent's gradient on these rows; no step is made."""
    norms: dict[str, float] = {}
    with locked(learners(team)):
        for batch in chain(*policy_batches(team, judged, recipe.loss, recipe.aggregate)):
            with restored_gradients(batch.policy):
                norms |= compute_gradients(batch).norms
    return norms
