"""Get each token's share of the gradient, by step and row, from `lab.attribute` or from a `SpikeWatch`.

This module leaves out how a share is computed (`explain.diagnostics`), and how it is shown (`spikes`, `rollouts`).
"""

import pandas as pd

from mas_lab.explain.spike_rule import spike_steps
from mas_lab.table import TableError
from mas_lab.widgets.source import Source

DATES = ["step", "optimizer_step", "policy", "skipped"]
Shares = dict[tuple[int, int], list[float]]
"""(step, row of the step's table from 0) -> a number per token of the completion."""


def token_shares(source: Source, shares: pd.DataFrame | None = None) -> Shares:
    """Return the shares of each row's tokens.

    `shares` is the table of `lab.attribute` on all turns of the source. With a column `step`, it may cover some steps
    only. `None` takes the shares that the source's `SpikeWatch` recorded at its spikes. A row may then take part in
    several optimizer steps: the shares of the highest spike count. Recorded proxies are left out, because they are not
    shares. Raise TableError if `shares` belongs to another table.
    """
    return _recorded(source) if shares is None else _given(source, shares)


def _given(source: Source, shares: pd.DataFrame) -> Shares:
    if missing := [name for name in ("row", "token", "share") if name not in shares.columns]:
        raise TableError(f"shares: column {missing[0]!r} is missing; pass the table of lab.attribute(team, turns)")
    places = _places(source, shares)
    shares = shares.assign(step=[step for step, _ in places], row=[row for _, row in places])
    ordered = shares.sort_values(["step", "row", "token"], kind="stable")
    found = {key: own["share"].tolist() for key, own in ordered.groupby(["step", "row"], sort=False)}
    for step in {step for step, _ in found}:
        lengths = source.turns(step, ["completion_ids"])["completion_ids"].map(len)
        for row in (row for of, row in found if of == step):
            if row >= len(lengths) or len(found[step, row]) != lengths.iloc[row]:
                said = f"{lengths.iloc[row]} tokens" if row < len(lengths) else "no such row"
                raise TableError(
                    f"shares: row {row} of step {step} has {len(found[step, row])} shares, and the table {said}; pass "
                    "lab.attribute(team, turns) of these very turns, with a column `step` where they are one step's"
                )
    return {(int(step), int(row)): values for (step, row), values in found.items()}


def _places(source: Source, shares: pd.DataFrame) -> list[tuple[int, int]]:
    """Return (step, row within it) of each share; without a column `step`, rows count through all steps."""
    if "step" in shares.columns:
        return list(zip(shares["step"], shares["row"], strict=True))
    if len(source.steps) == 1:
        return [(source.steps[0], row) for row in shares["row"]]
    if source.run is not None:
        raise TableError(
            "shares: they do not say of which step they are; pass lab.attribute(team, run.step_turns(3)).assign(step=3)"
        )
    steps = source.step_of_row
    within = steps.groupby(steps.to_numpy()).cumcount()
    if len(shares) and int(shares["row"].max()) >= len(steps):
        raise TableError(f"shares: there is no row {int(shares['row'].max())} in {source.title}")
    return [(int(steps.iloc[int(row)]), int(within.iloc[int(row)])) for row in shares["row"]]


def _recorded(source: Source) -> Shares:
    watched = source.watched()
    spikes = [spike for spike in watched["spikes"] if spike.get("exact", True)] if watched else []
    if not spikes:
        return {}
    found: Shares = {}
    stats = source.stats(DATES)
    if source.is_live:  # the watch may be ahead of the reports
        made = stats[~stats["skipped"].astype(bool)].drop_duplicates(DATES[:3])["policy"].value_counts()
        spikes = [spike for spike in spikes if spike["call"] < made.get(spike["policy"], 0)]
    for spike in spike_steps(stats, spikes):  # highest score first
        for row, values in spike["tokens"].items():
            found.setdefault((spike["step"], int(row)), list(values))
    return found
