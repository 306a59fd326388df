"""Figures hold the numbers of their tables: both baselines in the agents' colours, curves and norms of several runs.

Also tests `baselines`.
"""

import numpy as np
import pandas as pd
import pytest

from mas_lab.table import TableError
from mas_lab.widgets.baselines import controlled_curves, ratio_dots, theory_against_measurement
from mas_lab.widgets.figures import learning_curves, norm_lines, uphill_dots, uphill_html

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
RUNS = pd.DataFrame({
    "recipe": ["grpo"] * 5, "seed": [0, 0, 1, 1, 1], "step": [0, 1, 0, 1, 2], "tokens": [0, 100, 0, 50, 100],
    "success": [0.0, 1.0, 0.5, 0.5, 1.0], "policy_norm": [1.0, 4.0, 3.0, 0.0, 9.0],
})  # fmt: skip


def traces(figure):
    return {trace.name: trace for trace in figure.data}


def test_controlled_curves_show_theory_and_measurement_in_one_colour():
    found = traces(controlled_curves(POINTS))
    assert list(found["called 2×: F by theory"].y) == [1, 1.3]
    assert list(found["called 6×: measured"].y) == [1, 0.85]
    assert found["called 2×: measured"].marker.color == found["called 2×: F by theory"].line.color
    assert found["called 2×: measured"].marker.color != found["called 6×: measured"].marker.color


def test_ratio_dots_have_a_median_and_count_steps_without_a_ratio():
    figure = ratio_dots(PAIRS, AGENTS)
    found = traces(figure)
    assert list(found["solver"].y) == [1.0, 2.0] and list(found["fixer"].y) == [2.0]
    assert list(found["median of solver"].y) == [1.5, 1.5]
    told = [text.replace("<br>", " ") for text in figure.layout.xaxis.ticktext]
    assert told == ["solver 0 steps without a ratio", "fixer 1 steps without a ratio"]


def test_a_prediction_is_drawn_over_its_measurement():
    figure = theory_against_measurement(RATIOS, AGENTS)
    fixers = [trace for trace in figure.data if trace.name == "fixer"]
    assert [(list(trace.x), list(trace.y)) for trace in fixers] == [([4.0], [6.0]), ([5.0], [6.0])]


@pytest.mark.parametrize("draw", [ratio_dots, theory_against_measurement])
def test_a_missing_column_is_named(draw):
    with pytest.raises(TableError, match="column 'agent' is missing"):
        draw(PAIRS.drop(columns="agent"), AGENTS)


def test_curves_are_over_tokens_and_dotted_where_scored():
    first, second, mean = learning_curves(RUNS).data
    assert (list(first.x), list(second.y)) == ([0, 100], [0.5, 0.5, 1.0])
    assert first.mode == second.mode == "lines+markers" and mean.mode == "lines" and mean.name == "grpo"
    assert mean.y[0] == 0.25 and mean.y[-1] == 1.0
    assert np.isclose(np.interp(50, mean.x, mean.y), 0.5, atol=0.01)


def test_an_untold_dot_is_hollow_and_intervals_reach_as_far_as_they_say():
    found = pd.DataFrame({
        "agent": ["a", "b"], "recipe": "grpo", "cos_own": [0.5, np.nan], "cos_team": [0.1, -0.2], "low": [0.3, -0.9],
        "high": [0.6, 0.1], "verdict": ["uphill", "untold"],
    })  # fmt: skip
    assert "<li>a: grpo uphill (+0.50).</li><li>b: untold.</li>" in uphill_html(found) and uphill_html(None) == ""
    [dots] = uphill_dots(found).data
    assert list(dots.x) == [0.5, -0.2] and dots.marker.color[1] == "rgba(0,0,0,0)" != dots.marker.color[0]
    assert list(dots.error_x.array) == pytest.approx([0.1, 0.3])
    assert list(dots.error_x.arrayminus) == pytest.approx([0.2, 0.7])


def test_norms_are_over_steps_on_a_log_scale_and_a_norm_of_0_is_a_gap():
    figure = norm_lines(RUNS)
    first, second, mean = figure.data
    assert figure.layout.yaxis.type == "log" and first.mode == "lines"
    assert list(second.x) == [0, 1, 2] and second.y[0] == 3.0 and np.isnan(second.y[1]) and second.y[2] == 9.0
    assert mean.y[0] == 2.0 and mean.x[-1] == 1  # the first run ends there
