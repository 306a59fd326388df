"""Find runs for the cells of a study that were made before or elsewhere.

Runs that cannot count are returned with the reason. Leaves out: training (`runner`), and the files of a shipped record
(`record`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mas_lab.describe import differing, in_sentence
from mas_lab.runs.disk import read_json
from mas_lab.runs.recorder import decisive
from mas_lab.runs.run import MACHINE, Run, load_run
from mas_lab.runs.scores import scored_steps
from mas_lab.study.cell import RECORDS, record_of
from mas_lab.study.design import Cell, Design
from mas_lab.study.entries import run_paths
from mas_lab.study.record import Record, is_record, read_record
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.record import code, describe_training
from mas_lab.train.settings import Settings


def recorded(folder: Path, sources: Sequence[str | Path], design: Design) -> tuple[dict[str, Record], list[str]]:
    """Return the records of the folder and of recorded `sources` by cell digest, and those that do not count."""
    found = [(path.name, read_json(path)) for path in sorted((folder / RECORDS).glob("*.json"))]
    for source in map(Path, sources):
        if is_record(source):
            found += [(f"{source} ({one['task']}, {one['arm']}, seed {one['seed']})", one)
                      for one in read_record(source)]  # fmt: skip
    records, apart = {}, []
    for name, record in sorted(found, key=lambda one: bool(one[1].get("error"))):  # one that was made counts first
        if reason := _other_code(record["code"], design):
            apart.append(f"{name}: {reason}")
        else:
            records.setdefault(record["cell"], record)
    return records, apart


def handed_in(
    sources: Sequence[str | Path], cells: Iterable[Cell], design: Design
) -> tuple[dict[str, Record], list[str]]:
    """Return the records of runs in folders or zips by the digest of their cell, and runs that fit no cell."""
    cells, records, apart = list(cells), {}, []
    config_of = lru_cache(None)(_config_of)
    for path in [path for source in map(Path, sources) if not is_record(source) for path in run_paths(source)]:
        run = load_run(path)
        reason = _unusable(run.config, design, cells)
        if not reason:
            own = [cell for cell in cells if cell.seed == run.config["seed"]]
            unlike = {cell: list(differing(_compared(run.config), config_of(cell))) for cell in own}
            cell = min(own, key=lambda cell: len(unlike[cell]))
            if unlike[cell]:
                reason = f"it is not {cell}: {in_sentence(unlike[cell])}"
            elif not (reason := _not_its_budget(run, cell) or _unscored(run)) and cell.digest in records:
                reason = f"another run was handed in for {cell}"
        if reason:
            apart.append(f"{path.name}: {reason}")
        else:
            records[cell.digest] = record_of(cell, run, seconds=None)
    return records, apart


def _other_code(made_by: str | None, design: Design) -> str:
    if made_by in (code(), *(design.options.get("codes") or ())):
        return ""
    return (
        f"made by other code ({made_by}, this is {code()}); it counts where `codes` of the study names it, for those "
        "who know that both give the same"
    )


def _unusable(config: Mapping[str, Any], design: Design, cells: Sequence[Cell]) -> str:
    """Return an error message if a run with this config counts for no cell, else an empty string."""
    if "team" not in config:
        return "run.json does not say what its team was made of; an earlier version wrote it"
    if forked := config.get("forked"):
        return f"it was forked from {forked['from']}, and its first {forked['step']} steps are not its own"
    for part in (config, *(one for one in config.get("continued", ()) if "code" in one)):
        if reason := _other_code(part.get("code"), design):
            return reason
    has_seed = any(cell.seed == config["seed"] for cell in cells)
    return "" if has_seed else f"no arm has seed {config['seed']}"


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    same = decisive(config, without=(*MACHINE, "score_every", "score_at"))
    sources = [one["sources"] for one in (config, *config.get("continued", ())) if one.get("sources")]
    return same | {"team": config["team"], "sources": sources, "threads": None}


def _config_of(cell: Cell) -> dict[str, Any]:
    """Return the content of run.json that the cell's own training would write, as far as it is compared."""
    training = cell.training()
    config = describe_training(
        training.env, training.make_team(), training.recipe, cell.seed, Settings.of(training.settings)
    )
    return _compared(json.loads(json.dumps(config)))


def _not_its_budget(run: Run, cell: Cell) -> str:
    """Return an error message if the run does not end with the step that reaches the cell's budget."""
    usage, budget = Usage.of(run), Budget.of(cell.config["budget"])
    if usage.reaches(budget, run.steps) and not usage.reaches(budget, run.steps - 1):
        return ""
    used = usage.after(run.steps)[budget.kind]
    return f"it used {used:,} {budget.kind.replace('_', ' ')} in {run.steps} steps, of a budget of {budget} for {cell}"


def _unscored(run: Run) -> str:
    """Return an error message if the run has no scores from before its first step or after its last."""
    missing = {0, run.steps}.difference(scored_steps(run))
    return f"it has no scores on held-out tasks after {min(missing)} steps; train with score_every=" if missing else ""
