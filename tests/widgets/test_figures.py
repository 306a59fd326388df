"""Figures hold the numbers of their tables: curves and norms of several runs, and directions uphill."""

import numpy as np
import pandas as pd
import pytest

from mas_lab.widgets.figures import colors, learning_curves, norm_lines, uphill_dots

RUNS = pd.DataFrame({
    "recipe": ["grpo"] * 5, "seed": [0, 0, 1, 1, 1], "step": [0, 1, 0, 1, 2], "tokens": [0, 100, 0, 50, 100],
    "success": [0.0, 1.0, 0.5, 0.5, 1.0], "policy_norm": [1.0, 4.0, 3.0, 0.0, 9.0],
})  # fmt: skip


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
    [dots] = uphill_dots(found).data
    assert list(dots.x) == [0.5, -0.2] and dots.marker.symbol == ("circle", "circle-open")
    assert list(dots.error_x.array) == pytest.approx([0.1, 0.3])
    assert list(dots.error_x.arrayminus) == pytest.approx([0.2, 0.7])


def test_norms_are_over_steps_on_a_log_scale_and_a_norm_of_0_is_a_gap():
    figure = norm_lines(RUNS)
    first, second, mean = figure.data
    assert figure.layout.yaxis.type == "log" and first.mode == "lines"
    assert list(second.x) == [0, 1, 2] and second.y[0] == 3.0 and np.isnan(second.y[1]) and second.y[2] == 9.0
    assert mean.y[0] == 2.0 and mean.x[-1] == 1  # the first run ends there


def test_each_of_many_agents_has_a_colour_of_its_own():
    assert len(set(colors(map(str, range(24))).values())) == 24 and len(colors(map(str, range(30)))) == 30
