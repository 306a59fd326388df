"""The figures of AblationBoard over several tasks: profiles as steps, with bands from five seeds on."""

import pandas as pd
import pytest

import mas_lab as lab


def board(seeds, envs="xy", recipes="ab"):
    """Recipe a scores seed / 10 in every env, b a half more."""
    rows = [
        {"env": env, "recipe": recipe, "seed": seed, "tokens": tokens, "success": seed / 10 + (recipe == "b") / 2}
        for env in envs
        for recipe in recipes
        for seed in range(seeds)
        for tokens in (0, 10)
    ]
    return lab.AblationBoard(pd.DataFrame(rows))


def test_a_profile_is_a_line_of_steps_and_below_five_seeds_without_a_band():
    a, b = board(4).profile_figure().data
    assert (a.name, b.name, a.line.shape) == ("a", "b", "hv")
    assert a.x == b.x == (0.0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.7, 0.8)
    assert a.y == (0.75, 0.5, 0.25, 0, 0, 0, 0, 0) and b.y == (1, 1, 1, 1, 0.75, 0.5, 0.25, 0)


def test_from_five_seeds_on_a_band_lies_around_it():
    drawn = board(5).profile_figure().data
    assert [trace.legendgroup for trace in drawn] == ["a"] * 3 + ["b"] * 3  # low, high, line
    for low, high, line in (drawn[:3], drawn[3:]):
        assert high.fill == "tonexty" and not low.showlegend and line.showlegend
        assert all(below <= share <= above for below, share, above in zip(low.y, line.y, high.y, strict=True))
        assert sum(above - below for below, above in zip(low.y, high.y, strict=True)) > 0.5


def test_the_page_shows_both_where_there_are_several_tasks(tmp_path):
    page = board(5).to_html(tmp_path / "board.html").read_text()
    assert page.count("<figure ") == 2 and "Performance profiles over all tasks" in page
    assert "Probability of improvement" in page and ">all tasks</td>" in page
    one = board(5, envs="x").to_html(tmp_path / "one.html").read_text()
    assert one.count("<figure ") == 1 and "Probability of improvement" in one and "all tasks" not in one


def test_no_profile_of_one_task_and_no_probability_of_one_recipe(tmp_path):
    with pytest.raises(ValueError, match="a performance profile is of several tasks, and of recipes run on each"):
        board(5, envs="x").profile_figure()
    alone = board(5, recipes="a")
    assert alone.improvements.empty and "Probability of" not in alone.to_html(tmp_path / "page.html").read_text()
