"""The analyses of benchmarks/foretold and asynchronous, on made-up outcomes: fixed before anything was trained."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("no checkout", allow_module_level=True)


def loaded(folder, name):
    """A module of a benchmark, which imports those beside it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(BENCHMARKS / folder)
        found = importlib.import_module(name)
    for one in ("run", "analyse"):
        sys.modules.pop(one, None)
    return found


@pytest.fixture(scope="module")
def foretold():
    return loaded("foretold", "analyse")


@pytest.mark.parametrize(("differences", "expected"), [
    ([0.1, 0.12, 0.09, 0.11], "better"), ([-0.1, -0.12, -0.09, -0.11], "worse"),
    ([0.02, 0.021, 0.019, 0.02], "the same"), ([0.3, -0.3, 0.2, -0.1], "not sure"), ([0.1, 0.1], "not sure"),
])  # fmt: skip
def test_an_outcome_is_named_by_margin_and_interval(foretold, differences, expected):
    assert foretold.came(np.array(differences)) == expected


def test_a_prediction_is_a_hit_a_miss_or_untold(foretold):
    told = [foretold.said("gain", value) for value in (2.0, 1.0, 0.5, np.nan)]
    assert told == ["pays", "hardly matters", "costs", "untold"]
    assert [foretold.said("spoke", value) for value in (0.2, 0.9)] == ["pays", "hardly matters"]
    came = ("better", "worse", "worse", "better")
    assert [foretold.verdict(*pair) for pair in zip(told, came, strict=True)] == ["hit", "miss", "hit", "untold"]
    assert foretold.verdict("pays", "not sure") == "untold"


def test_settings_are_the_units_of_the_intervals(foretold):
    """Twenty agents of one setting agree, and two of others do not: the interval is that of three units."""
    rows = [("a", 2.0, 0.1, "better")] * 20 + [("b", 2.0, -0.1, "worse"), ("c", 1.0, 0.0, "the same")]
    agents = pd.DataFrame(rows, columns=["setting", "gain", foretold.TOLD, f"{foretold.TOLD}, came"])
    agents = agents.assign(peerless=0.0, **{name: agents["gain"] for name in foretold.BOUNDS if name != "gain"})
    found = foretold.hits(agents).query("agents == 'all agents'").set_index("predictor").loc["gain"]
    assert (found["hit"], found["miss"], found["untold"]) == (21, 1, 0)
    assert found["share"] == pytest.approx(21 / 22) and found["share_low"] == 0 and found["share_high"] == 1


@pytest.mark.parametrize(("says", "differences", "verdict"), [
    ("same", [0.01, 0.0, -0.01, 0.0], "holds"), ("same", [0.1, 0.11, 0.1, 0.11], "fails"),
    ("same", [0.3, -0.3, 0.2, -0.1], "not sure"), ("not lower", [0.1, 0.2, 0.1, 0.2], "holds"),
    ("not lower", [-0.1, -0.11, -0.1, -0.11], "fails"), ("above", [0.0, 0.01, 0.0, 0.01], "fails"),
    ("below", [-0.05, -0.06, -0.05, -0.06], "holds"), ("below", [0.05, 0.06, 0.05, 0.06], "fails"),
])  # fmt: skip
def test_a_verdict_follows_from_the_interval(says, differences, verdict):
    assert loaded("asynchronous", "analyse").judged(np.array(differences), says)["verdict"] == verdict
