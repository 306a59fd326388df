"""Each instrument's page in headless Chromium: axe-core finds nothing, it fits, and each figure has its numbers. Full
of evil names, it asks nobody for anything, and shows every name as it is written."""

import http.server
import threading

import numpy as np
import pandas as pd
import pytest
from evil_names import EVIL, EvilRelay
from small import RECIPE, SETTINGS, Relay

import mas_lab as lab
from mas_lab.widgets.document import policy

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser
LEAST = 24
"""Pixels of what is pressed, in either direction (WCAG 2.2, 2.5.8)."""


def curves(*names):
    """Recipes on two tasks, five seeds each: the board's every panel."""
    rows = [(env, recipe, seed) for env in (names[0], "maze") for recipe in names for seed in range(5)]
    success = np.random.default_rng(0).random(len(rows))
    return pd.DataFrame(rows, columns=["env", "recipe", "seed"]).assign(tokens=10, success=success)


def live(env, models, name):
    team = lab.Team.per_agent(lambda agent: lab.load_policy(models / "a"), env.agents)
    return lab.LiveDashboard(env, team, RECIPE.replace(name=name), 3, foreground=True, **SETTINGS)


MADE = {
    "rewards": lambda run, _: lab.RewardInspector(run), "rollouts": lambda run, _: lab.RolloutViewer(run),
    "spikes": lambda run, _: lab.SpikeInspector(run), "board": lambda *_: lab.AblationBoard(curves("a", "b", "c")),
    "live": lambda _, models: live(Relay(), models, "at_grpo"),
}  # fmt: skip
NAMED = MADE | {
    "board": lambda run, _: lab.AblationBoard({EVIL: run, "other": run}),
    "board of two tasks": lambda *_: lab.AblationBoard(curves(EVIL, "other")),
    "live": lambda _, models: live(EvilRelay(), models, EVIL),
}


def unfolded(page):
    """Everything that a click would show, until there is no more of it, and the figures, drawn as they come near."""
    for _ in range(6):
        page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
        page.wait_for_timeout(50)
    for drawing in page.locator(".drawing").all():
        drawing.scroll_into_view_if_needed()
        drawing.locator(".main-svg").first.wait_for(state="attached")
    return page


@pytest.fixture(scope="module", params=list(MADE))
def opened(request, browser, spiky, models, tmp_path_factory):
    """An instrument's page, everything on it unfolded."""
    path = MADE[request.param](spiky, models).to_html(tmp_path_factory.mktemp("axe") / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    yield unfolded(page)
    page.close()


PRESSED = """() => [...document.querySelectorAll("main :is(button, select, summary, input)")].map((one) => {
  const { width, height } = one.getBoundingClientRect();
  return [one.ariaLabel || one.textContent || one.name, width, height];
})"""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_and_the_page_fits(opened, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    opened.wait_for_timeout(150)  # figures follow the size
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert [one for one in opened.evaluate(PRESSED) if 0 < min(one[1:]) < LEAST] == [], "too small to press"
    found = axe.Axe().run(opened).response["violations"]
    told = [f"{one['id']} ({one['help']}): {node['html'][:160]}" for one in found for node in one["nodes"]]
    assert not told, "\n".join(told)


FAULTS = {
    "white in the dark": """() => [...document.querySelectorAll("main *")].filter((one) => {
  const { backgroundColor, fill, fillOpacity } = getComputedStyle(one), white = "rgb(255, 255, 255)";
  const filled = one instanceof SVGRectElement && fill === white && fillOpacity !== "0" && !one.matches("svg svg *");
  return one.getClientRects().length && (backgroundColor === white || filled);
})""",
    "a figure that no folded table follows, within it or behind it": """() => {
  const drawn = (one) => one?.matches("figure"), all = [...document.querySelectorAll("figure, details table")];
  const found = all.filter((one) => drawn(one) || one.rows.length > 1);
  return found.filter((one, place) => drawn(one) && (place + 1 === found.length || drawn(found[place + 1])));
}""",
    "scrolls, and not by keyboard": """() => [...document.querySelectorAll("main *")].filter((one) => {
  const scrolls = one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "auto";
  return scrolls && one.tabIndex < 0 && !one.querySelector("a, button, input, select, [tabindex='0']");
})""",
}


def test_a_dark_phone_shows_no_white_every_number_and_scrolls_by_keyboard(opened):
    opened.emulate_media(color_scheme="dark")
    opened.set_viewport_size({"width": 390, "height": 900})
    opened.wait_for_timeout(150)
    for fault, found in FAULTS.items():
        assert opened.evaluate(f"() => ({found})().map((one) => one.outerHTML.slice(0, 120))") == [], fault


ALIEN = (
    "a:not([href^='#']), img:not([src^='data:image/svg+xml']), image, iframe, object, embed, link, "
    "meta[http-equiv=refresh]"
)
"""What a page of ours has no use for: what leads out of it, or loads."""


@pytest.mark.parametrize("name", NAMED)
def test_an_instrument_of_evil_names_asks_nobody_for_anything(open_page, evil_zip, models, tmp_path, name):
    page = unfolded(open_page(NAMED[name](evil_zip, models).to_html(tmp_path / "page.html")))
    assert EVIL in page.locator("main").inner_text()
    for drawing in page.locator(".drawing").all():
        assert EVIL[:12] in " ".join(drawing.locator("text").all_text_contents()), "a long name stands in lines"
    assert page.locator(ALIEN).count() == 0 and page.evaluate("window.hacked") is None


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
    unfolded(page)
    page.wait_for_selector(".js-plotly-plot .barlayer path")
    page.evaluate(FETCH, address)
    everything = ["/fetch", "/font", "/frame", "/image", "/import", "/object", "/script", "/sheet", "/style", "/video"]
    assert sorted(set(paths)) == ([] if held else everything)
    assert page.evaluate("window.hacked") == (None if held else 1)
    page.close()
