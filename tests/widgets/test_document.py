"""What a notebook says of itself, light or dark, reaches the frames and the figures in it; in headless Chromium."""

import json

import pytest
from plotly import graph_objects as go

import mas_lab as lab
from mas_lab.widgets.document import FIGURES, STATIC, in_a_notebook
from mas_lab.widgets.figures import LAYOUT
from mas_lab.widgets.text import for_script

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser
DARK, LIGHT = "rgb(22, 24, 27)", "rgb(255, 255, 255)"
SAID = {
    "JupyterLab": ('data-jp-theme-light="false"', "document.body.dataset.jpThemeLight = 'true'"),
    "VS Code": ('class="vscode-body vscode-dark"', "document.body.className = 'vscode-body vscode-light'"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_frame_is_dark_in_a_dark_notebook_and_follows_it(open_page, spiky, tmp_path, name):
    """The system is light, as it is said at first; the notebook is not."""
    says, turns_light = SAID[name]
    shown = lab.SpikeInspector(lab.load_run(spiky).stats)._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body {says}>{shown}{shown}", encoding="utf-8")
    page = open_page(path)
    papers = [page.frame_locator(f"iframe >> nth={place}").locator("body") for place in (0, 1)]
    for paper in papers:
        playwright.expect(paper).to_have_css("background-color", DARK)
    page.evaluate(turns_light)
    for paper in papers:
        playwright.expect(paper).to_have_css("background-color", LIGHT)


INK, CLEAR = "rgb(42, 63, 95)", "rgba(0, 0, 0, 0)"


def test_a_figure_stands_on_a_dark_notebooks_paper_in_its_ink(open_page, tmp_path):
    """A figure of plotly's as a notebook draws it, beside our style."""
    (dark, turns_light), path = SAID["JupyterLab"], tmp_path / "dark.html"
    figure = go.Figure(go.Scatter(x=[0, 1], y=[0, 1], name="a", showlegend=True))
    figure.update_layout(**LAYOUT, title="title")
    shown = for_script(json.loads(figure.to_json()) | {"config": {}})
    held = f'<div class="drawing"></div><script type="application/json">{shown}</script>'
    code = "".join(f"<script>{(STATIC / name).read_text(encoding='utf-8')}</script>" for name in FIGURES)
    path.write_text(
        f"<!doctype html><meta charset=utf-8><body {dark} style='--jp-ui-font-color1: rgb(1, 2, 3)'>"
        f"{in_a_notebook()}{held}{code}",
        encoding="utf-8",
    )
    page = open_page(path)
    page.locator(".legendtext").wait_for()
    playwright.expect(page.locator(".main-svg").first).to_have_css("background-color", CLEAR)
    for text in (".legendtext", ".gtitle", ".xtick text"):
        playwright.expect(page.locator(text).first).to_have_css("fill", "rgb(1, 2, 3)")
    playwright.expect(page.locator(".legend .bg")).to_have_css("fill-opacity", "0")
    page.evaluate(turns_light)
    playwright.expect(page.locator(".main-svg").first).to_have_css("background-color", LIGHT)
    playwright.expect(page.locator(".legendtext")).to_have_css("fill", INK)
