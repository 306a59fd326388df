"""What notebook 04 says of recorded runs stands in the records."""

import pandas as pd

from mas_lab.paths import data_dir, notebooks_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
TEXT = (notebooks_dir() / "04_update.ipynb").read_text(encoding="utf-8")


def test_success_of_math_is_that_of_the_text():
    runs = pd.read_csv(RESULTS / "math" / "results.csv")
    before, after = (", ".join(f"{one:.2f}" for one in runs[name]) for name in ("success_before", "success"))
    assert f"three recorded seeds: {before} before, {after} after" in TEXT


def test_the_ladder_fails_under_a_global_baseline_whatever_the_optimizer():
    assert "the ladder fails under SGD and without clipping just as it does with AdamW" in TEXT
    runs = Recorded(RESULTS / "studies" / "ladder").table.query("phase == 'compare'")
    last = runs.groupby(["task", "arm"])["final"].mean()
    for task in ("8 agents", "8 agents, SGD", "8 agents, no clipping"):
        assert last[task, "global"] < 0.1 and last[task, "own"] > 0.2


def test_norms_are_alike_where_help_is_paid():
    assert "`paid_help` was harmed at norms alike" in TEXT
    agents = Recorded(RESULTS / "studies" / "paid_help").agents.query("window == 'end' and task == 'pay 0.2'")
    norms = agents[agents["agent"] == "helper"].groupby("arm")["median_norm"].median()
    assert 0.5 < norms["global"] / norms["own"] < 2
