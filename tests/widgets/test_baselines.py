"""The figures of both baselines hold the numbers of their tables, in the agents' colours."""

import pandas as pd
import pytest

from mas_lab.table import TableError
from mas_lab.widgets.baselines import controlled_curves, ratio_dots, theory_against_measurement

AGENTS = ("solver", "fixer")
PAIRS = pd.DataFrame({
    "step": [0, 0, 1, 1], "agent": ["solver", "fixer"] * 2, "norm_global": [1.0, 3.0, 1.0, 2.0],
    "norm_agent": [1.0, 1.5, 0.5, 0.0],
})  # fmt: skip
RATIOS = pd.DataFrame({
    "agent": ["solver", "fixer", "fixer"], "F": [1.0, 2.0, 2.0], "V": [1.0, 0.5, 0.0],
    "predicted": [1.0, 5.0, float("nan")], "measured": [1.1, 6.0, float("nan")],
})  # fmt: skip
POINTS = pd.DataFrame({
    "called": [2, 2, 6, 6], "shift": [0, 1, 0, 1], "F": [1, 1.3, 1, 0.9], "predicted": [1, 1.2, 1, 0.8],
    "measured": [1, 1.4, 1, 0.85],
})  # fmt: skip


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_controlled_curves():
    found = traces(controlled_curves(POINTS))
    assert list(found["called 2×: F by theory"].y) == [1, 1.3]
    assert list(found["called 6×: measured"].y) == [1, 0.85]
    assert found["called 2×: measured"].marker.color == found["called 2×: F by theory"].line.color
    assert found["called 2×: measured"].marker.color != found["called 6×: measured"].marker.color


def test_ratio_dots():
    figure = ratio_dots(PAIRS, AGENTS)
    found = traces(figure)
    assert list(found["solver"].y) == [1.0, 2.0] and list(found["fixer"].y) == [2.0]
    assert list(found["median of solver"].y) == [1.5, 1.5]
    assert figure.layout.xaxis.ticktext == (
        "solver<br>0 steps<br>without<br>a ratio",
        "fixer<br>1 steps<br>without<br>a ratio",
    )


def test_theory_against_measurement():
    figure = theory_against_measurement(RATIOS, AGENTS)
    fixers = [trace for trace in figure.data if trace.name == "fixer"]
    assert [(list(trace.x), list(trace.y)) for trace in fixers] == [([4.0], [6.0]), ([5.0], [6.0])]


@pytest.mark.parametrize("draw", [ratio_dots, theory_against_measurement])
def test_a_missing_column_is_named(draw):
    with pytest.raises(TableError, match="column 'agent' is missing"):
        draw(PAIRS.drop(columns="agent"), AGENTS)
