"""Compare what was predicted with what came of it.

    python benchmarks/carries/analyse.py

Reads `data/results/carries/`, prints tables, and writes `contrasts.csv` there. Everything here was fixed before the
first training; `README.md` says it in words. Leaves out: the trainings (`run`).
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from run import ARMS, OUT, SETTINGS, SIZES

from mas_lab.study.intervals import holm, t_test
from mas_lab.study.record import Recorded, is_record

MARGIN = 0.05
CALLED = {"ladder": ("stage_4", "stage_5", "stage_6"), "paid_help": ("helper",), "stakes": ("helper",),
          "spot_check": ("checker",)}  # fmt: skip
"""The agents that a condition calls."""
MEASURES = ("asked", "success", "largest_norm", "reinforced")


def scores(size: str, setting: str) -> pd.DataFrame:
    """Return a row per arm and seed: each measure, averaged over the agents that a condition calls."""
    folder = OUT / size / setting
    record, called = Recorded(folder), CALLED[setting]
    agents = record.agents.query("window == 'end'").merge(pd.read_csv(folder / "measures.csv").drop(
        columns="largest_norm"), on=["arm", "seed", "agent"], how="left")  # fmt: skip
    agents = agents[agents["agent"].isin(called)]
    table = agents.groupby(["arm", "seed"]).agg(
        asked=("quiz_after", "mean"), largest_norm=("largest_norm", "max"), reinforced=("reinforced", "mean")
    )  # fmt: skip
    return table.join(record.table.set_index(["arm", "seed"])["final"].rename("success")).reset_index()


def told(differences: np.ndarray, p: float) -> str:
    """Return equal, different or untold."""
    _, low, high = t_test(differences, level=0.90)
    return "equal" if low > -MARGIN and high < MARGIN else "different" if p < 0.05 else "untold"


def contrasts(size: str) -> pd.DataFrame:
    """Return a row per setting, measure and arm: its difference to `grpo`, seed by seed."""
    rows, found = [], [setting for setting in SETTINGS if is_record(OUT / size / setting)]
    for setting, measure in product(found, MEASURES):
        table = scores(size, setting).pivot(index="seed", columns="arm", values=measure)
        if measure == "largest_norm":
            table = np.log10(table)  # norms differ by factors
        for arm in ARMS[1:]:
            by_seed = (table[arm] - table["grpo"]).dropna().to_numpy()
            p, low, high = t_test(by_seed)
            rows.append({
                "size": size, "setting": setting, "measure": measure, "arm": arm, "grpo": table["grpo"].mean(),
                "difference": by_seed.mean(), "low": low, "high": high, "p": p, "by_seed": by_seed,
            })  # fmt: skip
    table = pd.DataFrame(rows)
    if len(table):
        table["p_holm"] = table.groupby("measure")["p"].transform(lambda p: holm(p.tolist()))
        table["told"] = [told(row.by_seed, row.p_holm) for row in table.itertuples()]
    return table.drop(columns="by_seed", errors="ignore")


def main() -> None:
    tables = [table for size in SIZES if len(table := contrasts(size))]
    if not tables:
        raise SystemExit(f"{OUT} holds no record yet; run.py makes them")
    table = pd.concat(tables)
    table.to_csv(OUT / "contrasts.csv", index=False, float_format="%.4g")
    for measure in MEASURES:
        print(
            f"\n{measure}\n{table[table['measure'] == measure].drop(columns='measure').round(3).to_string(index=False)}"
        )


if __name__ == "__main__":
    main()
