"""The page of spikes in headless Chromium: what a click opens, and what it says of a norm."""

import re
from urllib.parse import parse_qsl

import pandas as pd
import pytest

import mas_lab as lab

pytestmark = pytest.mark.browser


def press(element):
    """A click on the element itself: Chromium may lose one of the mouse that follows a scroll at once."""
    element.evaluate("element => element.click()")


@pytest.fixture(scope="module")
def shown(browser, spiky, tmp_path_factory):
    """(the page of a run's spikes, its inspector): tests leave it as they found it."""
    inspector, page = lab.SpikeInspector(spiky), browser.new_page()
    page.goto(inspector.to_html(tmp_path_factory.mktemp("spikes") / "page.html").as_uri())
    yield page, inspector
    page.close()


def test_a_spike_opens_to_its_tokens_by_mouse_and_by_keyboard(shown):
    page, inspector = shown
    last = inspector.spikes[-1]
    spike = page.locator("circle.spike[role=button]").first
    spike.click()
    if page.evaluate("document.activeElement.id") != "opened":
        spike.click()  # Chromium may lose a click that follows a scroll at once
    assert page.evaluate("document.activeElement.id") == "opened"
    page.get_by_role("group", name="Spikes, highest first").get_by_role("button").last.focus()
    page.keyboard.press("Enter")
    assert f"Step {last['step']}," in page.locator("#anatomy h2").inner_text()
    assert page.locator("#anatomy .token").count() >= 1  # the largest agent, group and sample stand open
    before = page.locator("#anatomy .token").count()
    page.locator("#judgement > details > summary").last.focus()
    page.keyboard.press("Enter")
    inner = page.locator("#judgement > details").last.locator("> details > summary")
    press(inner.first)
    press(page.locator("#judgement > details").last.locator("> details").first.locator("> details > summary").first)
    assert page.locator("#judgement > details").last.locator(".token, p.quiet").count() >= 1
    assert page.locator("#anatomy .token").count() >= before


def test_any_point_tells_its_norm_and_score_to_the_mouse_and_to_keys(shown):
    page, inspector = shown
    [line] = [line for line in inspector.data()["lines"] if line["agent"] == "doer"]
    own = inspector.scores[inspector.scores["agent"] == "doer"].reset_index(drop=True)
    reader = page.get_by_role("slider")
    reader.focus()
    while "doer" not in reader.get_attribute("aria-valuetext").partition(";")[0]:
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    for place, row in own.iterrows():
        told = reader.get_attribute("aria-valuetext")
        assert int(reader.get_attribute("aria-valuenow")) == place
        assert f"step {row['step']}, its optimizer step {row['optimizer_step']}" in told
        assert f"norm {line['norms'][place]:g}" in told
        score = "no score yet" if pd.isna(row["score"]) else f"times the usual norm {line['usual'][place]:g}"
        score = score if row["norm"] > 0 else "no norm: 0"
        assert score in told and ("a spike" in told) == row["spike"]
        assert page.locator(".reading").is_visible() and line["name"] in page.locator(".reading").inner_text()
        page.keyboard.press("ArrowRight")
    assert int(reader.get_attribute("aria-valuenow")) == len(own) - 1
    page.evaluate("document.activeElement.blur()")
    assert page.locator(".reading").is_hidden()
    mark = page.locator(f"circle.spike[aria-label^='Spike of {line['name']} at']").first
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2 + 2, box["y"] + box["height"] / 2)
    assert page.locator(".reading strong").inner_text() == line["name"]
    assert "a spike: click" in page.locator(".reading").inner_text()
    page.mouse.move(2, 2)
    assert page.locator(".reading").is_hidden()


def in_view(page, selector):
    """Is the top of it on the screen?"""
    return page.evaluate(
        """selector => { const { top } = document.querySelector(selector).getBoundingClientRect();
        return top > -2 && top < innerHeight - 40; }""", selector)  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
def test_a_sample_opens_in_its_episode_below(shown, width):
    page, inspector = shown
    page.set_viewport_size({"width": width, "height": 720})
    press(page.get_by_role("group", name="Spikes, highest first").get_by_role("button").first)
    link = page.locator("#anatomy .into a").first
    said = page.locator("#anatomy pre.said").nth(1).inner_text()
    press(link)
    where = dict(parse_qsl(link.get_attribute("href").removeprefix("#")))
    page.wait_for_selector("#episodes .candidate.now .token")
    assert where["step"] == str(inspector.spikes[0]["step"]) and in_view(page, "#episodes .candidate.now")
    tokens = page.locator("#episodes .candidate.now .token")
    words = re.sub(r"<\w+>| ", "", "".join(tokens.all_inner_texts()))  # without special tokens
    assert words.startswith(said.replace(" ", "")[:10])
    assert "share" in tokens.first.get_attribute("title")
    parts = "all => all.map((one) => one.style.getPropertyValue('--part'))"
    assert max(map(float, tokens.evaluate_all(parts))) == 1
    press(page.get_by_role("button", name="back to the sample"))
    assert page.evaluate("document.activeElement.textContent") == link.text_content()
    assert in_view(page, "#anatomy .into a")
    assert page.url.endswith(link.get_attribute("href"))
    page.set_viewport_size({"width": 1280, "height": 720})


def test_the_switch_shows_the_same_batch_under_either_baseline(open_page, spiky, tmp_path):
    inspector = lab.SpikeInspector(spiky)
    spike = inspector.spikes[0]
    page = open_page(inspector.to_html(tmp_path / "page.html"))
    assert page.locator("#anatomy .share").count() > 2 and "Without sample" in page.locator("#anatomy").inner_text()
    for label, name in (("global baseline", "global"), ("agent-wise baseline", "agent")):
        norms, judged = spike["baselines"][name], spike["judged"][name]
        page.get_by_role("button", name=label, exact=True).focus()
        page.keyboard.press("Enter")
        assert page.get_by_role("button", name=label, exact=True).get_attribute("aria-pressed") == "true"
        table = page.locator("#norms").inner_text()
        assert label in table
        for agent, norm in norms.items():
            shown = page.locator("#norms tr", has_text=agent or "whole policy").locator("td").nth(1).inner_text()
            assert float(shown) == pytest.approx(norm, rel=1e-3)
        rows = [cells.split("\t") for cells in page.locator("#judged tbody tr").all_inner_texts()]
        assert {row: float(advantage) for row, *_, advantage in rows} == pytest.approx(judged, abs=1e-4)
        by_share = sorted(judged, key=lambda row: -abs(spike["rows"][row]))
        assert [row for row, *_ in rows] == by_share
        # What would not follow the switch is not there: shares, tokens, the norm without a sample.
        assert page.locator("#anatomy details, #anatomy .token").count() == 0
        assert "Without sample" not in page.locator("#anatomy").inner_text()
    press(page.get_by_role("button", name="as it was trained"))
    assert "as it was trained" in page.locator("#norms").inner_text()
    assert page.locator("#anatomy .token").count() > 0 and page.locator("#judged").count() == 0


def test_a_run_without_a_watch_says_how_to_record_one(open_page, spiky, tmp_path):
    page = open_page(lab.SpikeInspector(lab.load_run(spiky).stats).to_html(tmp_path / "page.html"))
    assert "watch=SpikeWatch()" in page.locator("#anatomy").inner_text()
    assert page.locator("path.curve").count() == 3
    stats = lab.load_run(spiky).stats
    press(page.get_by_text("The numbers behind this chart"))
    shown = page.locator("#spikes tbody tr").all_inner_texts()
    norms = [float(row.split("\t")[3]) for row in shown if row.startswith("shared: doer")]
    assert norms == pytest.approx(stats.loc[stats["agent"] == "doer", "grad_norm"].tolist(), rel=1e-3)
    assert len(shown) == len(stats) + len(stats) / 2 and page.locator("svg.chart line").count() > 2


def test_all_bars_of_an_anatomy_have_one_scale(shown):
    page, _ = shown
    bars = page.locator("#anatomy .node > summary").evaluate_all(
        "all => all.map((one) => [parseFloat(one.querySelector('.part').textContent.replace('−', '-')),"
        " parseFloat(one.querySelector('.share').style.width)])"
    )
    longest = max(abs(part) for part, _ in bars)
    scale = max(width for _, width in bars) / longest
    assert longest > 1 and all(width == pytest.approx(abs(part) * scale, abs=0.2) for part, width in bars)


def test_the_page_prints_without_its_controls_and_uncut(open_page, spiky, tmp_path):
    page = open_page(lab.SpikeInspector(spiky).to_html(tmp_path / "page.html"))
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 703, "height": 1000})  # what A4 leaves between margins of 12 mm
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert page.locator("svg.chart").is_visible() and page.locator("#anatomy .token").first.is_visible()
    assert page.locator("button:visible").all_inner_texts() == page.locator(".legend button").all_inner_texts()
    style = "one => [getComputedStyle(one).overflowY, getComputedStyle(one).printColorAdjust]"
    assert page.locator("#anatomy .strip").first.evaluate(style) == ["visible", "exact"]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
