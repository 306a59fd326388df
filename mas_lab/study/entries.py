"""Read the runs to be compared from folders, exported zips, or a table of curves.

Leaves out: their scores within a common budget and recipes side by side (`comparison`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.describe import without_modules
from mas_lab.recipes import typed
from mas_lab.runs.disk import RunError, is_litter
from mas_lab.runs.run import Run, load_run
from mas_lab.runs.scores import run_curve, score_curve
from mas_lab.study.equality import of_cell, of_run
from mas_lab.study.record import Recorded, Results, is_record
from mas_lab.table import TableError


@dataclass(frozen=True)
class Entry:
    """One run that is compared."""

    file: str
    env: str
    recipe: str
    seed: int
    curve: pd.DataFrame
    """A row per scored step: `step`, `tokens` sampled until then, `success` and `return`."""
    held_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The same for held-out tasks, if these scores were kept."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Env, recipe and settings, as in run.json."""
    forked: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the run's first steps and their number, as in run.json; empty if it is no fork."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """Description of the run by dotted names, see `equality`; empty if nothing is known."""
    over: str = "tokens"
    """The unit of the budget that runs share; a study sets it."""
    score: str = "success"
    """The score that is compared."""
    error: str = ""
    """The error of a training that failed. Such an entry has no curve."""


def entries(x: Any) -> list[Entry]:
    """Return the runs in `x`, one entry each.

    `x` may be a folder of runs or exported zips, one run, a list of either, `{label: runs}`, a study, its folder, the
    folder of its record, a table of curves, or entries. A table has a row per run and scored step: `recipe`, `seed`,
    `step` or `tokens`, scores, and optionally `env` and `file`.
    """
    return _with_distinct_names(list(_read(x)))


def _read(x: Any) -> Iterator[Entry]:
    if isinstance(x, Entry):
        yield x
    elif isinstance(x, pd.DataFrame):
        yield from _of_table(x)
    elif isinstance(x, Results):
        for one in x.compared:
            curve = pd.DataFrame(one["curve"])
            yield Entry(
                f"{one['arm']}, seed {one['seed']}", one["task"], one["arm"], one["seed"], curve, curve,
                described=of_cell(x.design, one), over=x.held_equal, score=x.score, error=one.get("error", ""),
            )  # fmt: skip
    elif isinstance(x, Mapping) and x:
        for label, runs in x.items():
            for entry in _read(runs):
                config = {key: value for key, value in entry.config.items() if key != "recipe"}
                yield replace(entry, recipe=str(label), config=config)
    elif isinstance(x, Run):
        yield _of_run(x)
    elif isinstance(x, str | Path) and is_record(Path(x)):
        yield from _read(Recorded(x))
    elif isinstance(x, str | Path):
        yield from (_of_run(load_run(path)) for path in run_paths(Path(x)))
    elif isinstance(x, Sequence) and x:
        for one in x:
            yield from _read(one)
    else:
        raise TypeError(f"AblationBoard: give a folder, runs, zips or a table of curves, not {x!r:.200}")


def run_paths(path: Path) -> list[Path]:
    """Return the runs of a folder; raise RunError for any other file, except hidden files and litter."""
    if not path.is_dir() or (path / "run.json").is_file():
        return [path]
    found = sorted(one for one in path.iterdir() if not (one.name.startswith(".") or is_litter(one.name)))
    for entry in found:
        if not (entry / "run.json").is_file() and entry.suffix != ".zip":
            raise RunError(f"{entry} is neither a run's folder nor a zip made by export(); move it out of {path}, or, "
                           "if this is an unfinished study, call lab.study again")  # fmt: skip
    if not found:
        raise RunError(f"{path} is empty; put the folders or exported zips of runs there")
    return found


def _of_run(run: Run) -> Entry:
    config, curve = run.config, run_curve(run)
    recipe = without_modules(config["recipe"], config.get("sources") or {})
    compared = {"env": config["env"], "recipe": recipe, "settings": config["settings"]}
    return Entry(
        Path(str(run.folder).rstrip("/")).name, config["env"]["name"], recipe["name"], config["seed"], curve,
        score_curve(run, curve), compared, config.get("forked") or {}, of_run(config),
    )  # fmt: skip


def _of_table(table: pd.DataFrame) -> Iterator[Entry]:
    order = "tokens" if "tokens" in table else "step"
    for name in ("recipe", "seed", order):
        if name not in table.columns or table[name].isna().any():
            raise TableError(f"AblationBoard: column {name!r} is missing or not filled in every row; a table of curves "
                             "has recipe, seed, step or tokens, and scores, a row per run and scored step")  # fmt: skip
    known = {name: table.get(name, pd.Series("", table.index)).astype(object) for name in ("env", "file")}
    table = table.assign(**{name: own.where(own.notna(), "") for name, own in known.items()})
    for (env, recipe, seed, file), curve in table.groupby(["env", "recipe", "seed", "file"], sort=False):
        if curve[order].duplicated().any():
            raise TableError(f"AblationBoard: two rows of {recipe!r}, seed {seed} have the same {order}; a column "
                             "'file' tells runs of one seed apart")  # fmt: skip
        yield Entry(file or f"{recipe}, seed {seed}", str(env), str(recipe), int(seed), curve.sort_values(order))


def _with_distinct_names(found: list[Entry]) -> list[Entry]:
    """Add the options that differ to the names of envs and recipes that share a name."""
    for kind in ("env", "recipe"):
        found = [replace(entry, **{kind: _label(entry, kind, found)}) for entry in found]
    return found


def _label(entry: Entry, kind: str, found: list[Entry]) -> str:
    name, options = getattr(entry, kind), entry.config.get(kind, {})
    others = [other.config.get(kind, {}) for other in found if getattr(other, kind) == name]
    differ = [f"{key}={typed(value)}" for key, value in options.items() if any(o.get(key) != value for o in others)]
    return f"{name} ({', '.join(differ)})" if differ else name
