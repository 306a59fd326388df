"""Report what was equal between the compared runs, what was not, and what is unknown.

If recipes differ in more than the recipe, the result is not the recipe's own effect. A difference among the runs of one
recipe widens its spread. A value that a run does not record is unknown, never equal. Leaves out: the content of runs
(`described`).
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.study.described import SECTIONS
from mas_lab.study.entries import Entry

BETWEEN, WITHIN, EQUAL, UNKNOWN = "between recipes", "within a recipe", "equal", "unknown"
COLUMNS = ["env", "what", "state", "told"]
AMOUNTS = ("step", "tokens", "episodes", "optimizer_steps")
MOST, LONG = 8, 60
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
        budget = runs.loc[runs["env"] == env, "budget"].iloc[0]
        properties = [_properties(entry, over, budget, held_out) for entry in own]
        names = dict.fromkeys(name for entry in own for name in entry.described)
        sections = {name.partition(".")[0] for name in names}
        names |= dict.fromkeys(name for name in SECTIONS if name not in sections)
        names |= dict.fromkeys(f"spent.{kind}" for kind in (over, *AMOUNTS))
        recipes = [entry.recipe for entry in own]
        for name in names:
            rows.append((env, name, *_judged(name, recipes, [one.get(name) for one in properties])))
    return pd.DataFrame(rows, columns=COLUMNS)


def _judged(name: str, recipes: Sequence[str], values: Sequence[Any]) -> tuple[str, str]:
    """Return (state, told) of one property of the runs of an env; `None` is what a run does not record."""
    if name.startswith("untold."):
        return UNKNOWN, "run.json could not tell it whole"
    by_recipe: dict[str, dict[Any, None]] = {}
    for recipe, value in zip(recipes, values, strict=True):
        by_recipe.setdefault(recipe, {})[value] = None
    every = {value: None for one in by_recipe.values() for value in one if value is not None}
    if None in values:
        if name.startswith("spent."):
            return UNKNOWN, "a curve does not count it"
        known = f"; the others: {', '.join(every)}" if every else ""
        return UNKNOWN, f"{values.count(None)} of {len(values)} runs do not say it{known}"
    words = {recipe: _words(list(one)) for recipe, one in by_recipe.items()}
    if len(every) == 1:
        return EQUAL, words[recipes[0]]
    state = BETWEEN if len({frozenset(one) for one in by_recipe.values()}) > 1 else WITHIN
    return state, "; ".join(f"{recipe}: {one}" for recipe, one in words.items())


def _words(values: Sequence[Any]) -> str:
    """Return texts as alternatives, and numbers as a range."""
    if isinstance(values[0], str):
        return " or ".join(values)
    return f"{values[0]:,}" if len(values) == 1 else f"{min(values):,} to {max(values):,}"


def _short(value: Any) -> str:
    """Return a value in at most `LONG` characters; a digest keeps shortened values distinct."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    cut = sha256(text.encode(errors="replace")).hexdigest()[:6]
    return text if len(text) <= LONG else f"{text[: LONG - 10]}… {cut}"


def _properties(entry: Entry, over: str, budget: float, held_out: bool) -> dict[str, Any]:
    """Return the properties of a run as texts, and the amounts that it spent within the budget as numbers."""
    curve = entry.held_out if held_out else entry.curve
    used = {f"spent.{kind}": round(float(np.interp(budget, curve[over], curve[kind]))) for kind in AMOUNTS
             if kind in curve and kind != over}  # fmt: skip
    texts = {name: _short(value) for name, value in entry.described.items()}
    return {**texts, f"spent.{over}": round(budget), **used}


def not_equal(table: pd.DataFrame) -> list[str]:
    """Return the differences as sentences; amounts spent are mentioned without numbers, which are in `told`."""
    envs: dict[str, list[str]] = {}
    for env, own in table.groupby("env", sort=False):
        is_amount = own["what"].str.startswith("spent.")
        for state, of_amounts, sentence in SENTENCES:
            rows = own[(own["state"] == state) & (is_amount == of_amounts)]
            names = [_named(row.what) if of_amounts else f"{row.what} ({row.told})" for row in rows.itertuples()]
            if len(names) > MOST:
                names[MOST:] = [f"and {len(names) - MOST} more"]
            if names:
                envs.setdefault(sentence.format(", ".join(names)), []).append(str(env or "Here"))
    return [f"{'; '.join(names)}: {sentence}" for sentence, names in envs.items()]


SENTENCES = (
    (BETWEEN, False, "recipes differ in more than the recipe: {}. So a difference may have another cause."),
    (WITHIN, False, "runs of one recipe differ in: {}."),
    (BETWEEN, True, "within the budget the recipes spent different amounts: {}."),
)


def _named(what: str) -> str:
    names = {"spent.step": "steps", "spent.tokens": "sampled tokens"}
    return names.get(what, what.removeprefix("spent.").replace("_", " "))
