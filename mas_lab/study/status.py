"""Describe a study as text: what is held equal, how its arms differ, and what is missing.

Leaves out: comparing arms (`comparison`).
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from mas_lab.train.budget import KINDS, Budget

SHOWN = 5
"""The most entries that are shown of a long list."""


def status_lines(study: Any) -> list[str]:
    """Return the lines of text that describe the study."""
    table = study.table
    counts = table["state"].value_counts()
    made = f"{counts.get('made', 0)} of {len(table)} trainings made"
    if counts.get("failed"):
        made += f", {counts['failed']} failed"
    if study.design.sweeps() and not len(study.rates):
        made += "; the rest is known when learning rates are swept"
    lines = [f"study {study.design.name}: {made}, in {study.folder}"]
    for task in study.design.tasks:
        lines += _of_task(study, task, table[(table["task"] == task) & (table["phase"] == "compare")])
    lines += [f"failed: {cell}: {study.failed[cell.digest]}" for cell in study.cells() if cell.digest in study.failed]
    lines += _some("apart: ", [str(one) for one in study.apart])
    versions = {repr(sorted(record["versions"].items())) for _, record in study.records()}
    if len(versions) > 1:
        lines.append(f"made with {len(versions)} sets of versions, which may not give the same: see provenance")
    return lines


def _of_task(study: Any, task: str, rows: pd.DataFrame) -> Iterator[str]:
    budget = Budget.of(study.design.budget_of(task))
    made = rows[rows["state"] == "made"] if len(rows) else rows
    spent = "".join(f"; {kind.replace('_', ' ')} {_range(made[kind])}" for kind in KINDS if len(made))
    rates = "".join(f"; lr of {arm} {own['lr'].iloc[0]:g}" for arm, own in made.groupby("arm", sort=False)
                    if own["lr"].notna().all()) if len(made) else ""  # fmt: skip
    differ = ", ".join(study.design.differences(task)) or "nothing"
    yield f"{task}: held equal: {budget}{spent}; arms differ in {differ}{rates}"
    missing = rows[rows["state"] != "made"] if len(rows) else rows
    if len(missing):
        lacking = [f"{arm} {', '.join(map(str, own['seed']))}" for arm, own in missing.groupby("arm", sort=False)]
        yield f"{task}: missing seeds: {'; '.join(lacking)}"


def _range(values: pd.Series) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _some(before: str, texts: list[str]) -> Iterator[str]:
    yield from (before + text for text in texts[:SHOWN])
    if len(texts) > SHOWN:
        yield f"{before}and {len(texts) - SHOWN} more"
