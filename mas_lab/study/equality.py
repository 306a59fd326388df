"""Report what was equal between the compared runs, what was not, and what is unknown.

If recipes differ in more than the recipe, the result is not the recipe's own effect. A difference among the runs of one
recipe widens its spread. A value that a run does not record is unknown, never equal. Leaves out: the content of runs
(`described`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
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
    silent = [entry for entry in own if name not in entry.described]
    said = _by_recipe((entry.recipe, _short(entry.described[name])) for entry in own if name in entry.described)
    values = {value for one in said.values() for value in one}
    if name.startswith("untold."):
        return UNKNOWN, "run.json could not tell it whole"
    if silent:
        known = f"; the others: {', '.join(values)}" if values else ""
        return UNKNOWN, f"{len(silent)} of {len(own)} runs do not say it{known}"
    if len(values) == 1:
        return EQUAL, values.pop()
    told = "; ".join(f"{recipe}: {' or '.join(one)}" for recipe, one in said.items())
    return (BETWEEN if len({frozenset(one) for one in said.values()}) > 1 else WITHIN), told


def _by_recipe(said: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    found: dict[str, dict[str, None]] = {}
    for recipe, value in said:
        found.setdefault(recipe, {})[value] = None
    return found


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
        spent = [(recipe, round(float(np.interp(budget, curve[over], curve[kind])))) for recipe, curve in curves]
        ranges = {recipe: [many for one, many in spent if one == recipe] for recipe in dict(spent)}
        told = "; ".join(f"{recipe}: {_range(counts)}" for recipe, counts in ranges.items())
        same = len({many for _, many in spent}) == 1
        apart = len({(min(counts), max(counts)) for counts in ranges.values()}) > 1
        yield kind, EQUAL if same else BETWEEN if apart else WITHIN, f"{spent[0][1]:,}" if same else told


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def not_equal(told: pd.DataFrame) -> list[str]:
    """Return the differences as sentences; amounts spent are mentioned without numbers, which are in `told`."""
    by_line: dict[str, list[str]] = {}
    for env, own in told.groupby("env", sort=False):
        spent = own["what"].str.startswith("spent.")
        for state, of_spent, sentence in SENTENCES:
            rows = own[(own["state"] == state) & (spent == of_spent)]
            if len(rows):
                by_line.setdefault(sentence.format(_listed(rows, values=not of_spent)), []).append(env or "Here")
    return [f"{'; '.join(map(str, envs))}: {line}" for line, envs in by_line.items()]


SENTENCES = (
    (BETWEEN, False, "recipes differ in more than the recipe: {}. What comes of that is not a recipe's own effect."),
    (WITHIN, False, "among the runs of one recipe differ: {}."),
    (BETWEEN, True, "within the budget they did not spend equally: {}."),
)


def _listed(rows: pd.DataFrame, values: bool) -> str:
    told = [f"{_named(what)} ({said})" if values else _named(what)
            for what, said in zip(rows["what"], rows["told"], strict=True)]  # fmt: skip
    more = [f"and {len(told) - SHOWN} more"] if len(told) > SHOWN else []
    return ", ".join([*told[:SHOWN], *more])


def held_equal(told: pd.DataFrame) -> str:
    """Return one line with what is equal in all runs of an env; a section that is all equal is one item."""
    return ". ".join(_of_envs(told, EQUAL, values=True))


def unknown(told: pd.DataFrame) -> str:
    """Return one line with the properties that some run does not record."""
    return ". ".join(_of_envs(told, UNKNOWN, values=False))


def _of_envs(told: pd.DataFrame, state: str, values: bool) -> list[str]:
    by_env = {env: ", ".join(_sections(own, state, values)) for env, own in told.groupby("env", sort=False)}
    by_line: dict[str, list[str]] = {}
    for env, line in by_env.items():
        if line:
            by_line.setdefault(line, []).append(env)
    alone = len(by_line) == 1 and len(next(iter(by_line.values()))) == len(by_env)
    return [line if alone else f"{'; '.join(map(str, envs))}: {line}" for line, envs in by_line.items()]


def _sections(own: pd.DataFrame, state: str, values: bool) -> Iterable[str]:
    sections: Mapping[str, pd.DataFrame] = dict(list(own.groupby(own["what"].str.partition(".")[0], sort=False)))
    for section, rows in sections.items():
        alike = rows[rows["state"] == state]
        if section == "spent":
            yield from (f"{_named(what)} spent" for what in alike["what"])
        elif len(alike) == len(rows) > 1:
            yield f"{section} (all {len(rows)} of its entries)" if values else f"all of {section}"
        elif len(alike) == len(rows):
            yield f"{section} ({alike['told'].iloc[0]})" if values else section
        elif len(alike):
            yield ", ".join(alike["what"])


def _named(what: str) -> str:
    return {"spent.step": "steps", "spent.tokens": "sampled tokens"}.get(
        what, what.removeprefix("spent.").replace("_", " ")
    )
