"""The analysis of benchmarks/foretold, on made-up outcomes: fixed before anything was trained."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "foretold"
if not FOLDER.is_dir():
    pytest.skip("no checkout", allow_module_level=True)


@pytest.fixture(scope="module")
def parts():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("run"), importlib.import_module("analyse")
    sys.path.remove(str(FOLDER))
    for name in ("run", "analyse"):
        del sys.modules[name]


def test_there_are_twenty_settings_and_each_is_a_study(parts):
    run, _ = parts
    assert len(run.SETTINGS) >= 20
    for name, setting in run.SETTINGS.items():
        assert setting["outcome"] in ("own", "team") and set(run.design(name, "math")["arms"]) == set(run.ARMS)
        assert setting.get("pocket", False) == (setting["env"].get("name") == "reasoning_gym")
    assert set(run.ARMS) <= set(lab.RECIPES) and not set(run.SEEDS) & {*run.RATE_SEEDS, *run.LOOKS}


@pytest.mark.parametrize(("differences", "expected"), [
    ([0.1, 0.12, 0.09, 0.11], "better"), ([-0.1, -0.12, -0.09, -0.11], "worse"), ([0.01, 0.0, -0.01, 0.0], "the same"),
    ([0.02, 0.021, 0.019, 0.02], "the same"), ([0.3, -0.3, 0.2, -0.1], "not sure"), ([0.1, 0.1], "not sure"),
])  # fmt: skip
def test_an_outcome_is_named_by_margin_and_interval(parts, differences, expected):
    assert parts[1].came(np.array(differences)) == expected


def test_a_prediction_is_a_hit_a_miss_or_untold(parts):
    analyse = parts[1]
    told = [analyse.said("gain", value) for value in (2.0, 1.0, 0.5, np.nan)]
    assert told == ["pays", "hardly matters", "costs", "untold"]
    assert [analyse.said("spoke", value) for value in (0.2, 0.9)] == ["pays", "hardly matters"]
    came = ("better", "worse", "worse", "better")
    assert [analyse.verdict(*pair) for pair in zip(told, came, strict=True)] == ["hit", "miss", "hit", "untold"]
    assert analyse.verdict("pays", "not sure") == "untold"


def test_settings_are_the_units_of_the_intervals(parts):
    """Twenty agents of one setting agree, and two of others do not: the interval is that of three units."""
    analyse = parts[1]
    rows = [("a", 2.0, 0.1, "better")] * 20 + [("b", 2.0, -0.1, "worse"), ("c", 1.0, 0.0, "the same")]
    agents = pd.DataFrame(rows, columns=["setting", "gain", analyse.TOLD, f"{analyse.TOLD}, came"])
    agents = agents.assign(peerless=0.0, **{name: agents["gain"] for name in analyse.BOUNDS if name != "gain"})
    found = analyse.hits(agents).query("agents == 'all agents'").set_index("predictor").loc["gain"]
    assert (found["hit"], found["miss"], found["untold"]) == (21, 1, 0)
    assert found["share"] == pytest.approx(21 / 22) and found["share_low"] == 0 and found["share_high"] == 1
