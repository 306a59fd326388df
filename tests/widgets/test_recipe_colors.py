"""Colours of recipes and agents: fixed per name, never two alike on a board, and legible on white and in the dark."""

import re

import numpy as np
import pytest

import mas_lab as lab
from mas_lab.widgets.document import STATIC
from mas_lab.widgets.figures import COLORS, KIT, NEUTRAL, PALETTE, WELL_APART, recipe_colors, recipe_dashes


def linear(shade):
    values = np.array([int(shade[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    low, high = sorted(float(linear(shade) @ [0.2126, 0.7152, 0.0722]) for shade in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_they_stand_out_on_the_paper_of_a_page_and_of_a_dark_notebook():
    """3:1, as WCAG asks of graphics (1.4.11)."""
    style = (STATIC / "instruments.css").read_text(encoding="utf-8")
    [dark] = re.findall(r"--paper: light-dark\(#fff, (#\w{6})\)", style)
    for shade in (*COLORS, *PALETTE, NEUTRAL):
        assert min(contrast(shade, paper) for paper in ("#ffffff", dark)) >= 3, shade
        assert shade in COLORS or contrast(shade, "#111111") >= 3, "the paper of a dark JupyterLab"


def test_the_kits_recipes_have_colours_of_their_own():
    assert set(KIT) <= set(lab.RECIPES)
    whole, dashes = recipe_colors(list(lab.RECIPES)), recipe_dashes(list(lab.RECIPES))
    assert len({whole[name] for name in KIT}) == len(KIT) <= len(COLORS)
    assert len({(whole[name], dashes[name]) for name in lab.RECIPES}) == len(lab.RECIPES)
    many = [f"arm {number}" for number in range(24)]
    shades, dashes = recipe_colors(many), recipe_dashes(many)
    assert len({(shades[name], dashes[name]) for name in many}) == 24, "beyond the colours, dashes tell them apart"
    for name in KIT:
        assert recipe_colors([name, "another", "mine"])[name] == recipe_colors([name])[name] == whole[name]


@pytest.mark.parametrize("count", [5, 12])
def test_no_two_of_a_board_are_alike_whatever_their_order(count):
    for start in range(0, 40 - count):
        names = [f"arm {number}" for number in range(start, start + count)]
        found = recipe_colors(names)
        assert len(set(found.values())) == count
        assert found == recipe_colors(names[::-1]) and list(recipe_colors(names[::-1])) == names[::-1]
        if count <= WELL_APART:
            assert set(found.values()) <= set(COLORS[:WELL_APART])


def test_a_name_keeps_its_colour_where_nobody_of_the_board_wants_it():
    assert list(recipe_colors(["global", "own"]).values()) == list(recipe_colors(["grpo", "dr_mas"]).values())
    assert recipe_colors(["grpo (ddof=1)"])["grpo (ddof=1)"] == recipe_colors(["grpo"])["grpo"]
    both = recipe_colors(["grpo (ddof=1)", "grpo"])
    assert both["grpo"] == recipe_colors(["grpo"])["grpo"] != both["grpo (ddof=1)"]
