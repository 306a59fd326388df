"""The page of spikes in headless Chromium: what a click opens, and what it says of a norm."""

import pandas as pd
import pytest
from browsing import press

import mas_lab as lab

pytestmark = pytest.mark.browser


def test_a_spike_opens_to_its_tokens_by_mouse_and_by_keyboard(open_page, spiky, tmp_path):
    inspector = lab.SpikeInspector(spiky)
    page = open_page(inspector.to_html(tmp_path / "page.html"))
    last = inspector.spikes[-1]
    spike = page.locator("circle.spike[role=button]").first
    spike.click()
    if page.evaluate("document.activeElement.id") != "anatomy":
        spike.click()  # Chromium may lose a click that follows a scroll at once
    assert page.evaluate("document.activeElement.id") == "anatomy"
    page.get_by_role("group", name="Spikes").get_by_role("button").last.focus()
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


def test_an_agent_with_weights_of_its_own_is_named_once(open_page, models, tmp_path):
    from small import RECIPE, SETTINGS, Relay, make_team

    watch = lab.SpikeWatch(warmup=2, window=4, threshold=0.01)
    reports = list(lab.train(Relay(), make_team("per_agent", models), RECIPE, 4, watch=watch, **SETTINGS))
    page = open_page(lab.SpikeInspector(reports, watch=watch).to_html(tmp_path / "page.html"))
    assert " ".join(page.locator("#spikes > .bar").first.inner_text().split()) == "asker doer Filled circles open."
    press(page.get_by_role("group", name="Spikes").get_by_role("button", name=", doer, norm").first)
    assert page.locator("#anatomy p").first.inner_text().startswith("Spiked as it was trained: doer; ")
    assert page.locator("#norms tbody th").all_inner_texts() == ["doer"]
    assert page.locator("#anatomy").inner_text().count("policy") == 0


def test_the_switch_shows_the_same_batch_under_either_baseline(open_page, spiky, tmp_path):
    inspector = lab.SpikeInspector(spiky)
    spike = inspector.spikes[0]
    page = open_page(inspector.to_html(tmp_path / "page.html"))
    assert page.locator("#anatomy .share").count() > 2 and "Without sample" in page.locator("#anatomy").inner_text()
    for label, norms, judged in (
        ("global baseline", spike["baselines"]["global"], spike["judged"]["global"]),
        ("agent-wise baseline", spike["baselines"]["agent"], spike["judged"]["agent"]),
    ):
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


def test_a_peak_taller_than_a_marked_spike_says_why_it_is_not_marked(open_page, tmp_path):
    norms = [9.0, 1.0, 1.1, 1.0, 1.1, 3.0, *[4.0] * 4, 4.2, 4.0]
    stats = pd.DataFrame({"step": range(12), "optimizer_step": 0, "policy": "p", "agent": "a", "grad_norm": norms,
                          "policy_norm": norms, "policy_norm_clipped": norms, "skipped": False})  # fmt: skip
    inspector = lab.SpikeInspector(stats, warmup=4, window=4)
    page = open_page(inspector.to_html(tmp_path / "page.html"))
    marked = [place for line in inspector.data()["lines"] for place in line["high"]]
    assert marked[0] == 5
    press(page.locator("#peaks summary"))
    told = page.locator("#peaks li").all_inner_texts()
    assert told[0] == "a: p at step 0" or "at step 0, norm 9, is not marked: only 0 norms came before it" in told[0]
    assert page.locator("circle.peak title").all_text_contents() == told
    assert all("robust standard deviations" in one for one in told[1:]) and len(told) > 1


def test_a_proxy_is_called_one(open_page, spiky, tmp_path):
    run, watch = lab.load_run(spiky), lab.SpikeWatch()
    state = run.watched()
    watch.load_state(state | {"spikes": [spike | {"exact": False} for spike in state["spikes"]]})
    page = open_page(lab.SpikeInspector(run, watch=watch).to_html(tmp_path / "page.html"))
    assert "Proxy, not shares of the gradient" in page.locator("#anatomy").inner_text()
    assert "by the proxy" in page.locator("#anatomy .token").first.get_attribute("aria-label")
    assert "exact and sum" not in page.locator("#anatomy").inner_text()


def test_a_run_without_a_watch_says_how_to_record_one(open_page, spiky, tmp_path):
    page = open_page(lab.SpikeInspector(lab.load_run(spiky).stats).to_html(tmp_path / "page.html"))
    assert "watch=SpikeWatch()" in page.locator("#anatomy").inner_text()
    assert page.locator("svg.chart path").count() == 3
    stats = lab.load_run(spiky).stats
    press(page.get_by_text("The numbers behind this chart"))
    shown = page.locator("#spikes tbody tr").all_inner_texts()
    norms = [float(row.split("\t")[3]) for row in shown if row.startswith("shared: doer")]
    assert norms == pytest.approx(stats.loc[stats["agent"] == "doer", "grad_norm"].tolist(), rel=1e-3)
    assert len(shown) == len(stats) + len(stats) / 2 and page.locator("svg.chart line").count() > 2
