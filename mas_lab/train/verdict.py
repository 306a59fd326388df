"""Say in at most two sentences what stands out in a run: success that fell, wrong answers reinforced, dead groups.

It needs the recorded tables alone, no gradient. Leaves out: spikes of the norm (`explain.spike_rule`).
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from mas_lab.cells.update import nonzero
from mas_lab.explain.wrong_way import centered_own_reward, wrong_way
from mas_lab.runs.run import Run, load_run, spread
from mas_lab.runs.scores import episode_success
from mas_lab.table import TableError, column, in_batch, require, selected

APART, FEWEST = 0.2, 20
"""An agent stands out if so much more of its advantage went the wrong way than under `OTHER`, with so many wrong
answers. Most of its wrong answers may be reinforced without harm (benchmarks/uphill)."""
OTHER = "own_robust"
"""The recipe that the same rows are judged by again."""
FALL, ERRORS = 0.1, 3
"""A fall of success stands out if it is more than this, and more than so many standard errors."""
SUCCESS_COLUMNS = {"step", "success", "episode", "agent", "node", "parent", "action"}
"""Columns of a table that give the success of each step."""
NOTHING = "Nothing stands out."
MOST = 50
"""Steps of a long run that are read, evenly spread."""


def verdict(run: Run | str | Path | pd.DataFrame) -> str:
    """Return in at most two sentences what stands out in a run.

    >>> lab.verdict("mine")
    '47 % of the advantage of stage_6 went the wrong way (wrong answers more likely, or right ones less); under
    own_robust it would have been 0 %.'

    Args:
        run: A run, its name or path, or a table of turns with `advantage`, such as `report.turns`.

    Returns:
        The first two of these that hold, or "Nothing stands out.":
        - "Nothing was learned", with the reason, alone;
        - no valid answer, or no advantage, in the last third of the steps, with the step since which this holds;
        - the success of the first and of the last third of the steps, if it fell;
        - the agent with the largest share of advantage that went the wrong way (`lab.wrong_way`), if it is more by 0.2
          than under `own_robust` on the same rows.

    Raises:
        RunError: There is no readable run.
        TableError: The table has no advantages.
    """
    if isinstance(run, pd.DataFrame):
        return verdict_of_table(run)
    run = run if isinstance(run, Run) else load_run(run)
    return verdict_of_table(turns_of(run), run.config["team"]["frozen"])


def turns_of(run: Run) -> pd.DataFrame:
    """Return the turns of at most `MOST` steps of a run, evenly spread."""
    if not run.steps:
        raise TableError(f"verdict: {run.folder} has made no step yet")
    return pd.concat([run.step_turns(step) for step in spread(range(run.steps), MOST)], ignore_index=True)


def verdict_of_table(turns: pd.DataFrame, frozen: Collection[str] = ()) -> str:
    """Return the verdict on a table of turns, `frozen` agents left out."""
    require(turns, ["task", "episode", "agent", "advantage"], "verdict")
    if not has_advantage(turns):
        return f"Nothing was learned: {why_silent(turns)}."
    told = _dead_end(turns.reset_index(drop=True)) + _fall(turns)
    if (worst := harmed_agent(turns, frozen)) is not None:
        told += [
            f"{worst['wrong_way']:.0%} of the advantage of {worst.name} went the wrong way (wrong answers more likely, "
            f"or right ones less); under {OTHER} it would have been {worst['there']:.0%}.",
        ]
    return " ".join(told[:2]).replace("%", " %") or NOTHING


def _dead_end(turns: pd.DataFrame) -> list[str]:
    """Return a sentence on the last steps if a third of all or more had no valid answer, or no advantage."""
    step = turns.get("step", pd.Series(0, turns.index))
    rows = turns[selected(turns)]
    alive = {"no answer was valid": column(rows, "valid").astype(bool), "no row had an advantage": rows["advantage"]}
    for what, good in alive.items():
        by_step = nonzero(good).groupby(step).any()
        dead = by_step.index[~by_step[::-1].cummax()[::-1]]
        if len(dead) >= max(1, len(by_step) / 3):
            late = turns[step >= dead[0]]
            return [f"From step {dead[0]} on {what}{'' if has_advantage(late) else f': {why_silent(late)}'}."]
    return []


def _fall(turns: pd.DataFrame) -> list[str]:
    """Return a sentence on the success of the training episodes, if it fell."""
    if not set(turns.columns) >= SUCCESS_COLUMNS or turns["step"].nunique() < 12:
        return []
    by_step = pd.Series({step: episode_success(own).mean() for step, own in turns.groupby("step")})
    third = len(by_step) // 3
    first, last = by_step.iloc[:third], by_step.iloc[-third:]
    error = ((first.var() + last.var()) / third) ** 0.5
    if first.mean() - last.mean() <= max(FALL, ERRORS * error):
        return []
    means = [f"{part.mean():.2f} (steps {part.index[0]} to {part.index[-1]})" for part in (first, last)]
    return [f"Success fell from {' to '.join(means)}."]


def harmed_agent(turns: pd.DataFrame, frozen: Collection[str] = ()) -> pd.Series | None:
    """Return the agent that stands out, its row of `shares`; `None` for nobody."""
    if not {"local_reward", "advantage"} <= set(turns.columns):
        return None
    found = shares(turns)
    found = found[(found["wrong"] >= FEWEST) & ~found.index.isin(list(frozen)) & (found["apart"] > APART)]
    return None if found.empty else found.loc[found["apart"].idxmax()]


def rows_gone_wrong(turns: pd.DataFrame, agent: str, most: int = 5) -> pd.DataFrame:
    """Return an agent's rows with the largest advantages of the wrong sign."""
    rows = turns[in_batch(turns) & (turns["agent"] == agent)]
    advantage = rows["advantage"].map(np.mean)
    rows = rows.assign(advantage=advantage)[advantage * centered_own_reward(rows) < 0]
    shown = ["step", "task", "episode", "prompt", "completion", "local_reward", "advantage"]
    return rows.sort_values("advantage", key=abs, ascending=False)[[one for one in shown if one in rows]].head(most)


def shares(turns: pd.DataFrame) -> pd.DataFrame:
    """Return for each agent `wrong` (a count), and its mean `wrong_way` over steps, here, `there` and `apart`.

    `there` is that under `OTHER`, 0 where no row has an advantage; it is NaN for rows that `OTHER` cannot compare, such
    as those of a tree.
    """
    others = [OTHER] if column(turns, "kept").all() else []
    try:
        found = wrong_way(turns, others)
    except (TableError, ValueError):  # rows of a plan or table that it cannot compare
        found, others = wrong_way(turns), []
    steps = found.groupby(["recipe", "agent"], sort=False)
    table = steps["wrong"].sum().to_frame().join(steps["wrong_way"].mean())
    here, there = (table[table.index.get_level_values(0) == name].droplevel(0) for name in ("trained", OTHER))
    here["there"] = there["wrong_way"].reindex(here.index).fillna(0.0 if others else np.nan)
    return here.assign(apart=here["wrong_way"] - here["there"])


def has_advantage(turns: pd.DataFrame) -> bool:
    """Return whether a row that `update` trains on has an advantage."""
    return bool(nonzero(turns.loc[selected(turns), "advantage"]).any())


def why_silent(turns: pd.DataFrame) -> str:
    """Return why no row of a table has an advantage."""
    rows = turns[selected(turns)]
    if rows.empty:
        return "no row is selected"
    if "valid" in rows.columns and not rows["valid"].any():
        return "no answer is valid, so none is rewarded"
    size = rows.groupby("group")["group"].transform("size") if "group" in rows.columns else None
    if size is not None and (size == 1).all():
        return "every group has a single row, so nothing is compared"
    if "credit" in rows.columns and (rows.groupby("group")["credit"].agg(np.ptp) > 0).any():
        return "no row has a peer that earned something else"
    return "all groups are flat, their rows earned the same"
