"""Find runs for the cells of a study that were made elsewhere, and say why others do not count.

Leaves out: training (`runner`), and the files of a shipped record (`record`).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from mas_lab.describe import differing, in_sentence
from mas_lab.runs.recorder import decisive
from mas_lab.runs.run import MACHINE, Run, load_run
from mas_lab.runs.scores import scored_steps
from mas_lab.study.cell import record_of
from mas_lab.study.design import Cell
from mas_lab.study.entries import run_paths
from mas_lab.study.record import Record, is_record
from mas_lab.train.budget import Budget, Usage
from mas_lab.train.record import describe_training
from mas_lab.train.settings import Settings


def handed_in(sources: Sequence[str | Path], cells: Sequence[Cell]) -> Iterator[tuple[str, Record | str]]:
    """Yield the name and the record of each run in folders or zips, or the reason why it is the run of no cell."""
    taken = set()
    for path in [path for source in map(Path, sources) if not is_record(source) for path in run_paths(source)]:
        run = load_run(path)
        unlike = {cell: list(differing(_compared(run.config), _config_of(cell)))
                  for cell in cells if cell.seed == run.config["seed"]}  # fmt: skip
        cell = min(unlike, key=lambda cell: len(unlike[cell]), default=None)
        if cell is None:
            yield path.name, f"no arm has seed {run.config['seed']}"
        elif unlike[cell]:
            yield path.name, f"it is not {cell}: {in_sentence(unlike[cell])}"
        elif reason := _unusable(run, cell) or f"another run was handed in for {cell}" * (cell.digest in taken):
            yield path.name, reason
        else:
            taken.add(cell.digest)
            yield path.name, record_of(cell, run, seconds=None)


def _compared(config: Mapping[str, Any]) -> dict[str, Any]:
    same = decisive(config, without=(*MACHINE, "score_every", "score_at"))
    return same | {"team": config["team"], "sources": config.get("sources"), "threads": None}


@lru_cache(256)
def _config_of(cell: Cell) -> dict[str, Any]:
    """Return the content of run.json that the cell's own training would write, as far as it is compared."""
    asked = cell.training()
    config = describe_training(asked.env, asked.make_team(), asked.recipe, cell.seed, Settings.of(asked.settings))
    return _compared(json.loads(json.dumps(config)))


def _unusable(run: Run, cell: Cell) -> str:
    """Return an error message if the run of a cell's config does not count, else an empty string."""
    if forked := run.config.get("forked"):
        return f"it was forked from {forked['from']}, and its first {forked['step']} steps are not its own"
    if any({"code", "sources"} & set(one) for one in run.config.get("continued", ())):
        return "it was continued with other code"
    usage, budget = Usage.of(run), Budget.of(cell.config["budget"])
    if not usage.reaches(budget, run.steps) or usage.reaches(budget, run.steps - 1):
        return f"it used {usage.after(run.steps)} in {run.steps} steps, of a budget of {budget} for {cell}"
    if missing := {0, run.steps}.difference(scored_steps(run)):
        return f"it has no scores on held-out tasks after {min(missing)} steps; train with score_every="
    return ""
