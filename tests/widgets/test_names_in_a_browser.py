"""Pages full of evil names in headless Chromium: they ask nobody for anything, and show every name as it is written."""

import http.server
import threading

import pandas as pd
import pytest
from evil_names import EVIL, EvilRelay
from small import RECIPE, SETTINGS

import mas_lab as lab
from mas_lab.widgets.document import policy

pytestmark = pytest.mark.browser
ALIEN = (
    "a:not([href^='#']), img:not([src^='data:image/svg+xml']), image, iframe, object, embed, link, "
    "meta[http-equiv=refresh]"
)
"""What a page of ours has no use for: what leads out of it, or loads."""


def live(_, models):
    team = lab.Team.per_agent(lambda agent: lab.load_policy(models / "a"), EvilRelay.agents)
    return lab.LiveDashboard(EvilRelay(), team, RECIPE.replace(name=EVIL), 3, foreground=True, **SETTINGS)


def curves():
    """Two recipes on two tasks."""
    rows = [(env, recipe, seed) for env in (EVIL, "maze") for recipe in (EVIL, "other") for seed in range(5)]
    return pd.DataFrame(rows, columns=["env", "recipe", "seed"]).assign(tokens=10, success=0.5)


MADE = {
    "rewards": lambda run, _: lab.RewardInspector(run), "rollouts": lambda run, _: lab.RolloutViewer(run),
    "spikes": lambda run, _: lab.SpikeInspector(run),
    "board": lambda run, _: lab.AblationBoard({EVIL: run, "other": run}),
    "board of two tasks": lambda *_: lab.AblationBoard(curves()), "live": live,
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_an_instrument_of_evil_names_asks_nobody_for_anything(open_page, evil_zip, models, tmp_path, name):
    page = open_page(MADE[name](evil_zip, models).to_html(tmp_path / "page.html"))
    page.wait_for_load_state("load")
    unfold(page)
    assert EVIL in page.locator("main").inner_text()
    for drawing in page.locator(".drawing").all():
        drawing.scroll_into_view_if_needed()
        drawing.locator(".main-svg").first.wait_for(state="attached")
        assert EVIL[:12] in " ".join(drawing.locator("text").all_text_contents()), "a long name stands in lines"
    assert page.locator(ALIEN).count() == 0 and page.evaluate("window.hacked") is None


def unfold(page):
    """Everything that a click would show, until there is no more of it."""
    for _ in range(6):
        page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
        page.wait_for_timeout(50)


@pytest.fixture
def asked():
    """(address, what was asked of it) of a server on loopback."""
    paths = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            """Nothing in the tests' output."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()


SLIPPED = """<script>window.hacked = 1</script><img src="{0}/image" onerror="window.hacked = 1">
<p style="background:url({0}/style)">a</p><link rel="stylesheet" href="{0}/sheet"><iframe src="{0}/frame"></iframe>
<script src="{0}/script"></script><style>@import url({0}/import); @font-face {{ font-family: f; src: url({0}/font) }}
* {{ font-family: f; }}</style><object data="{0}/object"></object><video src="{0}/video"></video>"""
FETCH = "address => fetch(address + '/fetch', {mode: 'no-cors'}).catch(() => null).then(() => null)"


@pytest.mark.parametrize("held", [True, False])
def test_a_page_is_held_to_its_policy_where_markup_slips_through(browser, evil_zip, asked, tmp_path, held):
    """Nothing of it runs, and nothing is asked for, while our own scripts run. Without the policy, all of it does."""
    address, paths = asked
    path = lab.RewardInspector(evil_zip).to_html(tmp_path / "page.html")
    text = path.read_text(encoding="utf-8").replace("<main>", f"<main>{SLIPPED.format(address)}", 1)
    path.write_text(text if held else text.replace(policy(), ""), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    unfold(page)
    page.locator(".drawing").first.scroll_into_view_if_needed()
    page.wait_for_selector(".js-plotly-plot .barlayer path")
    page.evaluate(FETCH, address)
    everything = ["/fetch", "/font", "/frame", "/image", "/import", "/object", "/script", "/sheet", "/style", "/video"]
    assert sorted(set(paths)) == ([] if held else everything)
    assert page.evaluate("window.hacked") == (None if held else 1)
    page.close()
