"""Each instrument's page in headless Chromium, light and dark, on a desktop, a tablet and a phone: axe-core has nothing
against it, it fits, and each figure has its numbers."""

import numpy as np
import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.browser
WIDTHS = {"desktop": 1280, "tablet": 820, "phone": 390}
LEAST = 24
"""Pixels of what is pressed, in either direction (WCAG 2.2, 2.5.8)."""


def curves():
    """Three recipes on two tasks, five seeds each: the board's every panel."""
    rows = [(env, recipe, seed) for env in ("maze", "math") for recipe in ("a", "b", "c") for seed in range(5)]
    success = np.random.default_rng(0).random(len(rows))
    return pd.DataFrame(rows, columns=["env", "recipe", "seed"]).assign(tokens=10, success=success)


def live(_, models):
    return lab.LiveDashboard(Relay(), make_team("shared", models), RECIPE, 3, foreground=True, **SETTINGS).wait()


MADE = {
    "rewards": lambda run, _: lab.RewardInspector(run), "rollouts": lambda run, _: lab.RolloutViewer(run),
    "spikes": lambda run, _: lab.SpikeInspector(run),
    "norms without spikes": lambda run, _: lab.SpikeInspector(lab.load_run(run).stats),
    "board": lambda *_: lab.AblationBoard(curves()), "live": live,
}  # fmt: skip


@pytest.fixture(scope="module", params=list(MADE))
def opened(request, browser, spiky, models, tmp_path_factory):
    """An instrument's page, everything on it unfolded."""
    path = MADE[request.param](spiky, models).to_html(tmp_path_factory.mktemp("axe") / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    for _ in range(4):  # what is unfolded may hold more of it
        page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
        page.wait_for_timeout(50)
    for drawing in page.locator(".drawing").all():
        drawing.scroll_into_view_if_needed()  # a figure is drawn when it comes near
        drawing.locator(".main-svg").first.wait_for(state="attached")
    yield page
    page.close()


def sized(page, width, scheme="light"):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(150)  # figures follow the size


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_axe_finds_no_violation(opened, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    sized(opened, WIDTHS[width], scheme)
    found = axe.Axe().run(opened).response["violations"]
    told = [f"{one['id']} ({one['help']}): {node['html'][:160]}" for one in found for node in one["nodes"]]
    assert not told, "\n".join(told)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_is_not_wider_than_the_screen(opened, width):
    sized(opened, WIDTHS[width])
    assert opened.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]


PRESSED = """() => [...document.querySelectorAll("main :is(button, select, summary, input)")].map((one) => {
  const { width, height } = one.getBoundingClientRect();
  return [one.ariaLabel || one.textContent || one.name, width, height];
})"""


@pytest.mark.parametrize("width", ["desktop", "phone"])
def test_what_is_pressed_is_large_enough(opened, width):
    sized(opened, WIDTHS[width])
    small = [one for one in opened.evaluate(PRESSED) if 0 < min(one[1:]) < LEAST]
    assert small == []


GLARING = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const { backgroundColor, fill, fillOpacity } = getComputedStyle(one), white = "rgb(255, 255, 255)";
  const filled = one instanceof SVGRectElement && fill === white && fillOpacity !== "0" && !one.matches("svg svg *");
  return one.getClientRects().length && (backgroundColor === white || filled);
}).map((one) => one.outerHTML.slice(0, 120))"""


def test_nothing_is_white_in_the_dark(opened):
    sized(opened, WIDTHS["desktop"], "dark")
    assert opened.evaluate(GLARING) == []


UNTOLD = """() => {
  const drawn = (one) => one?.matches("figure"), all = [...document.querySelectorAll("figure, details table")];
  const found = all.filter((one) => drawn(one) || one.rows.length > 1);
  const untold = found.filter((one, place) => drawn(one) && (place + 1 === found.length || drawn(found[place + 1])));
  return untold.map((one) => one.outerHTML.slice(0, 120));
}"""
"""Figures that no folded table follows, within them or behind them."""


def test_each_figure_has_its_numbers_folded_below(opened):
    assert opened.evaluate(UNTOLD) == []


BY_KEY = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const scrolls = one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "auto";
  return scrolls && one.tabIndex < 0 && !one.querySelector("a, button, input, select, [tabindex='0']");
}).map((one) => one.outerHTML.slice(0, 120))"""


def test_what_scrolls_does_so_by_keyboard(opened):
    sized(opened, WIDTHS["phone"])
    assert opened.evaluate(BY_KEY) == []
