"""Decide whether a run may continue with a given config.

Differences are refused. Parts that run.json could not describe cause a warning. Leaves out: continuing (`recorder`),
and beginning as another run (`forking`).
"""

import warnings
from collections.abc import Mapping
from typing import Any

from mas_lab.fingerprint import comparable
from mas_lab.recipes import completed
from mas_lab.runs.disk import RunError
from mas_lab.runs.manifest import TABLES
from mas_lab.runs.run import KEEPING, Run
from mas_lab.team import differences

RUNS_ON = ("ranks", "device", "code", "versions")
"""Entries that may change when a run continues, although its results may change with them."""


def refuse_another(run: Run, config: Mapping[str, Any]) -> None:
    """Raise RunError if `config` asks for another run than the one that is here."""
    different = differences(*comparable(decisive(run.config), decisive(config)))
    if different:
        raise RunError(f"{run.folder}: cannot resume, {different}; ask for what the run has, or choose another folder")


def warn_of_untold(run: Run, config: Mapping[str, Any]) -> None:
    """Warn about parts that run.json does not describe, since nobody would notice if they changed."""
    if missing := config.get("untold"):
        warnings.warn(
            f"{run.folder}: run.json does not tell {'; '.join(missing)}. If that is another when the run goes on, "
            "nobody notices; a frozen dataclass, whose fields are its options, is compared whole",
            stacklevel=2,
        )


def refuse_gaps(run: Run, step: int) -> None:
    """Raise RunError if a table of the first `step` steps is missing, since a checkpoint needs all of them."""
    for name in TABLES:
        parts = run.parts(name)
        missing = [part.path for part in parts if part.step < step and not part.path.is_file()]
        made = parts[-1].steps.stop if parts else 0
        if missing or made < step:
            lost = missing[0] if missing else run.folder / name / f"{made:06d}.parquet"
            raise RunError(f"{lost} is missing; put it back, or start again in another folder")


def refuse_other_memory(run: Run, kept: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise RunError unless the same parts of the training have a state in the run and in `asked`."""
    for place in sorted({*kept, *asked}):
        if place not in asked or place not in kept:
            who, other = ("the run's", "what is asked") if place in kept else ("what is asked", "the run's")
            raise RunError(
                f"{run.folder}: cannot resume, {place}: {who} remembers (state() and load_state()) and {other} "
                "does not; pass the one that the run was made with, or choose another folder"
            )


def runs_on(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device, code and versions of a run or of its continuation, if run.json records them."""
    return {name: config[name] for name in RUNS_ON if name in config}


def decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a config that decides the results, without how it is kept and what it runs on.

    A custom env is identified by class and options, since it may move from a notebook to a file. Arguments that a plan,
    credit or loss has gained since then have their defaults.
    """
    asked = {key: config.get(key) for key in ("env", "recipe", "curriculum", "seed", "settings", "threads")}
    settings, env = asked["settings"] or {}, dict(asked["env"] or {})
    if ":" in env.get("name", ""):
        env["name"] = env["name"].rpartition(":")[2].rpartition(".")[2]
    asked["recipe"] = completed(asked["recipe"])
    return asked | {"env": env, "settings": {key: value for key, value in settings.items() if key not in KEEPING}}
