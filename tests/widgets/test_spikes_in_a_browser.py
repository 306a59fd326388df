"""The page of spikes in headless Chromium: what a click opens, and what it says of a norm."""

import re
from urllib.parse import parse_qsl

import pytest

import mas_lab as lab

pytestmark = pytest.mark.browser


def press(element):
    """A click on the element itself: Chromium may lose one of the mouse that follows a scroll at once."""
    element.evaluate("element => element.click()")


def over_a_mark(page):
    """Move the mouse to a spike's mark in the figure, wait for the text that appears, and return the place."""
    page.locator(".drawing").scroll_into_view_if_needed()
    mark = page.locator(".drawing .points path.point:not([d*='A'])").first
    mark.wait_for(state="attached")
    page.wait_for_timeout(300)  # a move that follows a scroll at once may be lost
    box = mark.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x + 9, y)
    page.mouse.move(x, y)
    page.locator(".hoverlayer .hovertext").first.wait_for()
    return x, y


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
    place = over_a_mark(page)
    told = page.locator(".hoverlayer .hovertext").first.text_content()
    own = inspector.scores[inspector.scores["spike"]].to_dict("records")
    assert any(f"norm {one['norm']:.4g}, {one['score']:.1f} times the usual norm" in told for one in own)
    page.mouse.click(*place)
    page.wait_for_function("document.activeElement.id === 'opened'")
    assert page.locator(".drawing .shapelayer path").count() == 1, "a line marks the open spike"
    page.get_by_role("group", name="Spikes, highest first").get_by_role("button").last.focus()
    page.keyboard.press("Enter")
    assert f"Step {last['step']}," in page.locator("#anatomy h2").inner_text()
    assert page.locator("#anatomy .token").count() >= 1  # the largest agent, group and sample stand open
    before = page.locator("#anatomy .token").count()
    page.locator("#judgement > details > summary").last.focus()
    page.keyboard.press("Enter")
    agent = page.locator("#judgement > details").last
    press(agent.locator("> details > summary").first)
    press(agent.locator("> details").first.locator("> details > summary").first)
    assert agent.locator(".token, p.quiet").count() >= 1
    assert page.locator("#anatomy .token").count() >= before


def in_view(page, selector):
    """Is the top of it on the screen?"""
    return page.evaluate(
        """selector => { const { top } = document.querySelector(selector).getBoundingClientRect();
        return top > -2 && top < innerHeight - 40; }""", selector)  # fmt: skip


def test_a_sample_opens_in_its_episode_below(shown):
    page, inspector = shown
    page.set_viewport_size({"width": 390, "height": 720})
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
    page.set_viewport_size({"width": 1280, "height": 720})


def test_the_switch_shows_the_same_batch_under_either_baseline(open_page, spiky, tmp_path):
    inspector = lab.SpikeInspector(spiky)
    spike = inspector.spikes[0]
    page = open_page(inspector.to_html(tmp_path / "page.html"))
    assert page.locator("#anatomy .share").count() > 2 and "Without sample" in page.locator("#anatomy").inner_text()
    for label, name in (("global baseline", "global"), ("agent-wise baseline", "agent")):
        norms, judged = spike["baselines"][name], spike["judged"][name]
        button = page.get_by_role("button", name=label, exact=True)
        button.focus()
        page.keyboard.press("Enter")
        assert button.get_attribute("aria-pressed") == "true" and label in page.locator("#norms").inner_text()
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
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert page.locator(".drawing").is_visible() and page.locator("#anatomy .token").first.is_visible()
    assert page.locator("button:visible:not(.modebar-btn)").count() == 0
    style = "one => [getComputedStyle(one).overflowY, getComputedStyle(one).printColorAdjust]"
    assert page.locator("#anatomy .strip").first.evaluate(style) == ["visible", "exact"]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
