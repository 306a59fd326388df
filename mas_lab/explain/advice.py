"""Say what a rollout shows of each agent: facts from rewards and, with the team, which baseline points uphill.

Whether an agent's own mean helps cannot be read off rewards: a rule made from them foretold nothing in two tests that
were fixed before their trainings (docs/findings.md). The direction of gradients (`uphill`) did. Leaves out: sizes of
advantages (`moments`), and what a recipe would have done row by row (`rejudge`).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.display.documented_frame import documented
from mas_lab.explain.moments import baseline_unit, inflation, pooled_inflation
from mas_lab.explain.uphill import UNTOLD, cosine_of, uphill_of_table
from mas_lab.policy import SAMPLED
from mas_lab.table import TableError, require, trained
from mas_lab.team import Team

LEAST, TAIL = 3, 0.1
"""Rows of a group whose deviation counts for `sigma_ratio`, and the share of groups left out at either end. Groups of
two normal credits of one deviation would have a ratio of 13, those of three 4.7."""
LEAST_DIFFERENCE = 0.1
"""The least difference of cosines that speaks for one of two recipes."""
UNEVEN = 5.0
"""Largest ratio of an agent's standard deviations in two of its tasks without a warning."""
UNKNOWN = "cannot be told"


def advise(turns: pd.DataFrame, agents: Sequence[str] = (), team: Team | None = None) -> pd.DataFrame:
    """Say for each agent what its rewards show and, with `team`, whether its own mean may serve it better.

    Args:
        turns: Table with the columns `task`, `episode`, `agent` and `credit`, of any recipe.
        agents: Agents that come first in the result, also those that never spoke. Default: none; agents follow in the
            order of `turns`.
        team: The team that played `turns`, with the same weights. It adds the verdict. The tasks are dealt to twelve
            parts that take the place of the rollouts of `uphill`, so there should be fifty or more;
            `lab.uphill(team, env)` plays its own. It costs four forward and backward passes over all rows.

    Returns:
        A table with a row per agent, described by `lab.schema("advise")`:
        - `spoke`: share of the episodes in which the agent spoke. `rows`: number of its rows.
        - `peerless`: share of its rows that are alone or among equal credits in their task, of those in tasks whose
          credits vary. Only a global mean trains on them.
        - `signal`: see `pooled_inflation`.
        - `sigma_ratio`: how far its standard deviation differs between tasks, as the ratio of the upper to the lower
          tenth. NaN if fewer than two tasks have three of its rows with credits that vary.
        - `cos_grpo`, `cos_own_robust` (with a team): the cosine of `uphill` under either recipe. NaN for an agent that
          does not learn or is "untold".
        - `own` (with a team): "may pay" or "may cost" if these cosines differ by `LEAST_DIFFERENCE` or more, else
          "hardly matters". "cannot be told" if they are NaN.
        - `why`: the same in sentences.

    Raises:
        TableError: A column is missing or holds no number, or no row is left to judge.
        ValueError: With a team, there is a single task.
        TypeError: An argument is of another type.
    """
    check_arguments(advise, {"agents": agents, "team": team})
    require(turns, ["task", "episode", "agent", "credit"], "advise", optional=["step"])
    rows = turns[trained(turns)]
    if not len(rows):
        raise TableError("advise: the table has no row to judge by; pass the turns of a rollout, with their credits")
    found = pd.DataFrame(inflation(rows, once_per=baseline_unit(rows)))
    names = pd.Index(dict.fromkeys([*agents, *rows["agent"]]), name="agent")
    named = [name for name in ("step", "task", "episode") if name in rows.columns]
    episode = rows.groupby(named, sort=False, observed=True).ngroup()
    spoke = episode.groupby(rows["agent"], observed=True).agg(["nunique", "size"]).reindex(names, fill_value=0)
    facts = pd.DataFrame({"spoke": spoke["nunique"] / episode.nunique(), "rows": spoke["size"]})
    facts = facts.join(_groups(found).join(pooled_inflation(found).set_index("agent")["signal"], how="outer"))
    facts = facts[["spoke", "rows", "peerless", "signal", "sigma_ratio"]]
    if team is not None:
        facts = facts.join(_cosines(turns, team))
        apart = facts["cos_own_robust"] - facts["cos_grpo"]
        verdicts = {UNKNOWN: apart.isna(), "may pay": apart >= LEAST_DIFFERENCE, "may cost": apart <= -LEAST_DIFFERENCE}
        facts["own"] = np.select(list(verdicts.values()), list(verdicts), "hardly matters")
    table = facts.reset_index()
    return documented(table.assign(why=[" ".join(_sentences(row)) for row in table.itertuples()]), "advise")


def _groups(found: pd.DataFrame) -> pd.DataFrame:
    """Return the columns `peerless` and `sigma_ratio`, a row per `agent` of `inflation`'s table."""
    varied = found[~found["flat"]]
    rows = varied[["n_k"]].assign(alone=varied["n_k"].where((varied["n_k"] == 1) | varied["flat_k"], 0))
    rows = rows.groupby(varied["agent"], observed=True).sum()
    sigmas = found[(found["n_k"] >= LEAST) & ~found["flat_k"]].groupby("agent", observed=True)["sigma_k"]
    low, high = (sigmas.quantile(tail, interpolation=near) for tail, near in ((TAIL, "lower"), (1 - TAIL, "higher")))
    return pd.DataFrame({"peerless": rows["alone"] / rows["n_k"], "sigma_ratio": (high / low)[sigmas.size() > 1]})


def _cosines(turns: pd.DataFrame, team: Team) -> pd.DataFrame:
    """Return both recipes' cosines, with a row per agent that learns; NaN where the gradients are untold."""
    require(turns, [*SAMPLED, "local_reward", "team_reward"], "advise")
    rows = turns[trained(turns)]
    if rows["task"].nunique() < 2:
        raise ValueError("advise: with a team, the table needs two tasks or more, and fifty to tell much")
    found = uphill_of_table(rows, ["grpo", "own_robust"], team)
    known = cosine_of(found).mask(found["verdict"] == UNTOLD)
    return found.assign(known=known).pivot(index="agent", columns="recipe", values="known").add_prefix("cos_")


def _sentences(row) -> list[str]:
    """Return the facts about an agent as sentences, and the verdict or how to get one."""
    if not row.rows:
        return [f"{row.agent} never spoke."]
    told = [f"{row.agent} spoke in {_percent(row.spoke)} of the episodes ({row.rows} rows)."]
    if row.signal > 0:
        share = f"{_percent(row.signal)} of its squared advantages under a global mean is signal"
        told.append(f"{share}, the rest is an offset that its answers share." if row.signal < 1 else f"{share}.")
    else:
        told.append("Its credits never differ within a task, so its good turns cannot be told from its bad ones.")
    if row.peerless > 0:
        share = f"{_percent(row.peerless)} of the rows that a global mean trains on"
        told.append(f"{share} are alone or among equal credits; an own mean gives them no advantage.")
    if row.sigma_ratio > UNEVEN:
        told.append(
            f"Its standard deviation differs between its tasks by a factor of {row.sigma_ratio:.0f}: divided by the "
            "deviation of each task, its smallest differences weigh as much as its largest."
        )
    if not hasattr(row, "own"):
        return [*told, "Rewards do not tell whether its own mean pays: pass team=, or call lab.uphill(team, env)."]
    if row.own == UNKNOWN:
        return [*told, "Its gradients tell no verdict: it does not learn, or its rows are too few."]
    cosines = f"{row.cos_grpo:+.2f} under grpo and {row.cos_own_robust:+.2f} under own_robust"
    told.append(f"Its gradient's cosine with the direction in which its own reward grows is {cosines}.")
    return [*told, f"So its own mean {row.own}."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1g} %"
