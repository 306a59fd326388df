"""Colours of recipes and agents: fixed per name, never two alike on a board, and legible on white and in the dark."""

import itertools
import re

import numpy as np
import pytest

import mas_lab as lab
from mas_lab.widgets.document import STATIC
from mas_lab.widgets.figures import NEUTRAL, PALETTE
from mas_lab.widgets.recipe_colors import COLORS, DASHES, KIT, WELL_APART, recipe_colors, recipe_dashes

OKLAB = (np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]),
         np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]))  # fmt: skip
BLIND = {
    "none": np.eye(3),
    "red": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "green": np.array([[0.3673, 0.8607, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "blue": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9309, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
"""Machado, Oliveira and Fernandes 2009, full severity, on linear RGB."""


def linear(shade):
    values = np.array([int(shade[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(float(linear(shade) @ [0.2126, 0.7152, 0.0722]) for shade in (one, other))
    return (high + 0.05) / (low + 0.05)


def apart(one, other, blind="none"):
    first, second = OKLAB
    seen = [second @ np.cbrt(np.clip(first @ np.clip(BLIND[blind] @ linear(shade), 0, 1), 0, None))
            for shade in (one, other)]  # fmt: skip
    return 100 * np.linalg.norm(seen[0] - seen[1])


def test_they_stand_out_on_the_paper_of_a_page_and_of_a_dark_notebook():
    """3:1, as WCAG asks of graphics (1.4.11)."""
    style = (STATIC / "instruments.css").read_text(encoding="utf-8")
    [dark] = re.findall(r"--paper: light-dark\(#fff, (#\w{6})\)", style)
    for shade in (*COLORS, *PALETTE, NEUTRAL):
        assert min(contrast(shade, paper) for paper in ("#ffffff", dark)) >= 3, shade
        assert shade in COLORS or contrast(shade, "#111111") >= 3, "the paper of a dark JupyterLab"


def test_no_two_agents_are_nearer_than_the_nearest_of_the_first_four():
    told = {(blind, *two): apart(*two, blind) for blind in BLIND for two in itertools.combinations(PALETTE, 2)}
    assert min(told, key=told.get) == ("green", PALETTE[2], PALETTE[3]) and min(told.values()) > 7
    assert min(value for (blind, *_), value in told.items() if blind == "none") > 12


def test_they_are_told_apart_by_who_lacks_a_kind_of_cone():
    least = {blind: min(apart(*pair, blind) for pair in itertools.combinations(COLORS[:WELL_APART], 2))
             for blind in BLIND}  # fmt: skip
    assert least["none"] > 11 and least["red"] > 6 and least["green"] > 6 and least["blue"] > 6
    assert min(apart(*pair) for pair in itertools.combinations(COLORS, 2)) > 8


def test_the_kits_recipes_have_colours_of_their_own():
    assert set(KIT) == set(lab.RECIPES)
    whole = recipe_colors(list(lab.RECIPES))
    assert len(set(whole.values())) == len(KIT) == len(COLORS)
    for name in lab.RECIPES:
        assert recipe_colors([name, "another", "mine"])[name] == recipe_colors([name])[name] == whole[name]


NAMES = [f"arm {number}" for number in range(40)]


@pytest.mark.parametrize("count", [2, 5, 9, 12])
def test_no_two_of_a_board_are_alike_whatever_their_order(count):
    for start in range(0, 40 - count):
        names = NAMES[start : start + count]
        found = recipe_colors(names)
        assert len(set(found.values())) == count
        assert found == recipe_colors(names[::-1]) and list(recipe_colors(names[::-1])) == names[::-1]
        if count <= WELL_APART:
            assert set(found.values()) <= set(COLORS[:WELL_APART])


def test_beyond_the_colours_dashes_tell_them_apart():
    shades, dashes = recipe_colors(NAMES[:24]), recipe_dashes(NAMES[:24])
    assert len({(shades[name], dashes[name]) for name in shades}) == 24
    assert set(dashes.values()) == set(DASHES)


def test_a_name_keeps_its_colour_where_nobody_of_the_board_wants_it():
    assert list(recipe_colors(["global", "own"]).values()) == list(recipe_colors(["grpo", "dr_mas"]).values())
    assert recipe_colors(["grpo (ddof=1)"])["grpo (ddof=1)"] == recipe_colors(["grpo"])["grpo"]
    both = recipe_colors(["grpo (ddof=1)", "grpo"])
    assert both["grpo"] == recipe_colors(["grpo"])["grpo"] != both["grpo (ddof=1)"]
