"""The tasks as a table: in a notebook, in the README, on their page; all three say what is recorded."""

import runpy
from pathlib import Path

import pandas as pd
import pytest
from small import Relay

import mas_lab as lab
from mas_lab.paths import data_dir

ROOT = Path(__file__).parents[2]


def test_the_table_shows_every_task_with_its_agents_and_a_task_of_ones_own(monkeypatch):
    for name, env in lab.ENVS.items():
        agents = lab.make_env(name).agents if name != "reasoning_gym" else ("solver", "verifier")
        assert all(agent in env.order for agent in (agents[0], agents[-1])), name
        assert name in lab.ENVS._repr_html_() and env.paper in repr(lab.ENVS)
    monkeypatch.setitem(lab.ENVS, "mine", Relay)
    assert lab.ENVS.table().set_index("task").loc["mine"].tolist() == ["", ""]


@pytest.mark.skipif(not (ROOT / "docs" / "tasks.py").is_file(), reason="the checkout has the page, the wheel does not")
def test_the_readme_and_the_page_hold_what_is_recorded():
    made = runpy.run_path(str(ROOT / "docs" / "tasks.py"))
    readme, page = (ROOT / "README.md").read_text("utf-8"), (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert f"{made['BEGIN']}\n{made['table']()}\n{made['END']}" in readme, "python docs/tasks.py"
    assert all(f"\n## {name}\n" in page for name in lab.ENVS), "python docs/tasks.py"
    assert made["table"]().replace("docs/tasks.md#", "#") in page, "python docs/tasks.py"
    runs = pd.read_csv(data_dir() / "results" / "tldr" / "results.csv")
    assert f"→ {(runs['return'] / 3).min():.2f}-" in made["learned"]("tldr") and made["learned"]("nothing") == ""
