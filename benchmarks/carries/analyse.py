"""Compare what was predicted with what came of it.

    python benchmarks/carries/analyse.py

Reads `data/results/carries/`, prints tables, and writes `contrasts.csv` and `statements.csv` there. The analysis was
fixed before the first training; `README.md` says it in words. Leaves out: the trainings (`run`).
"""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parent))
from run import ADDED, ARMS, OUT, SETTINGS, SIZES

from mas_lab.study.intervals import holm, t_test
from mas_lab.study.record import Recorded, is_record

COMPARED = [name for name, size in SIZES.items() if size.arms == ARMS]
MARGIN = 0.05
CALLED = {"ladder": ("stage_4", "stage_5", "stage_6"), "paid_help": ("helper",), "stakes": ("helper",),
          "spot_check": ("checker",), "finisher": ("finisher",)}  # fmt: skip
"""The agents that a condition calls."""
MEASURES = ("asked", "success", "largest_norm", "reinforced")


def scores(size: str, setting: str, called: tuple[str, ...] = ()) -> pd.DataFrame:
    """Return a row per arm and seed: each measure, averaged over `called`, by default those whom a condition calls."""
    folder = OUT / size / setting
    record, called = Recorded(folder), called or CALLED[setting.split("-")[0]]
    agents = record.agents.query("window == 'end'").merge(pd.read_csv(folder / "measures.csv").drop(
        columns="largest_norm"), on=["arm", "seed", "agent"], how="left")  # fmt: skip
    agents = agents[agents["agent"].isin(called)]
    table = agents.groupby(["arm", "seed"]).agg(
        asked=("quiz_after", "mean"), before=("quiz_before", "mean"), largest_norm=("largest_norm", "max"),
        reinforced=("reinforced", "mean"),
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
        family = ["measure", table["setting"].isin(ADDED)]
        table["p_holm"] = table.groupby(family)["p"].transform(lambda p: holm(p.tolist()))
        table["told"] = [told(row.by_seed, row.p_holm) for row in table.itertuples()]
    return table.drop(columns="by_seed", errors="ignore")


def statements(size: str) -> dict[str, str]:
    """Return what each prediction that is no contrast came to: statement, with what was predicted -> found."""
    done = [setting for setting in SETTINGS if is_record(OUT / size / setting)]
    by_setting = {setting: scores(size, setting).set_index(["seed", "arm"]).unstack() for setting in done}
    found = {}
    if "stakes" in done:
        moved = (by_setting["stakes"]["asked"] - by_setting["stakes"]["before"])["dr_mas"]
        found["stakes, `dr_mas`: after minus before (below 0, but not at 135M)"] = (
            f"{moved.mean():+.2f}, {(moved < 0).sum()} of {len(moved)} seeds fall")  # fmt: skip
    if "spot_check" in done:
        asked = by_setting["spot_check"]["asked"].mean()
        found["spot check: `own_pooled` minus `grpo` (within .03)"] = f"{asked['own_pooled'] - asked['grpo']:+.3f}"
    for setting, more in (("paid_help", ""), ("ladder", "; at 10M at least half of that at 0.3M")):
        if setting in done:
            asked = by_setting[setting]["asked"].mean()
            gain, masking = asked["dr_mas"] - asked["grpo"], asked["grpo_masked"] - asked["grpo"]
            said = f"{setting.replace('_', ' ')}: `dr_mas` minus `grpo` (the same sign at 0.3M and 135M{more})"
            found[said] = f"{gain:+.2f}"
    if "ladder" in done:
        found["ladder: masking's share of this gain (at least .5)"] = f"{masking / gain:.2f}" if gain > 0 else "no gain"
        late = scores(size, "ladder", ("stage_5", "stage_6"))
        norm = np.log10(late.set_index(["seed", "arm"])["largest_norm"]).unstack().mean()
        wrong = late.groupby("arm")["reinforced"].mean()
        for arm, said in (("grpo", "at least 3"), ("grpo_masked", "at most 1.5")):
            ratio = 10 ** (norm[arm] - norm["dr_mas"])
            found[f"ladder, stages 5 and 6: largest norm, `{arm}` over `dr_mas` ({said})"] = f"{ratio:.1f}"
        for arm, said in (("grpo", "at least .5"), ("dr_mas", "at most .02")):
            name = f"ladder, stages 5 and 6: share of wrong answers reinforced under `{arm}` ({said})"
            found[name] = f"{wrong[arm]:.2f}"
    if "finisher" in done:
        ended = by_setting["finisher"].mean()
        moved = ended["asked"] - ended["before"]
        found["finisher, `grpo`: after minus before (above 0)"] = f"{moved['grpo']:+.2f}"
        said = "finisher: share of wrong answers reinforced under `grpo` (at least .95)"
        found[said] = f"{ended['reinforced']['grpo']:.2f}"
        norm = np.log10(by_setting["finisher"]["largest_norm"]).mean()
        said = "finisher: largest norm, `grpo` over `own_pooled` (.5 to 2)"
        found[said] = f"{10 ** (norm['grpo'] - norm['own_pooled']):.1f}"
    if "paid_help" in done:
        worst = by_setting["paid_help"]["reinforced"].mean().max()
        found["paid help: share of wrong answers reinforced, any arm (at most .05)"] = f"{worst:.2f}"
    return found


def main() -> None:
    tables = [table for size in COMPARED if len(table := contrasts(size))]
    if not tables:
        raise SystemExit(f"{OUT} holds no record yet; run.py makes them")
    table = pd.concat(tables)
    table.to_csv(OUT / "contrasts.csv", index=False, float_format="%.4g")
    said = pd.DataFrame({size: statements(size) for size in COMPARED}).dropna(axis="columns", how="all")
    said.rename_axis("statement").to_csv(OUT / "statements.csv")
    print(said.to_string())
    for measure in MEASURES:
        print(
            f"\n{measure}\n{table[table['measure'] == measure].drop(columns='measure').round(3).to_string(index=False)}"
        )
    for path in sorted(OUT.glob("*/*/measures.csv")):  # one adapter, a larger budget or model: three seeds, one by one
        size, setting = path.parent.parts[-2:]
        if "-" not in setting and size in COMPARED:
            continue
        print(f"\n{size}, {setting}\n{scores(size, setting).round(3).to_string(index=False)}")


if __name__ == "__main__":
    main()
