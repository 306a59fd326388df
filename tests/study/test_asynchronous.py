"""The analysis of benchmarks/asynchronous, on made-up outcomes: fixed before anything was trained."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mas_lab.study.design import Design
from mas_lab.train.settings import Settings

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("no checkout", allow_module_level=True)


@pytest.fixture(scope="module")
def analyse():
    sys.path.insert(0, str(BENCHMARKS / "asynchronous"))
    yield importlib.import_module("analyse")
    sys.path.remove(str(BENCHMARKS / "asynchronous"))
    del sys.modules["analyse"]


def test_the_study_has_every_staleness_and_correction(analyse):
    design = Design.read(BENCHMARKS / "studies" / "asynchronous.yaml")
    for recipe in analyse.RECIPES:
        for staleness, correction in [(0, ""), *((s, c) for s in (1, 2, 4, 8) for c in ("none", "clip", "tis"))]:
            options = design.options_of("ladder of 4", analyse.arm(recipe, staleness, correction))
            assert Settings.of(options["settings"]).staleness == staleness
    assert len(design.arms) == 39 and len(design.seeds_of("ladder of 4")) == 10


@pytest.mark.parametrize(("says", "differences", "verdict"), [
    ("same", [0.01, 0.0, -0.01, 0.0], "holds"), ("same", [0.1, 0.11, 0.1, 0.11], "fails"),
    ("same", [0.3, -0.3, 0.2, -0.1], "not sure"), ("not lower", [0.1, 0.2, 0.1, 0.2], "holds"),
    ("not lower", [-0.1, -0.11, -0.1, -0.11], "fails"), ("above", [0.05, 0.06, 0.05, 0.06], "holds"),
    ("above", [0.0, 0.01, 0.0, 0.01], "fails"), ("below", [-0.05, -0.06, -0.05, -0.06], "holds"),
    ("below", [-0.05, 0.05, -0.2, 0.0], "not sure"), ("below", [0.05, 0.06, 0.05, 0.06], "fails"),
])  # fmt: skip
def test_a_verdict_follows_from_the_interval(analyse, says, differences, verdict):
    assert analyse.judged(np.array(differences), says)["verdict"] == verdict


def test_predictions_compare_what_they_say(analyse):
    """Success falls by 0.005 per unit of staleness, and by 0.04 more for the clip; stage 4 loses twice as much."""
    finals, agents, curves = [], [], []
    for seed in range(4):
        noise = 0.001 * seed
        for recipe in analyse.RECIPES:
            for staleness, correction in [(0, ""), *((s, c) for s in (1, 2, 4, 8) for c in ("none", "clip", "tis"))]:
                for task in (analyse.LADDER, analyse.HELP, analyse.PATH):
                    name = analyse.arm(recipe, staleness, correction)
                    final = 0.8 - (0.005 + noise) * staleness - 0.04 * (correction == "clip")
                    finals.append({"task": task, "arm": name, "seed": seed, "start": 0.3, "final": final})
                    for agent, times in (("stage_1", 1), ("stage_4", 2), ("solver", 1), ("helper", 1)):
                        after = 0.9 - 0.01 * times * staleness + noise * times * (staleness > 0)
                        agents.append({"task": task, "arm": name, "seed": seed, "agent": agent, "window": "end",
                                       "quiz_after": after})  # fmt: skip
                    steps = {0: 0.3, 10: 0.4 + noise, 20: 0.5, 30: 0.6}
                    curves += [{"task": task, "arm": name, "seed": seed, "step": step, "success": success}
                               for step, success in steps.items()]  # fmt: skip
    found = analyse.Outcomes(*map(pd.DataFrame, (finals, agents, curves)))
    rows = analyse.predictions(found, ratio=1.5)
    mean = rows.set_index(["prediction", "case"])["mean"]
    assert mean[2, "ladder of 4"] == pytest.approx(-8 * (0.005 + 0.0015))
    assert mean[3, "ladder of 4, clip - tis"] == pytest.approx(-0.04)
    assert mean[1, "plan_path, grpo, staleness 2"] == pytest.approx(-2 * (0.005 + 0.0015))
    assert mean[5, "ladder of 4, stage_4 - stage_1"] == pytest.approx(-0.08 + 0.0015)
    assert mean[9, "ladder of 4, 1.50 times as many steps"] == pytest.approx(0.1)
    assert rows.groupby("prediction").size().to_dict() == {1: 18, 2: 1, 3: 1, 4: 18, 5: 1, 6: 1, 7: 3, 8: 1, 9: 1}
    assert (rows.loc[rows["prediction"] == 7, "verdict"] == "holds").all()
