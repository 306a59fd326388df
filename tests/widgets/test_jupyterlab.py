"""Notebooks with the instruments in a real JupyterLab and a real browser: run, click, switch, stop; no errors."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import execution
import nbformat
import pytest

import mas_lab as lab
from mas_lab.paths import notebooks_dir

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
MINUTES = 8
"""What a wait may take at most, on a slow machine; each ends as soon as what it waits for is there."""
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True},
    "notebook-extension/tracker": {"autoStartDefaultKernel": True},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """(address, token, folder) of a JupyterLab on loopback with settings of its own."""
    root = tmp_path_factory.mktemp("jupyter")
    for name, settings in SETTINGS.items():
        path = root / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    (root / "notebooks").mkdir()
    own = {f"JUPYTER_{kind}_DIR": str(root / kind.lower()) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {f"JUPYTERLAB_{kind}_DIR": str(root / kind.lower()) for kind in ("SETTINGS", "WORKSPACES")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, token = f"http://127.0.0.1:{port}", secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--port={port}", "--no-browser", "--allow-root",
               f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={root / 'notebooks'}",
               "--expose-app-in-browser"]  # fmt: skip
    with (root / "server.log").open("w") as log:
        started = subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log, cwd=root)
        try:
            until = time.monotonic() + 60 * MINUTES
            while not answers(f"{address}/api?token={token}"):
                assert time.monotonic() < until and started.poll() is None, (root / "server.log").read_text()
                time.sleep(0.3)
            yield address, token, root / "notebooks"
        finally:
            started.send_signal(signal.SIGTERM)  # it shuts its kernels down
            started.wait(60)


def answers(url: str) -> bool:
    with suppress(OSError):
        return bool(urllib.request.urlopen(url))
    return False


@pytest.fixture
def run_all(server, browser):
    """Open a notebook in JupyterLab and run all of its cells; at the end, no error was logged, and nothing asked of the
    network but of the server."""
    address, token, folder = server
    troubles = []

    def open_and_run(notebook, name, run=True):
        nbformat.write(notebook, folder / name)
        page = browser.new_page(viewport={"width": 1300, "height": 1600})
        page.set_default_timeout(60_000 * MINUTES)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda asked: None if is_local(asked.url) else troubles.append(asked.url))
        # In a workspace of its own: the default one would open the last test's notebook too, and might run that.
        page.goto(f"{address}/lab/workspaces/{Path(name).stem}/tree/{name}?token={token}")
        if not run:
            return page
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        asked = page.locator(".jp-InputPrompt", has_text=re.compile(r"\[[*\d]")).first
        until = time.monotonic() + 60 * MINUTES
        while not asked.count() and time.monotonic() < until:  # a click may come before the command is there
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            with suppress(playwright.TimeoutError):
                asked.wait_for(timeout=10_000)
        return page

    def is_local(url):
        return url.startswith((address, address.replace("http", "ws"), "data:", "blob:"))

    yield open_and_run
    assert troubles == []


def click_until(heard, button):
    """Click until the locator `heard` is there. A click that follows a scroll at once may be lost: the page, with
    iframes in it, then sees no mouse event at all."""
    until = time.monotonic() + 60 * MINUTES
    while time.monotonic() < until:
        with suppress(playwright.TimeoutError):
            button.click(timeout=5_000)
        with suppress(playwright.TimeoutError):
            return heard.wait_for(timeout=10_000)
    pytest.fail(f"no click on {button} was heard")


def notebook_of(*sources):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources], metadata=kernel)


TRAIN = """
import sys, time
import mas_lab as lab
sys.path.insert(0, {tests!r})
from pathlib import Path
from small import *
watch = lab.SpikeWatch(warmup=2, window=4, threshold=1)
board = lab.LiveDashboard(Relay(), make_team("shared", Path({models!r})), RECIPE, 10_000, run={run!r}, watch=watch,
                          **SETTINGS | {{"save_every": 10_000}})
"""
DRAWN = "(document.querySelector('.js-plotly-plot')?.data?.[0].x.length ?? 0)"
"""How many steps the dashboard's figure shows."""
LOOK = """
while board.running and len(board.curve) < 5:
    time.sleep(0.1)
print("still training:", board.running)
lab.SpikeInspector(board)
"""


def test_a_training_is_watched_opened_and_stopped_by_its_button(run_all, models, tmp_path):
    run = tmp_path / "run"
    cell = TRAIN.format(tests=str(Path(__file__).parents[1]), models=str(models), run=str(run))
    then = "lab.RolloutViewer(board)", "lab.RewardInspector(board)"
    page = run_all(notebook_of(cell, LOOK, *then), "training.ipynb")
    page.get_by_text("still training: True").wait_for()
    page.wait_for_function(f"{DRAWN} >= 3")  # it is drawn again while the training goes on
    open_a_spike(page.frame_locator("iframe[title^=SpikeInspector]"))
    page.frame_locator("iframe[title^=RolloutViewer]").first.locator(".node").first.wait_for()
    page.get_by_text("Who earned what, in numbers").wait_for()
    click_until(page.get_by_text(": stopped"), page.locator("button.jupyter-button", has_text="Stop"))
    assert page.locator("button.jupyter-button").count() == 0, "a button that does nothing any more is left"
    kept = lab.load_run(run)
    assert kept.checkpoint().step == kept.steps >= 5
    assert page.get_by_text(f"{kept.steps} of 10000 steps").count() == 1
    page.close()


def open_a_spike(inspector):
    """From a spike's mark to its shaded tokens, and through the baseline switch."""
    token = inspector.locator("#anatomy .token").first
    click_until(token, inspector.get_by_role("group", name="Spikes, highest first").get_by_role("button").first)
    assert "of the gradient" in token.get_attribute("aria-label")
    before = inspector.locator("#norms").inner_text()
    for name in ("global baseline", "agent-wise baseline"):
        switched = inspector.locator("#norms", has_text=name)
        click_until(switched, inspector.get_by_role("button", name=name, exact=True))
        assert switched.inner_text() != before


def test_notebook_03_is_read_with_its_sliders_and_its_formulas(run_all):
    notebook = nbformat.read(notebooks_dir() / "03_normalization.ipynb", 4)
    notebook.cells[0].source = notebook.cells[0].source.partition("\n\n")[2]  # the pictures of its badges are elsewhere
    page = run_all(execution.with_parameters(notebook, {"SMOKE": True}), "normalization.ipynb")
    looked = page.locator(".widget-interact pre", has_text="F of the helper")
    looked.wait_for()
    before = looked.inner_text()
    slider = page.locator(".widget-interact", has_text="pay").locator("[role=slider]").first
    slider.focus()
    slider.press("ArrowRight")
    playwright.expect(looked).not_to_have_text(before, timeout=60_000 * MINUTES)
    page.locator(".widget-interact pre", has_text="8 agents: signal of stage_8").wait_for()
    assert page.locator(".widget-interact .js-plotly-plot .barlayer path").count() > 0
    assert page.locator("mjx-container").count() > 0 and page.locator("mjx-merror, [data-mjx-error]").count() == 0
    page.close()


def test_what_is_not_trusted_shows_its_static_form(run_all, stored):
    """Opened without being run, from elsewhere: no frame, no style of ours, and each instrument is there once."""
    stored.metadata["kernelspec"] = notebook_of().metadata["kernelspec"]
    page = run_all(stored, "stored.ipynb", run=False)
    page.set_viewport_size({"width": 1300, "height": 6000})
    page.get_by_text("Who earned what, in numbers").wait_for()
    page.get_by_text("3 of 3 steps").wait_for()
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.locator("iframe, style, script").count() == 0
    norms = page.locator("img[alt^='gradient norm']")
    assert norms.is_visible() and norms.evaluate("image => image.complete && image.naturalWidth > 300")
    captions = ("Norms above the rule", "as it was played", "Who earned what, in numbers", "Recipes over their runs")
    for caption in captions:
        assert page.get_by_text(caption).first.is_visible(), caption
    page.close()
