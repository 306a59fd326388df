"""Find runs for the cells of a study that were made before or elsewhere.

Runs that cannot count are returned with the reason. Leaves out: training (`runner`), and the files of a shipped record
(`record`).
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from mas_lab.describe import differences
from mas_lab.runs.disk import read_json
from mas_lab.runs.recorder import decisive
from mas_lab.runs.run import Run, load_run
from mas_lab.study.cell import RECORDS, record_of
from mas_lab.study.design import Cell, Design
from mas_lab.study.entries import run_paths
from mas_lab.study.record import Record, is_record, read_record
from mas_lab.train.budget import Budget, Spent
from mas_lab.train.record import code, describe_training
from mas_lab.train.settings import Settings


def kept(folder: Path, sources: Sequence[str | Path], design: Design) -> tuple[dict[str, Record], list[str]]:
    """Return the records of the folder and of recorded `sources` by cell digest, and those that do not count."""
    found = [(path.name, read_json(path)) for path in sorted((folder / RECORDS).glob("*.json"))]
    for source in map(Path, sources):
        if is_record(source):
            found += [(f"{source} ({one['task']}, {one['arm']}, seed {one['seed']})", one)
                      for one in read_record(source)]  # fmt: skip
    records, apart = {}, []
    for name, record in found:
        if why := _other_code(record["code"], design):
            apart.append(f"{name}: {why}")
        else:
            records.setdefault(record["cell"], record)
    return records, apart


def handed_in(
    sources: Sequence[str | Path], cells: Iterable[Cell], design: Design
) -> tuple[dict[str, Record], list[str]]:
    """Return the records of runs in folders or zips by the cell that asks for them, and runs that fit no cell."""
    cells, records, apart, asked = list(cells), {}, [], {}
    for path in [path for source in map(Path, sources) if not is_record(source) for path in run_paths(source)]:
        run = load_run(path)
        cell, why = _cell_of(run, cells, design, asked)
        if cell is not None and cell.digest in records:
            why = f"another run was handed in for {cell}"
        if why:
            apart.append(f"{path.name}: {why}")
        else:
            records[cell.digest] = record_of(cell, run, seconds=float("nan"))
    return records, apart


def _other_code(made_by: str | None, design: Design) -> str:
    if made_by in (code(), *(design.said.get("codes") or ())):
        return ""
    return (
        f"made by other code ({made_by}, this is {code()}); it counts where `codes` of the study names it, for those "
        "who know that both give the same"
    )


def _cell_of(run: Run, cells: Sequence[Cell], design: Design, asked: dict[str, Any]) -> tuple[Cell | None, str]:
    """Return the cell that is closest to this run, and why the run does not count for it (empty: it counts)."""
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
    unlike = {cell: _unlike(run, cell, asked) for cell in own}
    closest = min(own, key=lambda cell: unlike[cell].count(" differs: "))
    if unlike[closest]:
        return closest, f"asked for other than {closest}: {unlike[closest]}"
    return closest, _not_its_budget(run, closest)


def _unlike(run: Run, cell: Cell, asked: dict[str, Any]) -> str:
    """Return how a run's config differs from what the cell asks for; `asked` keeps the configs of cells."""
    if cell.digest not in asked:
        training = cell.training()
        settings = Settings(**training.settings)
        config = describe_training(training.env, training.make_team(), training.recipe, cell.seed, settings)
        asked[cell.digest] = json.loads(json.dumps(config))
    pair = (decisive(config) | {"team": config["team"], "threads": None} for config in (run.config, asked[cell.digest]))
    return differences(*pair)


def _not_its_budget(run: Run, cell: Cell) -> str:
    """Return an error message if the run does not end with the step that reaches the cell's budget."""
    spent, budget = Spent.of(run), Budget.of(cell.config["budget"])
    if spent.reaches(budget, run.steps) and not spent.reaches(budget, run.steps - 1):
        return ""
    had = spent.after(run.steps)[budget.kind]
    return f"it spent {had:,} {budget.kind.replace('_', ' ')} in {run.steps} steps, of a budget of {budget} for {cell}"
