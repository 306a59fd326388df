"""Names reach a figure as text: whatever they hold, plotly shows it and does none of it."""

import html
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pandas as pd
import pytest
from evil_names import EVIL, EvilRelay, evil
from hypothesis import given, settings
from hypothesis import strategies as st
from small import RECIPE, SETTINGS

import mas_lab as lab
from mas_lab import widgets
from mas_lab.widgets.ablation import curve_figure
from mas_lab.widgets.document import STATIC, document, policy
from mas_lab.widgets.figures import learning_curves, mazes, norm_lines, recipe_lines, uphill_dots
from mas_lab.widgets.live import Controls
from mas_lab.widgets.rewards import wrong_over_steps
from mas_lab.widgets.text import escape_control_chars, for_plotly

AGENTS = (evil("solver"), evil("fixer"))
SCORES = pd.DataFrame({
    "env": evil("env"), "recipe": [evil("one")] * 4 + [evil("two")] * 4, "seed": [0, 0, 1, 1] * 2, "step": [0, 1] * 4,
    "tokens": [0, 9] * 4, "success": 0.5, "policy_norm": [0.1, 0, 3, 2] * 2, "file": [evil(one) for one in "aabbccdd"],
})  # fmt: skip
TASKS = pd.concat([SCORES, SCORES.assign(env="another")]).rename(columns={"success": evil("success")})


def maze(*_):
    env = lab.make_env("plan_path")
    [task] = env.tasks(1, "train", 0)
    played = {"task": task.id, "episode": "e", "kept": True, "depth": 0, "agent": env.agents, "completion": "up"}
    return mazes(env, task, {evil("before"): pd.DataFrame(played), "after": pd.DataFrame(played)})


def training(_, models):
    team = lab.Team.per_agent(lambda agent: lab.load_policy(models / "a"), EvilRelay.agents)
    board = lab.LiveDashboard(EvilRelay(), team, RECIPE, 2, foreground=True, **SETTINGS)
    board.forked = {"from": EVIL.replace("/", "|"), "step": 1, "changed": []}
    board.origin = lambda: board.curve
    return board.figure()


def wrong(run, _):
    inspector = lab.RewardInspector(run)
    return wrong_over_steps(inspector.wrong(), inspector.source.agents)


FOUND = pd.DataFrame({
    "agent": AGENTS, "recipe": [evil("recipe"), "grpo"], "cos_own": [0.5, -0.2], "cos_team": 0.1, "low": -0.3,
    "high": 0.6, "verdict": ["uphill", "untold"],
})  # fmt: skip
DRAWN = {
    "learning_curves": lambda *_: learning_curves(SCORES, y_title=evil("success")),
    "norm_lines": lambda *_: norm_lines(SCORES), "uphill_dots": lambda *_: uphill_dots(FOUND),
    "wrong_over_steps": wrong, "mazes": maze,
    "two_baselines": lambda run, _: lab.RewardInspector(run).figure(),
    "episode_timeline": lambda run, _: lab.RolloutViewer(run).figure(),
    "norm_curves": lambda run, _: lab.SpikeInspector(run).figure(),
    "recipe_lines": lambda *_: recipe_lines(SCORES, "tokens", "success"),
    "curve_figure": lambda *_: curve_figure(TASKS, "tokens", evil("success"), evil("unit")),
    "board_figure": lambda *_: lab.AblationBoard(SCORES).figure(),
    "training_figure": training,
}  # fmt: skip
"""Every function that gives a figure, drawn by the instrument that shows it where there is one."""


def test_every_figure_is_tried():
    names = [f"mas_lab.widgets.{found.name}" for found in pkgutil.iter_modules(widgets.__path__)]
    public = [one for name in names for one in vars(importlib.import_module(name)).values()
              if inspect.isfunction(one) and one.__module__ == name and not one.__name__.startswith("_")]  # fmt: skip
    drawing = re.compile("-> Figure:")
    assert {one.__name__ for one in public if drawing.search(inspect.getsource(one))} == set(DRAWN)


OURS = re.compile(r"<br>|</?b>|<extra></extra>|&(amp|lt|gt|#36|#37);")
READ = re.compile(r"[<>&$]|%\{")
"""Our own markup, and what plotly reads as more than text."""
TEMPLATE = re.compile(r"%\{[xy](:[.\w]+)?\}|%\{text\}")


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_shows_names_as_they_are_written(evil_zip, models, name):
    figure = DRAWN[name](lab.load_run(evil_zip), models).to_plotly_json()
    texts = list(strings(figure))
    assert any(EVIL in html.unescape(re.sub("<br>", " ", text)) for _, text in texts), "no name is in the figure"
    for key, text in texts:
        rest = OURS.sub("", TEMPLATE.sub("", text) if key == "hovertemplate" else text)
        assert not READ.search(rest), (key, text)


def strings(data, key=""):
    """(the key it stands under, text) of every string in a figure."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from strings(value, name)
    elif isinstance(data, str):
        yield key, data
    elif isinstance(data, list | tuple | np.ndarray):
        for value in data:
            yield from strings(value, key)


@settings(max_examples=30)
@given(st.text(max_size=40) | st.text("<>&$%{}ab;#36\\", max_size=40))
def test_what_plotly_decodes_is_the_text(text):
    written = for_plotly(text)
    assert not READ.search(OURS.sub("", written)) and "<" not in written
    assert html.unescape(written) == escape_control_chars(text)


def test_the_line_of_a_live_training_is_text():
    controls = Controls(1, stop=print)
    controls.show = lambda _: None
    controls.tell(0, f"ended by {EVIL}", "failed")
    [line] = [one for one in controls._box.children if hasattr(one, "value")]
    assert type(line).__name__ == "HTML", "a Label reads LaTeX"
    assert "<" not in line.value and html.unescape(line.value) == f"ended by {EVIL}"


def test_the_instruments_of_a_notebook_keep_its_mathjax_off(evil_zip, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda one, **_: shown.append(one))
    lab.RewardInspector(evil_zip)._ipython_display_()
    lab.AblationBoard([evil_zip])._ipython_display_()
    for beside in [one for one in shown if type(one).__name__ == "HTML"]:
        assert beside.data.startswith('<div class="tex2jax_ignore mathjax_ignore">')
        assert EVIL not in beside.data and html.escape(EVIL) in beside.data


def test_a_page_may_run_the_scripts_of_the_package_alone():
    page = document("title", "", {"a": 1}, scripts=("rollouts.js",))
    assert page.index(f'content="{policy()}"') < page.index("<title")
    allowed = dict(part.split(" ", 1) for part in policy().split("; "))
    assert allowed["default-src"] == "'none'" and "unsafe" not in allowed["script-src"]
    assert allowed["script-src"].count("'sha256-") == len(list(STATIC.glob("*.js"))) and "http" not in policy()
