"""Say in at most two sentences what stands out in a run: success that fell, wrong answers reinforced, dead groups.

It needs the recorded tables alone, no gradient. Leaves out: spikes of the norm (`explain.spike_rule`).
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.update import nonzero
from mas_lab.explain.wrong_way import centered_own_reward, wrong_way
from mas_lab.runs.run import SCORES, Run, load_run, spread
from mas_lab.runs.scores import episode_returns, episode_success
from mas_lab.table import TableError, column, in_batch, require, selected

APART, FEWEST = 0.2, 20
"""An agent stands out if so much more of its advantage went the wrong way than under `OTHER`, with so many wrong
answers. Most of its wrong answers may be reinforced without harm (benchmarks/uphill)."""
OTHERS = "grpo", "own_robust"
"""The recipes that the same rows are judged by again, with the global baseline and with the agent's own."""
OTHER = OTHERS[-1]
LEAST, ERRORS, LATE_ERRORS = 0.1, 2.5, 3.5
"""A mean rose or fell if its change is more than this share of the largest value, and more than so many standard
errors, more of them within the last steps, since it is looked for twice."""
DEAD = 0.02
"""A step is dead if a smaller share of its rows than this is valid, or has an advantage. A team that solves
nearly all of its tasks has no advantage either."""
STEPS = 6
"""Fewer steps show no trend."""
SUCCESS_COLUMNS = {"step", "success", "episode", "agent", "node", "parent", "action", "team_reward"}
"""Columns of a table that give the success of each step."""
NOTHING = "Nothing stands out."
MOST = 50
"""Steps of a long run that are read, evenly spread."""


def verdict(run: Run | str | Path | pd.DataFrame) -> str:
    """Return in at most two sentences what stands out in a run.

    >>> lab.verdict("mine")
    'stage_6 mostly learned the wrong thing (71 % of its advantage). Compare it with its own answers: recipe
    "own_robust".'

    Args:
        run: A run, its name or path, or a table of turns with `advantage`, such as `report.turns`.

    Returns:
        The first two of these that hold, or "Nothing stands out.":
        - "Nothing was learned", with the reason, alone;
        - no valid answer, or no advantage, in the last third of the steps, and since when;
        - success fell on held-out tasks, from the first to the last scores that the run kept;
        - else success in the training episodes, or their return, fell from the first two steps to the last third, or
          from the middle third to the last twentieth;
        - an agent's own reward fell while its credit rose, or clearly more than half of its advantage goes against its
          own reward under "grpo" and under "own_robust";
        - the agent with the largest share of advantage that went the wrong way (`lab.wrong_way`), if it is more by 0.2
          than under "own_robust" on the same rows, unless its own reward rose;
        - an agent's own reward fell;
        - an agent does not speak in the last third of the steps;
        - success, or the return, did not clearly rise, and does not end near its top.

        "Fell" and "rose" mean by more than a tenth of the largest value and by more than 2.5 standard errors, with a
        task as the unit. Where the team earns nothing at all, as in a game, success is not looked at.

    Raises:
        RunError: There is no readable run.
        TableError: The table has no advantages.
    """
    if isinstance(run, pd.DataFrame):
        return verdict_of_table(run)
    run = run if isinstance(run, Run) else load_run(run)
    return verdict_of_table(turns_of(run), run.config["team"]["frozen"], scores=scores_of(run))


def scores_of(run: Run | None) -> pd.DataFrame | None:
    """Return the scores on held-out tasks that a run kept, if there are any."""
    return run.read(SCORES) if run and run.parts(SCORES) else None


def turns_of(run: Run) -> pd.DataFrame:
    """Return the turns of at most `MOST` steps of a run, evenly spread."""
    if not run.steps:
        raise TableError(f"verdict: {run.folder} has made no step yet")
    steps = sorted({*spread(range(run.steps), MOST), min(1, run.steps - 1)})
    return pd.concat([run.step_turns(step) for step in steps], ignore_index=True)


def verdict_of_table(turns: pd.DataFrame, frozen: Collection[str] = (), found: Any = None, scores: Any = None) -> str:
    """Return the verdict on a table of turns, `frozen` agents left out.

    `found` may be the table of its `shares`, and `scores` that of success on held-out tasks.
    """
    require(turns, ["task", "episode", "agent", "advantage"], "verdict")
    if not has_advantage(turns):
        return f"Nothing was learned: {why_silent(turns)}."
    turns = turns.reset_index(drop=True)
    found = shares(turns) if found is None else found
    frozen = {*frozen, *(set(turns["agent"]) - set(turns.loc[selected(turns), "agent"]))}
    changes = [*_changes(turns, scores)]
    moved = any(direction for direction, _ in changes)
    fell = [told.format("fell") for direction, told in changes if direction < 0]
    stuck = [told.format("did not clearly rise") for _, told in changes if not moved]
    sentences = [*_dead_end(turns), *fell[:1], *_agents(turns, frozen, found), *stuck[:1]]
    return " ".join(sentences[:2]) or NOTHING


def _dead_end(turns: pd.DataFrame) -> Iterator[str]:
    """Yield a sentence on the last steps if a third of all or more had hardly a valid answer, or advantage."""
    step = turns.get("step", pd.Series(0, turns.index))
    rows, solved = turns[selected(turns)], turns.get("success", pd.Series(False, turns.index))
    solved = solved.groupby([step, turns["episode"]]).transform("max")
    alive = {"hardly an answer was valid": column(rows, "valid"), "hardly a row had an advantage": rows["advantage"]}
    for what, good in alive.items():
        by_step = nonzero(good).groupby(step).mean()
        dead = by_step.index[by_step[::-1].expanding().mean()[::-1] < DEAD]
        late = step >= dead[0] if len(dead) else step < 0
        if step[late].nunique() >= max(1, len(by_step) / 3) and solved[late].mean() < 1 - DEAD:
            reason = "" if has_advantage(turns[late]) else f": {why_silent(turns[late])}"
            yield f"From step {dead[0]} on {what}{reason}."
            return


def _changes(turns: pd.DataFrame, scores: pd.DataFrame | None) -> Iterator[tuple[int, str]]:
    """Yield 1 for what rose or is near its top, -1 for what fell, else 0, each with a sentence that lacks its verb.

    It is success on held-out tasks, and success and return of the training episodes.
    """
    if not {"step", "team_reward"} <= set(turns) or not turns["team_reward"].any():  # success is that of one player
        return
    if scores is not None:
        by_task = scores.groupby(["task", "step"])["success"].first().unstack().dropna()
        first, last = by_task.columns[[0, -1]]
        gain, (before, after) = by_task[last] - by_task[first], by_task[[first, last]].mean()
        is_clear = abs(gain.mean()) > max(LEAST, ERRORS * gain.std() / len(gain) ** 0.5)
        told = f"Success {{}} on held-out tasks from {before:.2f} (step {first}) to {after:.2f} (step {last})."
        if is_clear or (len(by_task) and last - first >= STEPS):
            yield int(np.sign(gain.mean()) if is_clear else after > 1 - LEAST), told
    turns = turns.assign(**{name: column(turns, name) for name in ("kept", "parent", "node")})
    tasks = turns.drop_duplicates(["step", "episode"])[["step", "episode", "task"]]
    for name, of in {"success": episode_success, "return": episode_returns}.items():
        if name == "return" or (set(turns) >= SUCCESS_COLUMNS and turns["success"].any()):
            by_step = {step: of(own) for step, own in turns.groupby("step")}
            values = pd.concat(by_step, names=["step", "episode"]).rename(name).reset_index().merge(tasks)
            near_top = by_step[max(by_step)].mean() > (1 - LEAST) * values[name].max()
            for direction, means in (trend(values, name), trend(values, name, True)):
                if means:
                    yield direction or int(near_top), f"{name.capitalize()} {{}} from {means}."


def _agents(turns: pd.DataFrame, frozen: Collection[str], found: pd.DataFrame) -> Iterator[str]:
    """Yield sentences on agents that learned something else than their own rewards ask for, or ceased to speak."""
    found = found.drop(list(frozen), errors="ignore")
    learning = {agent: rows for agent, rows in turns[in_batch(turns)].groupby("agent") if agent in found.index}
    own = {agent: trend(rows, "local_reward") for agent, rows in learning.items()}
    for agent, (direction, means) in own.items():
        paid = direction < 0 and "credit" in turns and trend(learning[agent], "credit")[0] > 0
        most = 0.5 + ERRORS / 2 / max(1, found.loc[agent, "wrong"]) ** 0.5
        if paid or (found.loc[agent, ["wrong_way", *OTHERS]] > most).all():
            fell = f", which fell from {means}" if direction < 0 else ""
            yield f"The credit pays what the own reward of {agent} calls wrong{fell}."
    if (worst := harmed_agent(turns, frozen, found)) is not None:
        how, share = "mostly" if worst["wrong_way"] > 0.5 else "partly", f"{worst['wrong_way']:.0%}".replace("%", " %")
        yield (
            f"{worst.name} {how} learned the wrong thing ({share} of its advantage). Compare it with its own answers: "
            f'recipe "{OTHER}".'
        )
    for agent, (direction, means) in own.items():
        if direction < 0:
            yield f"The own reward of {agent} fell from {means}."
    steps = sorted(turns["step"].unique()) if "step" in turns else []
    for agent, rows in turns.groupby("agent"):
        if len(steps) >= STEPS and (last := rows["step"].max()) < steps[-(len(steps) // 3)]:
            yield f"{agent} does not speak after step {last}."


def trend(rows: pd.DataFrame, name: str, late: bool = False) -> tuple[int, str]:
    """Return 1 if a column rose from the first two steps to the last third, -1 if it fell, else 0, and both means.

    With `late` it is from the middle third to the last twentieth. A task is the unit.
    """
    steps = sorted(rows["step"].unique()) if "step" in rows.columns else []
    if len(steps) < STEPS:
        return 0, ""
    third = len(steps) // 3
    first, last, since = (third, -third - 1, -max(2, len(steps) // 20)) if late else (0, 1, -third)
    first, last, since = steps[first], steps[last], steps[since]
    ends = [rows[rows["step"].between(first, last)], rows[rows["step"] >= since]]
    tasks = [end.groupby(["step", "task"])[name].mean() for end in ends]
    before, after = (mean.mean() for mean in tasks)
    error = sum(mean.var() / len(mean) for mean in tasks) ** 0.5 * (LATE_ERRORS if late else ERRORS)
    is_clear = min(map(len, ends)) >= FEWEST and abs(after - before) > max(LEAST * rows[name].abs().max(), error)
    means = f"{before:.2f} (steps {first} to {last}) to {after:.2f} (from step {since})"
    return int(is_clear * np.sign(after - before)), means


def harmed_agent(turns: pd.DataFrame, frozen: Collection[str], found: pd.DataFrame) -> pd.Series | None:
    """Return the row of the agent that stands out in `shares` and whose own reward did not rise; `None` for nobody."""
    found = found[(found["wrong"] >= FEWEST) & ~found.index.isin(list(frozen)) & (found["apart"] > APART)]
    rows = turns[in_batch(turns)]
    found = found[[trend(rows[rows["agent"] == agent], "local_reward")[0] <= 0 for agent in found.index]]
    return None if found.empty else found.loc[found["apart"].idxmax()]


def rows_gone_wrong(turns: pd.DataFrame, agent: str, most: int = 5) -> pd.DataFrame:
    """Return an agent's rows with the largest advantages of the wrong sign."""
    rows = turns[in_batch(turns) & (turns["agent"] == agent)]
    advantage = rows["advantage"].map(np.mean)
    rows = rows.assign(advantage=advantage)[advantage * centered_own_reward(rows) < 0]
    columns = ["step", "task", "episode", "prompt", "completion", "local_reward", "advantage"]
    return rows.sort_values("advantage", key=abs, ascending=False)[[one for one in columns if one in rows]].head(most)


def shares(turns: pd.DataFrame) -> pd.DataFrame:
    """Return for each agent `wrong` (a count), its mean `wrong_way` over steps, and that under each of `OTHERS`.

    `apart` is the distance to `OTHER`. A share is 0 where no row has an advantage, and NaN for rows that a recipe
    cannot compare, such as those of a tree. Without own rewards there are no rows.
    """
    if not {"local_reward", "advantage"} <= set(turns.columns):
        return pd.DataFrame(columns=["wrong_way", *OTHERS, "wrong", "apart"])
    others = list(OTHERS) if column(turns, "kept").all() else []
    try:
        found = wrong_way(turns, others)
    except (TableError, ValueError):  # rows of a plan or table that it cannot compare
        found, others = wrong_way(turns), []
    steps = found.groupby(["agent", "recipe"], sort=False)
    table = steps["wrong_way"].mean().unstack("recipe").rename(columns={"trained": "wrong_way"})
    table[others] = table[others].fillna(0.0)
    table = table.reindex(columns=["wrong_way", *OTHERS]).join(steps["wrong"].sum().xs("trained", level="recipe"))
    return table.assign(apart=table["wrong_way"] - table[OTHER])


def has_advantage(turns: pd.DataFrame) -> bool:
    """Return whether a row that `update` trains on has an advantage."""
    return bool(nonzero(turns.loc[selected(turns), "advantage"]).any())


def why_silent(turns: pd.DataFrame) -> str:
    """Return why no row of a table has an advantage."""
    rows = turns[selected(turns)]
    if rows.empty:
        return "no row is selected"
    if "success" in turns and turns.groupby([*({"step"} & set(turns)), "episode"])["success"].max().all():
        return "every episode succeeded"
    if "valid" in rows.columns and not rows["valid"].any():
        return "no answer is valid, so none is rewarded"
    size = rows.groupby("group")["group"].transform("size") if "group" in rows.columns else None
    if size is not None and (size == 1).all():
        return "every group has a single row, so nothing is compared"
    if "credit" in rows.columns and (rows.groupby("group")["credit"].agg(np.ptp) > 0).any():
        return "no row has a peer that earned something else"
    return "all groups are flat, their rows earned the same"
