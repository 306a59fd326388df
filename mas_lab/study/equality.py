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
SENTENCES = {
    BETWEEN: "recipes differ in more than the recipe: {}. So a difference may have another cause.",
    WITHIN: "runs of one recipe differ in: {}.",
}
MOST, LONG = 8, 60
"""The most differences in one sentence, and the most characters of a value."""


def of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json by dotted names; what it does not record is absent.

    The options of a team are given agent by agent, so that shared and separate weights can be compared.
    """
    sections = {name: config[name] for name in (*SECTIONS, "continued") if name in config}
    sections["settings"] = _without_machine(config.get("settings", {}))
    if team := config.get("team"):
        sections["team"] = {"frozen": team["frozen"]} | {
            agent: team["policies"][name] | {"weights": name, "sampling": team["sampling"][agent]}
            for agent, name in team["agents"].items()
        }
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


def equality(found: Sequence[Any]) -> pd.DataFrame:
    """Return a row per env and property (`what`) of its runs, with its `state` and its values in words (`told`).

    `found` are the entries (`entries.Entry`). `state` is "between recipes" if recipes have different sets of values,
    and "within a recipe" if the sets are the same but hold several values. It is "equal" if all runs have the same
    value, and "unknown" if a run does not record it.
    """
    rows = []
    for env in dict.fromkeys(entry.env for entry in found):
        own = [entry for entry in found if entry.env == env]
        names = dict.fromkeys(name for entry in own for name in entry.described)
        sections = {name.partition(".")[0] for name in names}
        for name in (*names, *(name for name in SECTIONS if name not in sections)):
            said = {entry.recipe: [] for entry in own}
            for entry in own:
                said[entry.recipe].append(_short(entry.described[name]) if name in entry.described else None)
            rows.append((env, name, *_judged(said)))
    return pd.DataFrame(rows, columns=["env", "what", "state", "told"])


def _judged(said: Mapping[str, Sequence[str | None]]) -> tuple[str, str]:
    """Return (state, told) of one property of each recipe's runs; `None` is what a run does not record."""
    every = [value for own in said.values() for value in own]
    known = [value for value in dict.fromkeys(every) if value is not None]
    if missing := every.count(None):
        others = f"; the others: {', '.join(known)}" if known else ""
        return UNKNOWN, f"{missing} of {len(every)} runs do not say it{others}"
    if len(known) == 1:
        return EQUAL, known[0]
    state = BETWEEN if len(set(map(frozenset, said.values()))) > 1 else WITHIN
    return state, "; ".join(f"{recipe}: {' or '.join(dict.fromkeys(own))}" for recipe, own in said.items())


def _short(value: Any) -> str:
    """Return a value in at most `LONG` characters; a digest keeps shortened values distinct."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    cut = sha256(text.encode(errors="replace")).hexdigest()[:6]
    return text if len(text) <= LONG else f"{text[: LONG - 10]}… {cut}"


def not_equal(table: pd.DataFrame) -> list[str]:
    """Return the differences as sentences."""
    envs: dict[str, list[str]] = {}
    for (env, state), rows in table[table["state"].isin(SENTENCES)].groupby(["env", "state"], sort=False):
        names = [f"{row.what} ({row.told})" for row in rows.itertuples()]
        names[MOST:] = [f"and {len(names) - MOST} more"] if len(names) > MOST else []
        envs.setdefault(SENTENCES[state].format(", ".join(names)), []).append(str(env or "Here"))
    return [f"{'; '.join(names)}: {sentence}" for sentence, names in envs.items()]
