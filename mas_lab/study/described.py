"""Describe what a run was made of as one flat mapping, so that two runs can be compared.

Parts that run.json could not record are listed under `untold`. Leaves out: the comparison (`equality`), and the recipe,
since recipes are what is compared.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from mas_lab.runs.recorder import runs_on
from mas_lab.runs.run import KEEPING
from mas_lab.study.design import Design, describe_with_source, flat
from mas_lab.train.settings import Settings

SECTIONS = ("env", "settings", "team", "curriculum", "code", "versions", "threads", "ranks", "device")
"""Parts of run.json that decide the result of a training, beside recipe, seed and budget."""
DEFAULT = "as the code has it"
"""The value of an option that the design of a study does not set."""
MACHINE = {name for name in KEEPING if not name.startswith("score_")}
"""Settings that change neither a training nor the scores that are compared."""
SWEPT = "team.lr, the best of a sweep"


def of_run(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of run.json by dotted names; what it does not record is absent."""
    sections = {name: config[name] for name in SECTIONS if name in config and name != "team"}
    sections["settings"] = _decisive(config.get("settings", {}))
    found = dict(flat({name: value for name, value in sections.items() if value != {}}))
    if isinstance(config.get("team"), Mapping):
        found |= dict(_of_team(config["team"]))
    begun = dict(found)
    for later in config.get("continued") or ():  # with other code, versions or devices
        for name, value in flat(runs_on(later)):
            if value != begun.get(name):
                found[name] = f"{found.get(name, 'unknown')}, from step {later['step']} on {value}"
                begun[name] = value
    return found | {f"untold.{part}": None for part in config.get("untold") or ()}


def _of_team(team: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the options of a team agent by agent, so that shared and separate weights can be compared."""
    played, policies = team.get("agents", {}), team.get("policies", {})
    sharing = {name: [agent for agent in played if played[agent] == name] for name in dict.fromkeys(played.values())}
    yield "team.weights", "; ".join(" + ".join(agents) for agents in sharing.values())
    yield "team.frozen", team.get("frozen", [])
    for agent, name in played.items():
        yield from flat(policies.get(name, {}), f"team.{agent}")
        yield from flat(team.get("sampling", {}).get(agent, {}), f"team.{agent}.sampling")


def described_runs(design: Design | None, records: Iterable[Mapping[str, Any]]) -> dict[tuple, dict[str, Any]]:
    """Return the description of each training from the study's design and record, by (task, arm, seed)."""
    found = {}
    for one in records:
        made_with = {"code": one["code"]} | dict(flat(one["versions"], "versions"))
        options = {} if design is None else _of_design(design, one["task"], one["arm"], one["lr"])
        found[one["task"], one["arm"], one["seed"]] = made_with | options
    return found


def _of_design(design: Design, task: str, arm: str, lr: float | None) -> dict[str, Any]:
    options = design.options_of(task, arm)
    settings = _decisive({one.name: DEFAULT for one in fields(Settings)} | options["settings"])
    parts = {name: options[name] for name in ("env", "team", "budget") if options.get(name) is not None}
    found = dict(flat(json.loads(json.dumps(parts | {"settings": settings}, default=describe_with_source))))
    return found if lr is None else {name: value for name, value in found.items() if name != "team.lr"} | {SWEPT: lr}


def _decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in MACHINE}
