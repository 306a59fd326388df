"""Report what was equal between the compared runs, what was not, and what is unknown.

If recipes differ in more than the recipe, the result is not the recipe's own effect. A difference among the runs of one
recipe widens its spread. A value that a run does not record is unknown, never equal. Leaves out: recipes, since they
are what is compared.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.runs.run import MACHINE
from mas_lab.study.design import Design, describe_with_source, flat
from mas_lab.train.settings import Settings

SECTIONS = ("env", "settings", "team", "curriculum", "code", "versions", "threads", "ranks", "device")
"""Parts of run.json that decide the result of a training, beside recipe, seed and budget."""
DEFAULT = "as the code has it"
"""The value of an option that the design of a study does not set."""
SWEPT = "team.lr, the best of a sweep"
BETWEEN, WITHIN, EQUAL, UNKNOWN = "between recipes", "within a recipe", "equal", "unknown"
AMOUNTS = ("step", "tokens", "episodes", "optimizer_steps")
SENTENCES = {
    (BETWEEN, False): "recipes differ in more than the recipe: {}. So a difference may have another cause.",
    (WITHIN, False): "runs of one recipe differ in: {}.",
    (BETWEEN, True): "within the budget the recipes spent different amounts: {}.",
}
MOST, LONG = 8, 60
"""The most differences in one sentence, and the most characters of a value."""


def of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json by dotted names; what it does not record is absent.

    The options of a team are given agent by agent, so that shared and separate weights can be compared.
    """
    sections = {name: config[name] for name in SECTIONS if name in config and name != "team"}
    sections["settings"] = _without_machine(config.get("settings", {}))
    team, continued = config.get("team") or {}, config.get("continued")
    if played := team.get("agents", {}):
        agents = {agent: team["policies"][name] | {"sampling": team.get("sampling", {}).get(agent)}
                  for agent, name in played.items()}  # fmt: skip
        groups = [[agent for agent in played if played[agent] == name] for name in dict.fromkeys(played.values())]
        weights = "; ".join(" + ".join(group) for group in groups)
        sections["team"] = {"weights": weights, "frozen": team.get("frozen", []), **agents}
    if continued:
        sections["continued"] = continued
    return dict(flat({name: value for name, value in sections.items() if value != {}}))


def of_cell(design: Design, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a study's training by dotted names, from the design and the record."""
    options = design.options_of(record["task"], record["arm"])
    parts = {name: options[name] for name in ("env", "team", "budget") if options.get(name) is not None}
    parts["settings"] = _without_machine({one.name: DEFAULT for one in fields(Settings)} | options["settings"])
    found = dict(flat(json.loads(json.dumps(parts, default=describe_with_source))))
    if record["lr"] is not None:
        found.pop("team.lr", None)
        found[SWEPT] = record["lr"]
    return {"code": record["code"], **dict(flat(record["versions"], "versions")), **found}


def _without_machine(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in MACHINE}


def equality(found: Sequence[Any], runs: pd.DataFrame, over: str, held_out: bool) -> pd.DataFrame:
    """Return a row per env and property (`what`) of its runs, with its `state` and its values in words (`told`).

    `state` is "between recipes" if recipes have different sets of values, and "within a recipe" if the sets are the
    same but hold several values. It is "equal" if all runs have the same value, and "unknown" if a run does not record
    it.

    The amounts `spent` within the budget are properties too. These are `over`, which was given equally, and the other
    counts in the curves. `found` are the entries (`entries.Entry`), and `runs` is their table of `run_scores`.
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
        for name in names:
            values = pd.Series([one.get(name) for one in properties], [entry.recipe for entry in own], dtype=object)
            rows.append((env, name, *_judged(values)))
    return pd.DataFrame(rows, columns=["env", "what", "state", "told"])


def _judged(values: pd.Series) -> tuple[str, str]:
    """Return (state, told) of one property of runs, by recipe; `None` is what a run does not record."""
    known = values.dropna()
    if missing := len(values) - len(known):
        others = f"; the others: {', '.join(map(str, known.unique()))}" if len(known) else ""
        return UNKNOWN, f"{missing} of {len(values)} runs do not say it{others}"
    by_recipe = known.groupby(level=0, sort=False).unique()
    if known.nunique() == 1:
        return EQUAL, _words(known.unique())
    state = BETWEEN if by_recipe.map(frozenset).nunique() > 1 else WITHIN
    return state, "; ".join(f"{recipe}: {_words(own)}" for recipe, own in by_recipe.items())


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


def _properties(entry: Any, over: str, budget: float, held_out: bool) -> dict[str, Any]:
    """Return the properties of a run as texts, and the amounts that it spent within the budget as numbers."""
    curve = entry.held_out if held_out else entry.curve
    used = {f"spent.{kind}": round(float(np.interp(budget, curve[over], curve[kind])))
            for kind in AMOUNTS if kind in curve}  # fmt: skip
    return {name: _short(value) for name, value in entry.described.items()} | used | {f"spent.{over}": round(budget)}


def not_equal(table: pd.DataFrame) -> list[str]:
    """Return the differences as sentences; amounts spent are mentioned without numbers, which are in `told`."""
    envs: dict[str, list[str]] = {}
    is_amount = table["what"].str.startswith("spent.")
    for (env, state, of_amounts), rows in table.groupby(["env", "state", is_amount.rename("amount")], sort=False):
        if sentence := SENTENCES.get((state, of_amounts)):
            names = [row.what.removeprefix("spent.").replace("_", " ") if of_amounts else f"{row.what} ({row.told})"
                     for row in rows.itertuples()]  # fmt: skip
            names[MOST:] = [f"and {len(names) - MOST} more"] if len(names) > MOST else []
            envs.setdefault(sentence.format(", ".join(names)), []).append(str(env or "Here"))
    return [f"{'; '.join(names)}: {sentence}" for sentence, names in envs.items()]
