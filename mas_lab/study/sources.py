"""Find runs for the cells of a study that were made before or elsewhere.

Runs that cannot count are returned with the reason. Leaves out: training (`runner`), and the files of a shipped record
(`record`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from mas_lab.env import spec
from mas_lab.recipes import completed, to_data
from mas_lab.runs.disk import read_json
from mas_lab.runs.run import KEEPING, Run, load_run
from mas_lab.study.cell import RECORDS, record_of
from mas_lab.study.design import Cell, Design
from mas_lab.study.entries import run_paths
from mas_lab.study.record import is_record, read_record
from mas_lab.team import describe_team, differences
from mas_lab.train.budget import Budget, Spent
from mas_lab.train.config import Config, Place
from mas_lab.train.record import code
from mas_lab.train.settings import Settings

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Apart:
    """A run that does not count, and the reason."""

    file: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


def kept(folder: Path, sources: Sequence[str | Path], design: Design) -> tuple[dict[str, Record], list[Apart]]:
    """Return the records of the folder and of recorded `sources` by cell digest, and those that do not count."""
    found = [(path.name, read_json(path)) for path in sorted((folder / RECORDS).glob("*.json"))]
    for source in map(Path, sources):
        if is_record(source):
            found += [(f"{source} ({one['task']}, {one['arm']}, seed {one['seed']})", one)
                      for one in read_record(source)]  # fmt: skip
    records, apart = {}, []
    for name, record in found:
        if why := _other_code(record["code"], design):
            apart.append(Apart(name, why))
        else:
            records.setdefault(record["cell"], record)
    return records, apart


def handed_in(
    sources: Sequence[str | Path], cells: Iterable[Cell], design: Design
) -> tuple[dict[str, Record], list[Apart]]:
    """Return the records of runs in folders or zips by the cell that asks for them, and runs that fit no cell."""
    cells, records, apart = list(cells), {}, []
    for source in map(Path, sources):
        for path in [] if is_record(source) else run_paths(source):
            run = load_run(path)
            cell, why = _cell_of(run, cells, design)
            if cell is None:
                apart.append(Apart(path.name, why))
            elif cell.digest in records:
                apart.append(Apart(path.name, f"another run was handed in for {cell}"))
            else:
                records[cell.digest] = record_of(cell, run, Spent.of(run), seconds=float("nan"))
    return records, apart


def _other_code(made_by: str | None, design: Design) -> str | None:
    if made_by in (code(), *design.codes):
        return None
    return (
        f"made by other code ({made_by}, this is {code()}); it counts where `codes` of the study names it, for those "
        "who know that both give the same"
    )


def _cell_of(run: Run, cells: Sequence[Cell], design: Design) -> tuple[Cell | None, str]:
    """Return the cell that asks for this run, or `None` and the reason."""
    config = run.config
    if "team" not in config:
        return None, "run.json does not say what its team was made of; an earlier version wrote it"
    if forked := config.get("forked"):
        return None, f"it was forked from {forked['from']}, and its first {forked['step']} steps are not its own"
    if why := _other_code(config.get("code"), design):
        return None, why
    own = [cell for cell in cells if cell.seed == config["seed"]]
    if not own:
        return None, f"no arm asks for seed {config['seed']}"
    unlike = {cell: _unlike(run, cell) for cell in own}
    closest = min(own, key=lambda cell: len(unlike[cell]))
    if unlike[closest]:
        return None, f"asked for other than {closest}: {'; '.join(unlike[closest].values())}"
    return (closest, "") if not (short := _not_its_budget(run, closest)) else (None, short)


def _unlike(run: Run, cell: Cell) -> dict[str, str]:
    """Return, part by part, how a run's config differs from what the cell asks for."""
    config, training = run.config, cell.training()
    asked = {
        "env": spec(training.env), "recipe": completed(to_data(training.recipe)),
        "settings": _decisive(asdict(Settings(**training.settings))),
        "team": _team(json.dumps([cell.config["env"], cell.config["team"]]), cell.path),
    }  # fmt: skip
    made = {"env": config["env"], "recipe": completed(config["recipe"]), "settings": _decisive(config["settings"]),
            "team": config["team"]}  # fmt: skip
    return {part: told for part, one in json.loads(json.dumps(asked)).items()
            if (told := differences(made[part], one, part))}  # fmt: skip


def _decisive(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in KEEPING}


@lru_cache(256)
def _team(said: str, path: Path) -> dict[str, Any]:
    env, team = json.loads(said)
    config = {"env": env, "team": team, "recipe": "grpo", "steps": 0}
    return describe_team(Config.of(config, Place(path)).make_team())


def _not_its_budget(run: Run, cell: Cell) -> str:
    """Return an error message if the run does not end with the step that reaches the cell's budget."""
    spent, budget = Spent.of(run), Budget.of(cell.config["budget"])
    if spent.reaches(budget, run.steps) and not spent.reaches(budget, run.steps - 1):
        return ""
    had = spent.after(run.steps)[budget.kind]
    return f"it spent {had:,} {budget.kind.replace('_', ' ')} in {run.steps} steps, of a budget of {budget} for {cell}"
