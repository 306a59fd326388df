"""Judge the same rows again under several recipes: whose advantages change sign, who loses its peers.

It needs rewards alone, so it works on a table that another trainer wrote. Leaves out: what a recipe would have sampled.
"""

from collections.abc import Sequence

import pandas as pd

from mas_lab.display.documented_frame import documented
from mas_lab.explain.wrong_way import wrong_way
from mas_lab.recipes import Recipe, by_name
from mas_lab.table import in_batch


def rejudge(turns: pd.DataFrame, recipes: str | Recipe | Sequence[str | Recipe]) -> pd.DataFrame:
    """Return what each recipe would have made of the same rows, agent by agent.

    >>> lab.rejudge(lab.read("completions/"), recipes=["grpo", "dr_mas"])

    Args:
        turns: Table with the columns of a rollout; credits and advantages that it has are not used.
        recipes: Names or recipes. The first is the one that the others are compared with.

    Returns:
        A table with a row per agent and recipe, described by `lab.schema("rejudge")`:
        - `rows`: its rows. `silent`: the share of them with advantage 0, which teach nothing.
        - `other_sign`: the share whose advantage has the other sign than under the first recipe.
        - `without_peer`: the share with an advantage under the first recipe, and none under this one.
        - `size`: the mean of |advantage|.
        - `wrong_way`, `reinforced`: see `wrong_way`; NaN without own rewards.

    Raises:
        TableError: A column is missing, or a value in it cannot be used.
        ValueError: Two recipes have one name.
    """
    columns = ["recipe", "rows", "silent", "other_sign", "without_peer", "size", "wrong_way", "reinforced"]
    turns, first, tables = turns.reset_index(drop=True), None, []
    for recipe in by_name(recipes, "rejudge").values():
        judged = recipe.advantages(turns)
        advantage = judged["advantage"][in_batch(judged)]
        first = advantage if first is None else first
        parts = pd.DataFrame({
            "agent": judged["agent"], "silent": advantage == 0, "other_sign": advantage * first < 0,
            "without_peer": (advantage == 0) & (first != 0), "size": advantage.abs(),
        }).loc[advantage.index]  # fmt: skip
        by_agent = parts.groupby("agent", sort=False, observed=True)
        found = by_agent.mean(numeric_only=True).assign(rows=by_agent.size())
        if "local_reward" in judged:
            found = found.join(wrong_way(judged).groupby("agent", observed=True)[["wrong_way", "reinforced"]].mean())
        tables.append(found.assign(recipe=recipe.name).reindex(columns=columns).reset_index())
    spoke = list(turns["agent"].unique())
    found = pd.concat(tables).sort_values("agent", kind="stable", key=lambda own: own.map(spoke.index))
    return documented(found.reset_index(drop=True), "rejudge")
