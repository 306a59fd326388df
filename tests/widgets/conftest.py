"""A real browser for the instruments, and what a model or a run's names may hold to do more than be read."""

from pathlib import Path

import evil_names
import nbformat
import pytest
import small
from nbclient import NotebookClient


@pytest.fixture
def open_page(browser):
    """Open a file, after a `script` if one is given; at the end, no error was logged and nothing was asked of the
    network."""
    troubles = []

    def open_file(path, script=""):
        page = browser.new_page()
        page.add_init_script(script)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda asked: None if asked.url.startswith("file:") else troubles.append(asked.url))
        page.goto(path.as_uri())
        return page

    yield open_file
    assert [trouble for trouble in troubles if not trouble.startswith(("data:", "blob:"))] == []


@pytest.fixture(scope="module")
def team(models):
    return small.make_team("shared", models)


@pytest.fixture
def hostile():
    """Texts that a model may write to do more than be read."""
    return {
        "markup": "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'><b>bold</b>&amp;",
        "closing": "</script></pre></iframe><script>window.hacked = 1</script><!--",
        "ansi": "\x1b[31mred\x1b[0m\x07",
        "null": "before\x00after", "right to left": "abc\u202egnp.exe\u200f", "surrogate": "half \ud800 a pair",
        "long": "x" * 100_000, "invisible": "a\u200bb\ufeffc\u2028d",
    }  # fmt: skip


@pytest.fixture(scope="session")
def evil_zip(spiky, tmp_path_factory):
    """The run `spiky` as somebody hands it in whose every name and text is evil."""
    return evil_names.evil_zip(spiky, tmp_path_factory.mktemp("zips"))


CELL = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from small import *
"""
SHOWN = ["lab.SpikeInspector({run!r})", "lab.RolloutViewer({run!r})", "lab.RewardInspector({run!r})",
         "lab.AblationBoard([{run!r}])",
         "from plotly import express\nexpress.line(x=[1, 2], y=[3, 4])",
         "express.strip(x=['a', 'a', 'b'], y=[3, 4, 5])",
         "from mas_lab.widgets.live import LiveCurve\ncurve = LiveCurve()\ncurve.add(0, 0.4)\ncurve.add(9, 0.9)",
         "lab.LiveDashboard(Relay(), make_team('shared', Path({models!r})), RECIPE, 3, foreground=False, "
         "**SETTINGS).wait()"]  # fmt: skip


@pytest.fixture(scope="session")
def stored(spiky, models):
    """A notebook of all instruments as it is stored, executed where no widget lives."""
    places = {"tests": str(Path(__file__).parents[1]), "run": str(spiky), "models": str(models)}
    filled = [source.format(**places) for source in (CELL, *SHOWN)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in filled])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook
