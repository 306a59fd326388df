"""The tasks as a table: in a notebook, in the README, on their page; all three say what is recorded."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
from small import Relay

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.tasks.catalog import learned

ROOT = Path(__file__).parents[2]


def test_every_task_says_where_it_comes_from_and_who_speaks():
    for name, env in lab.ENVS.items():
        agents = lab.make_env(name).agents if name != "reasoning_gym" else ("solver", "verifier")
        assert all(agent in env.order for agent in (agents[0], agents[-1])), name


def test_what_was_learned_is_what_is_recorded():
    runs = pd.read_csv(data_dir() / "results" / "sudoku" / "results.csv")
    found = learned("sudoku")
    assert found.after == tuple(runs["success"]) and found.before == pytest.approx(runs["success_before"].mean())
    assert str(found).endswith(f"(at_grpo, {found.steps} steps)") and " → " in str(found)
    assert min(learned("ladder").after) > 0.4 and len(learned("ladder").after) == 3
    assert learned("nothing") is None


def test_graded_tasks_are_told_by_their_return():
    runs = pd.read_csv(data_dir() / "results" / "tldr" / "results.csv")
    assert learned("tldr").after == tuple(runs["return"] / 3)


def test_a_notebook_shows_the_table():
    shown = lab.ENVS._repr_html_()
    assert all(name in shown for name in lab.ENVS) and "AT-GRPO" in shown
    assert "plan_path" in repr(lab.ENVS)


def test_a_task_of_ones_own_stands_in_it(monkeypatch):
    monkeypatch.setitem(lab.ENVS, "mine", Relay)
    assert lab.ENVS.table().set_index("task").loc["mine"].tolist() == ["", "", ""]


@pytest.mark.skipif(not (ROOT / "docs" / "tasks.py").is_file(), reason="the checkout has the page, the wheel does not")
def test_the_readme_and_the_page_hold_what_is_recorded():
    made = runpy.run_path(str(ROOT / "docs" / "tasks.py"))
    readme, page = (ROOT / "README.md").read_text("utf-8"), (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert f"{made['BEGIN']}\n{made['table']()}\n{made['END']}" in readme, "python docs/tasks.py"
    assert all(f"\n## {name}\n" in page for name in lab.ENVS), "python docs/tasks.py"
    assert made["table"]().replace("docs/tasks.md#", "#") in page, "python docs/tasks.py"
