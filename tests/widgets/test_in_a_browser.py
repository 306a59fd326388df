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
