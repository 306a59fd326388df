"""What a notebook says of itself, light or dark, reaches the frames and the figures in it; in headless Chromium."""

import pytest

import mas_lab as lab

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser
DARK, LIGHT = "rgb(22, 24, 27)", "rgb(255, 255, 255)"
SAID = {
    "JupyterLab": ('data-jp-theme-light="false"', "document.body.dataset.jpThemeLight = 'true'"),
    "VS Code": ('class="vscode-body vscode-dark"', "document.body.className = 'vscode-body vscode-light'"),
    "VS Code, high contrast": (
        'class="vscode-high-contrast"',
        "document.body.className = 'vscode-high-contrast vscode-high-contrast-light'",
    ),
}


def papers(page):
    """The body of each frame on the page."""
    return [frame.locator("body") for frame in map(page.frame_locator, ("iframe >> nth=0", "iframe >> nth=1"))]


@pytest.mark.parametrize("name", SAID)
def test_a_frame_is_dark_in_a_dark_notebook_and_follows_it(open_page, spiky, tmp_path, name):
    """The system is light, as it is said at first; the notebook is not."""
    says, turns_light = SAID[name]
    shown = lab.SpikeInspector(lab.load_run(spiky).stats)._repr_html_()
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><meta charset=utf-8><body {says}>{shown}{shown}", encoding="utf-8")
    page = open_page(path)
    for paper in papers(page):
        playwright.expect(paper).to_have_css("background-color", DARK)
    page.evaluate(turns_light)
    for paper in papers(page):
        playwright.expect(paper).to_have_css("background-color", LIGHT)
