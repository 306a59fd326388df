"""Curves and norms of several runs: a thin line each, and a recipe's mean over what all of its runs reached."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest

from mas_lab.widgets.document import STATIC
from mas_lab.widgets.figures import NEUTRAL, PALETTE, learning_curves, norm_lines

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


def linear(color):
    """Linear light of "#rrggbb"."""
    part = np.array(list(bytes.fromhex(color[1:]))) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(*two):
    """As WCAG 2 defines it."""
    low, high = sorted(linear(color) @ [0.2126, 0.7152, 0.0722] + 0.05 for color in two)
    return high / low


@pytest.mark.parametrize("color", [*PALETTE, NEUTRAL])
def test_a_colour_stands_out_on_either_paper(color):
    style = (STATIC / "instruments.css").read_text(encoding="utf-8")
    [dark] = re.findall(r"--paper: light-dark\(#fff, (#\w{6})\)", style)
    assert contrast(color, "#ffffff") >= 3 and contrast(color, dark) >= 3
    assert contrast(color, "#111111") >= 3, "the paper of a dark JupyterLab"


SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""Of linear light: Machado, Oliveira and Fernandes (2009), severity 1."""
TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                     [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
TO_LAB = np.array([[0.2104542553, 0.793617785, -0.0040720468], [1.9779984951, -2.428592205, 0.4505937099],
                   [0.0259040371, 0.7827717662, -0.808675766]])  # fmt: skip
"""Oklab, by Ottosson (2020)."""


def distance(sight, *two):
    seen = (np.clip(np.asarray(SIGHT[sight]) @ linear(color), 0, 1) for color in two)
    one, other = (TO_LAB @ np.cbrt(TO_CONES @ light) for light in seen)
    return float(np.linalg.norm(one - other))


def test_no_two_colours_are_nearer_than_the_nearest_of_the_first_four():
    told = {(sight, *two): distance(sight, *two) for sight in SIGHT for two in itertools.combinations(PALETTE, 2)}
    assert min(told, key=told.get) == ("deuteranopia", PALETTE[2], PALETTE[3])
    assert min(told.values()) > 0.07
    assert min(value for (sight, *_), value in told.items() if sight == "usual") > 0.12
