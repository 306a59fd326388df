"""The standalone pages in headless Chromium: nothing a model wrote runs, and every step works by keyboard."""

import pytest

import mas_lab as lab

pytestmark = pytest.mark.browser


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
