"""Curves and norms of several runs: a thin line each, and a recipe's mean over what all of its runs reached."""

import numpy as np
import pandas as pd

from mas_lab.widgets.figures import learning_curves, norm_lines

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


def test_norms_are_over_steps_on_a_log_scale_and_a_norm_of_0_is_a_gap():
    figure = norm_lines(RUNS)
    first, second, mean = figure.data
    assert figure.layout.yaxis.type == "log" and first.mode == "lines"
    assert list(second.x) == [0, 1, 2] and second.y[0] == 3.0 and np.isnan(second.y[1]) and second.y[2] == 9.0
    assert mean.y[0] == 2.0 and mean.x[-1] == 1  # the first run ends there
