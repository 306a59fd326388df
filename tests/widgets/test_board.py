"""The figures of AblationBoard over several tasks: profiles as steps.

Also tests `ablation`; the numbers that the board compares are tested in `tests/study`.
"""

from itertools import product

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.widgets.figures import recipe_colors


def board(seeds, envs="xy", recipes="ab"):
    """Recipe a scores seed / 10 in every env, b a half more."""
    rows = product(envs, recipes, range(seeds), (0, 10))
    table = pd.DataFrame(rows, columns=["env", "recipe", "seed", "tokens"])
    return lab.AblationBoard(table.assign(success=table["seed"] / 10 + (table["recipe"] == "b") / 2))


def test_the_page_shows_the_figure_its_numbers_and_the_tables(tmp_path):
    page = board(5).to_html(tmp_path / "board.html").read_text()
    assert ">unknown</td>" in page and "<h2>What was not equal" not in page, "nothing is known of these runs"
    assert page.count("<figure ") == page.count("The numbers behind this figure") == 1
    assert "Probability of improvement" in page


def rising(envs="xy"):
    """Recipe a goes from 0.1 over 0.2 to 0.3, b from 0.1 over 0.4 to 0.7, with two seeds of the same scores."""
    rows = [
        (env, recipe, seed, tokens, 0.1 + share * tokens)
        for env, (recipe, share), seed, tokens in product(envs, [("a", 0.01), ("b", 0.03)], range(2), (0, 10, 20))
    ]
    return pd.DataFrame(rows, columns=["env", "recipe", "seed", "tokens", "success"])


def test_the_start_stands_beside_the_end_and_curves_are_drawn_where_there_are_scores_between(tmp_path):
    table = rising()
    full, ends = (lab.AblationBoard(one) for one in (table, table[table["tokens"] != 10]))
    assert full.table["start"].tolist() == [0.1] * 4 and full.table["final"].tolist() == pytest.approx([0.3, 0.7] * 2)
    page = full.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "0.10\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}0.70\n2 seeds" in page and page.count("<figure ") == 2
    assert len(ends._figures()) == 1
    figure = full._figures()[1][0]
    means = [trace for trace in figure.data if trace.line.width == 3]
    assert [(trace.name, trace.xaxis, trace.showlegend) for trace in means] == [
        ("a", "x", True), ("b", "x", True), ("a", "x2", False), ("b", "x2", False)
    ]  # fmt: skip
    assert [(trace.y[0], trace.y[-1]) for trace in means] == [(0.1, pytest.approx(0.3)), (0.1, pytest.approx(0.7))] * 2
    runs = [trace for trace in figure.data if trace.line.width == 1]
    assert len(runs) == 8 and all(list(trace.x) == [0, 10, 20] for trace in runs)
    assert {trace.name: trace.line.color for trace in figure.data} == recipe_colors(["a", "b"])


def test_a_recipe_has_its_colour_in_every_figure_of_a_board_and_on_every_board():
    several = board(5, recipes=("grpo", "own reward", "dr_mas"))
    shades = recipe_colors(["dr_mas", "grpo", "own reward"])
    drawn = {trace.name: trace.marker.color for trace in several.figure().data if trace.name in shades}
    assert drawn == shades
    alone = board(5, recipes=("grpo",)).figure().data[0]
    assert alone.name == "grpo" and alone.marker.color == shades["grpo"]


def test_what_was_not_equal_stands_on_the_page(tmp_path):
    study = lab.AblationBoard(data_dir() / "results" / "studies" / "siblings")
    page = study.to_html(tmp_path / "study.html").read_text(encoding="utf-8")
    assert "<h2>What was not equal</h2>" in page and ">between recipes</td>" in page
    assert "tldr: recipes differ in more than the recipe: team.lr, the best of a sweep (magrpo: 0.001;" in page


def test_one_recipe_has_no_probability_of_improvement():
    assert board(5, recipes="a").improvements.empty


def test_a_paper_gets_a_figure(tmp_path):
    assert board(5).to_svg(tmp_path / "board.svg").read_text(encoding="utf-8").startswith("<svg ")
