"""Report what was equal between the compared runs, what was not, and what is unknown.

If recipes differ in more than the recipe, the result is not the recipe's own effect. A difference among the runs of one
recipe widens its spread. A value that a run does not record is unknown, never equal. Leaves out: the content of runs
(`described`).
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.study.described import SECTIONS
from mas_lab.study.entries import Entry

BETWEEN, WITHIN, EQUAL, UNKNOWN = "between recipes", "within a recipe", "equal", "unknown"
COLUMNS = ["env", "what", "state", "told"]
SPENT = ("step", "tokens", "episodes", "optimizer_steps")
SHOWN, LONG = 8, 60
"""The most differences in one sentence, and the most characters of a value."""


def equality(found: Sequence[Entry], runs: pd.DataFrame, over: str, held_out: bool) -> pd.DataFrame:
    """Return a row per env and property (`what`) of its runs, with its `state` and its values in words (`told`).

    `state` is "between recipes" if recipes have different sets of values, and "within a recipe" if the sets are the
    same but hold several values. It is "equal" if all runs have the same value, and "unknown" if a run does not record
    it.

    The amounts `spent` within the budget are properties too. These are `over`, which was given equally, and the other
    counts in the curves. `runs` is the table of `run_scores`, with a row per entry.
    """
    rows = []
    for env in dict.fromkeys(entry.env for entry in found):
        own = [entry for entry in found if entry.env == env]
        names = dict.fromkeys(name for entry in own for name in entry.described)
        sections = {name.partition(".")[0] for name in names}
        names |= dict.fromkeys(name for name in SECTIONS if name not in sections)
        rows += [(env, name, *_judged(own, name)) for name in names]
        budget = runs.loc[runs["env"] == env, "budget"].iloc[0]
        rows += [(env, f"spent.{kind}", *told) for kind, *told in _spent(own, over, budget, held_out)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _judged(own: Sequence[Entry], name: str) -> tuple[str, str]:
    """Return (state, told) of one property of the runs of an env."""
    if name.startswith("untold."):
        return UNKNOWN, "run.json could not tell it whole"
    said: dict[str, dict[str, None]] = {}
    telling = [entry for entry in own if name in entry.described]
    for entry in telling:
        said.setdefault(entry.recipe, {})[_short(entry.described[name])] = None
    values = dict.fromkeys(value for one in said.values() for value in one)
    if len(telling) < len(own):
        known = f"; the others: {', '.join(values)}" if values else ""
        return UNKNOWN, f"{len(own) - len(telling)} of {len(own)} runs do not say it{known}"
    if len(values) == 1:
        return EQUAL, *values
    told = "; ".join(f"{recipe}: {' or '.join(one)}" for recipe, one in said.items())
    return (BETWEEN if len({frozenset(one) for one in said.values()}) > 1 else WITHIN), told


def _short(value: Any) -> str:
    """Return a value in at most `LONG` characters; a digest keeps shortened values distinct."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    cut = sha256(text.encode(errors="replace")).hexdigest()[:6]
    return text if len(text) <= LONG else f"{text[: LONG - 10]}… {cut}"


def _spent(own: Sequence[Entry], over: str, budget: float, held_out: bool) -> Iterable[tuple[str, str, str]]:
    curves = [(entry.recipe, entry.held_out if held_out else entry.curve) for entry in own]
    yield over, EQUAL, f"{budget:,.0f}"
    for kind in SPENT:
        if kind == over:
            continue
        if any(kind not in curve for _, curve in curves):
            yield kind, UNKNOWN, "a curve does not count it"
            continue
        spent: dict[str, list[int]] = {}
        for recipe, curve in curves:
            spent.setdefault(recipe, []).append(round(float(np.interp(budget, curve[over], curve[kind]))))
        ranges = {recipe: (min(counts), max(counts)) for recipe, counts in spent.items()}
        told = {recipe: f"{low:,}" if low == high else f"{low:,} to {high:,}" for recipe, (low, high) in ranges.items()}
        if len({count for counts in spent.values() for count in counts}) == 1:
            yield kind, EQUAL, told[curves[0][0]]
        else:
            state = BETWEEN if len(set(ranges.values())) > 1 else WITHIN
            yield kind, state, "; ".join(f"{recipe}: {many}" for recipe, many in told.items())


def not_equal(told: pd.DataFrame) -> list[str]:
    """Return the differences as sentences; amounts spent are mentioned without numbers, which are in `told`."""
    found: list[tuple[str, str]] = []
    for env, own in told.groupby("env", sort=False):
        spent = own["what"].str.startswith("spent.")
        for state, of_spent, sentence in SENTENCES:
            rows = own[(own["state"] == state) & (spent == of_spent)]
            names = [_named(what) if of_spent else f"{what} ({said})"
                     for what, said in zip(rows["what"], rows["told"], strict=True)]  # fmt: skip
            if len(names) > SHOWN:
                names[SHOWN:] = [f"and {len(names) - SHOWN} more"]
            if names:
                found.append((env or "Here", sentence.format(", ".join(names))))
    return _of_envs(found)


SENTENCES = (
    (BETWEEN, False, "recipes differ in more than the recipe: {}. What comes of that is not a recipe's own effect."),
    (WITHIN, False, "among the runs of one recipe differ: {}."),
    (BETWEEN, True, "within the budget they did not spend equally: {}."),
)


def held_equal(told: pd.DataFrame) -> str:
    """Return one line with what is equal in all runs of an env; a section that is all equal is one item."""
    return _sections(told, EQUAL, "{} ({})", "{} (all {} of its entries)")


def unknown(told: pd.DataFrame) -> str:
    """Return one line with the properties that some run does not record."""
    return _sections(told, UNKNOWN, "{}", "all of {}")


def _sections(told: pd.DataFrame, state: str, single: str, several: str) -> str:
    """Return what has a state, a part of run.json as one item if all of it has; without names of envs if all agree."""
    found = []
    for env, own in told.groupby("env", sort=False):
        items = []
        for section, rows in own.groupby(own["what"].str.partition(".")[0], sort=False):
            alike = rows[rows["state"] == state]
            if section == "spent":
                items += [f"{_named(what)} spent" for what in alike["what"]]
            elif len(alike) < len(rows):
                items += alike["what"].tolist()
            elif len(rows) > 1:
                items.append(several.format(section, len(rows)))
            else:
                items.append(single.format(section, *rows["told"]))
        found.append((env, ", ".join(items)))
    lines = {line for _, line in found}
    return found[0][1] if len(lines) == 1 else ". ".join(_of_envs(found))


def _of_envs(found: Iterable[tuple[str, str]]) -> list[str]:
    """Return each line that is not empty once, after the names of its envs."""
    by_line: dict[str, list[str]] = {}
    for env, line in found:
        if line:
            by_line.setdefault(line, []).append(str(env))
    return [f"{'; '.join(envs)}: {line}" for line, envs in by_line.items()]


def _named(what: str) -> str:
    names = {"spent.step": "steps", "spent.tokens": "sampled tokens"}
    return names.get(what, what.removeprefix("spent.").replace("_", " "))
