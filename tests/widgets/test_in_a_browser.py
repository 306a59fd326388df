"""The standalone pages in headless Chromium: nothing a model wrote runs, and every step works by keyboard."""

import pandas as pd
import pytest

import mas_lab as lab

pytestmark = pytest.mark.browser


def test_hostile_texts_show_as_text(open_page, hostile, tmp_path):
    texts = list(hostile.values())
    rows = pd.DataFrame({"episode": "e", "agent": "a", "turn": 0, "candidate": range(len(texts)), "task": "t"})
    rows["kept"] = rows["candidate"] == 0
    rows["completion"] = rows["prompt"] = pd.Series(texts, dtype=object)
    page = open_page(lab.RolloutViewer(rows).to_html(tmp_path / "page.html"))
    shown = page.locator("section pre.said").all_text_contents()
    assert shown[0] == hostile["markup"] and len(shown[list(hostile).index("long")]) == 100_000
    assert page.evaluate("window.hacked") is None and page.locator("img, b").count() == 0


def focused(page):
    return page.evaluate("document.activeElement.textContent")


def press_until(page, key, text, most=20):
    for _ in range(most):
        page.keyboard.press(key)
        if text in focused(page)[:40]:
            return
    raise AssertionError(f"{most} times {key} does not reach {text!r}")


def press(element):
    """A click on the element itself: Chromium may lose one of the mouse that follows a scroll at once."""
    element.evaluate("element => element.click()")


def test_walking_episodes_by_keyboard(open_page, spiky, tmp_path):
    viewer = lab.RolloutViewer(spiky)
    page = open_page(viewer.to_html(tmp_path / "page.html"))
    names = [viewer.episodes[0], viewer.episodes[1]]
    assert names[0] in page.locator("h2").inner_text()
    assert page.evaluate("document.activeElement === document.body"), "a page in a notebook takes the focus"
    press_until(page, "Tab", "next")
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelector('h2').innerText.includes({names[1]!r})")
    assert "next" in focused(page)  # it stays where the reader was
    page.get_by_label("Training step").select_option("4")
    assert "Step 4" in page.locator("h2").inner_text()
    press(page.locator("summary", has_text="tokens").first)
    assert page.locator(".token").count() >= 1
    press(page.get_by_text("what followed").first)
    assert page.evaluate("document.activeElement.className") == "node"


def test_tokens_with_advantages_of_their_own_are_shaded_by_them(open_page, tmp_path):
    """Orange above 0, blue below, the more the larger; a row with one number keeps the shade of its surprise."""
    rows = pd.DataFrame({
        "episode": "e", "agent": "a", "turn": 0, "candidate": [0, 1], "task": "t", "kept": [True, False],
        "completion": "x y z", "prompt": "say", "completion_ids": [[5, 6, 7]] * 2, "logprobs": [[-0.0, -4.0, -0.0]] * 2,
        "advantage": pd.Series([[2.0, 0.0, -1.0], 0.5], dtype=object),
    })  # fmt: skip
    page = open_page(lab.RolloutViewer(rows).to_html(tmp_path / "page.html"))
    for found in page.locator("summary", has_text="3 tokens").all():
        press(found)
    page.wait_for_function("document.querySelectorAll('.token').length == 6")
    shades = page.locator(".token").evaluate_all("all => all.map((one) => one.style.background)")
    white, orange, half_blue = "rgb(255, 255, 255)", "rgb(230, 159, 0)", "rgb(171, 218, 244)"
    assert shades == [orange, white, half_blue, white, "rgb(255, 159, 0)", white]
    told = [one.get_attribute("title") for one in page.locator(".token").all()]
    assert told[0].endswith("log p 0, advantage 2") and told[2].endswith("advantage -1")
    assert all(one.endswith("advantage 0.5") for one in told[3:])
    assert page.get_by_text("advantage per token, -1 to 2").count() == 1


def test_the_reward_page_draws_its_figures(open_page, spiky, tmp_path):
    page = open_page(lab.RewardInspector(spiky).to_html(tmp_path / "page.html"))
    page.wait_for_selector(".js-plotly-plot .barlayer path")
    assert page.locator(".js-plotly-plot").count() == 3
    page.locator(".js-plotly-plot").first.hover()
    assert page.locator(".modebar-btn").count() > 0
    assert page.locator(".modebar-btn[data-title^='Share']").count() == 0


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


def test_the_dashboards_and_the_boards_pages_draw_their_figures(open_page, spiky, models, tmp_path):
    from small import RECIPE, SETTINGS, Relay, make_team

    trained = lab.LiveDashboard(Relay(), make_team("shared", models), RECIPE, 3, foreground=True, **SETTINGS)
    page = open_page(trained.to_html(tmp_path / "training.html"))
    page.wait_for_selector(".js-plotly-plot .scatterlayer path", state="attached")
    assert page.locator("figure[role=img]").get_attribute("aria-label").startswith("Success, return and gradient norms")
    page = open_page(lab.AblationBoard([spiky, spiky]).to_html(tmp_path / "board.html"))
    page.wait_for_selector(".js-plotly-plot .scatterlayer path", state="attached")
    press(page.get_by_text("The numbers behind this figure"))
    assert page.get_by_role("cell", name="at_grpo").first.is_visible()
    assert "They hold the same numbers." in page.locator("ul").inner_text()


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


def test_without_scripts_the_numbers_and_the_dialogue_stand_there(browser, spiky, tmp_path):
    page = browser.new_context(java_script_enabled=False).new_page()
    inspector, viewer = lab.SpikeInspector(spiky), lab.RolloutViewer(spiky)
    page.goto(inspector.to_html(tmp_path / "spikes.html").as_uri())
    assert page.locator("#spikes tbody tr:visible").count() == inspector.scores["spike"].sum() > 0
    page.goto(viewer.to_html(tmp_path / "rollouts.html").as_uri())
    turns = lab.load_run(spiky).turns
    said = turns.loc[(turns["episode"] == viewer.episodes[0]) & turns["kept"], "completion"]
    assert page.locator("#rollouts tbody tr:visible").count() == len(said)
    assert all(text in page.locator("#rollouts").inner_text() for text in said)
    page.context.close()


def test_a_notebook_run_by_nbconvert_shows_its_figures_offline(browser, spiky, tmp_path, monkeypatch):
    """As `doctor` says of a kernel without a front end."""
    nbclient = pytest.importorskip("nbclient")
    nbconvert, nbformat = pytest.importorskip("nbconvert"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PLOTLY_RENDERER", "plotly_mimetype+notebook")
    cell = nbformat.v4.new_code_cell(f"import mas_lab as lab\nlab.RewardInspector({str(spiky)!r})")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    body, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    (tmp_path / "page.html").write_text(body, encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector(".js-plotly-plot .barlayer path")
    assert page.get_by_role("cell", name="asker").count() > 0
    page.context.close()


CONTRAST = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    const color = element ? parse(getComputedStyle(element).backgroundColor) : [255, 255, 255];
    return color[3] === 0 ? behind(element.parentElement) : color;
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
