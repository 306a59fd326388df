"""The standalone pages in headless Chromium: nothing a model wrote runs, and every step works by keyboard."""

import pytest
from browsing import press

import mas_lab as lab

pytestmark = pytest.mark.browser


def test_the_reward_page_draws_its_figures(open_page, spiky, tmp_path):
    page = open_page(lab.RewardInspector(spiky).to_html(tmp_path / "page.html"))
    page.wait_for_selector(".js-plotly-plot .barlayer path")
    assert page.locator(".js-plotly-plot").count() == 3
    page.locator(".js-plotly-plot").first.hover()
    assert page.locator(".modebar-btn").count() > 0
    assert page.locator(".modebar-btn[data-title^='Share']").count() == 0


def test_the_dashboards_and_the_boards_pages_draw_their_figures(open_page, spiky, models, tmp_path):
    from small import RECIPE, SETTINGS, Relay, make_team

    trained = lab.LiveDashboard(Relay(), make_team("shared", models), RECIPE, 3, foreground=True, **SETTINGS)
    page = open_page(trained.to_html(tmp_path / "training.html"))
    page.wait_for_selector(".js-plotly-plot .scatterlayer path", state="attached")
    assert page.locator("figure").get_attribute("aria-label").startswith("Success, return and gradient norms")
    page = open_page(lab.AblationBoard([spiky, spiky]).to_html(tmp_path / "board.html"))
    page.wait_for_selector(".js-plotly-plot .scatterlayer path", state="attached")
    press(page.get_by_text("The numbers behind this figure"))
    assert page.get_by_role("cell", name="at_grpo").first.is_visible()
    assert "They hold the same numbers." in page.locator("ul").inner_text()


def test_without_scripts_the_numbers_and_the_dialogue_stand_there(browser, spiky, tmp_path):
    page = browser.new_context(java_script_enabled=False).new_page()
    inspector, viewer = lab.SpikeInspector(spiky), lab.RolloutViewer(spiky)
    page.goto(inspector.to_html(tmp_path / "spikes.html").as_uri())
    assert page.locator("#spikes tbody tr:visible").count() == inspector.scores["spike"].sum() > 0
    page.goto(viewer.to_html(tmp_path / "rollouts.html").as_uri())
    turns = lab.load_run(spiky).turns
    said = turns.loc[(turns["episode"] == viewer.episodes[0]) & turns["kept"], "completion"]
    played = page.get_by_role("group", name="as it was played")
    assert played.locator("tbody tr:visible").count() == len(said)
    assert all(text in played.inner_text() for text in said)
    page.context.close()


CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const [red, green, blue, part = 1] = parse(getComputedStyle(element).backgroundColor);
    if (part === 1) return [red, green, blue];
    const under = behind(element.parentElement);
    return [red, green, blue].map((own, place) => part * own + (1 - part) * under[place]);
  };
  const own = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim();
  const told = (element) => [...element.childNodes].some(own) && element.getClientRects().length;
  return [...document.querySelectorAll("main *")].filter(told).map((element) => {
    const style = getComputedStyle(element), ink = element instanceof SVGElement ? style.fill : style.color;
    const [low, high] = [light(parse(ink)), light(behind(element))].sort((one, other) => one - other);
    return [(high + 0.05) / (low + 0.05), element.textContent.slice(0, 40)];
  });
}"""
"""The contrast of every text on the page with what is behind it, as WCAG 2 defines it."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(open_page, spiky, tmp_path, scheme):
    for make in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer, lambda x: lab.AblationBoard([x, x])):
        page = open_page(make(spiky).to_html(tmp_path / "page.html"))
        page.emulate_media(color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach((folded) => { folded.open = true; })")
        page.wait_for_timeout(300)
        found = page.evaluate(CONTRAST)
        assert len(found) > 20 and [text for contrast, text in found if contrast < 4.5] == []
        page.close()
