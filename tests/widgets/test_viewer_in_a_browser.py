"""The RolloutViewer's page in headless Chromium: the index, the moves, the address, the marks."""

from itertools import product

import pandas as pd
import pytest
from filter_cases import CASES, EPISODES

import mas_lab as lab

pytestmark = pytest.mark.browser


def told(step, task, copy):
    """An episode of three nodes: of the asker's three candidates two are alike, and the first of these was kept."""
    episode, is_right = f"{task}#{copy}", copy == 0 or step == 2
    said = [("asker", 0, 0, "go left", -1.0), ("asker", 0, 1, "go right", 0.5), ("asker", 0, 2, "go right", 0.5),
            ("doer", 0, 0, "done", 1.5 if is_right else -0.5 - step), ("asker", 1, 0, "stop here", 0.0)]  # fmt: skip
    for agent, turn, candidate, text, advantage in said:
        depth = 2 * turn + (agent == "doer")
        yield {
            "step": step, "task": task, "episode": episode, "node": f"{episode}/{depth}", "depth": depth,
            "parent": ["", f"{episode}/0.1", f"{episode}/1.0"][depth], "action": f"{episode}/{depth}.{candidate}",
            "agent": agent, "turn": turn, "candidate": candidate, "kept": len(text) == 9 or candidate == (depth == 0),
            "prompt": f"{agent} of {task}", "completion": text, "completion_ids": [5, 6],
            "logprobs": [-0.5, -2.0 - copy], "entropies": [0.1, 0.2],
            "advantage": advantage, "credit": advantage, "team_reward": float(is_right),
            "local_reward": 0.0, "group": f"{task} {agent} {turn}", "success": is_right, "finish": "eos", "valid": True,
        }  # fmt: skip


@pytest.fixture(scope="module")
def turns():
    played = product(range(3), ("maze-a", "maze-b"), (0, 1))
    return pd.DataFrame([row for one in played for row in told(*one)])


@pytest.fixture
def opened(open_page, turns, tmp_path):
    """The page of `turns`, at an address if one is given."""

    def at(fragment=""):
        path = lab.RolloutViewer(turns).to_html(tmp_path / "page.html")
        page = open_page(path)
        page.set_default_timeout(20_000)
        if fragment:
            page.goto(path.as_uri() + fragment)
            page.reload()
        return page

    return at


def rows(page):
    """(outcome, step, task) of every row of the index."""
    cells = page.locator(".rows tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].slice(0, 3).map((cell) => cell.textContent))"
    )
    return [tuple(row) for row in cells]


def shown(page):
    """What the address says of the page: run, step, episode, node, candidate."""
    return page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.slice(1)))")


def keys(page, *pressed):
    """The address after each key."""
    found = []
    for key in pressed:
        page.keyboard.press(key)
        page.wait_for_timeout(20)
        found.append(shown(page))
    return found


def test_the_index_is_sorted_and_filtered(opened, turns):
    page = opened()
    told, viewer = page.locator("p.verdict"), page.locator(".viewer").bounding_box()
    above = told.bounding_box()
    assert above["y"] + above["height"] <= viewer["y"] and told.evaluate("x => x.scrollWidth <= x.clientWidth")
    index = lab.RolloutViewer(turns).index
    ticks = index["success"].map({True: "✓", False: "✗"})
    assert rows(page) == list(zip(ticks, index["step"].astype(str), index["episode"].str[5:], strict=True))
    assert page.evaluate("document.activeElement === document.body"), "a page in a notebook takes the focus"
    for order in ("ascending", "descending"):
        page.get_by_role("button", name="step", exact=True).click()
        assert [step for _, step, _ in rows(page)] == sorted(index["step"].astype(str), reverse=order == "descending")
        assert page.locator(f"th[aria-sort={order}]").inner_text() == "step"
    page.get_by_role("button", name="advantage", exact=True).click()
    sizes = [abs(float(one.replace("−", "-"))) for one in page.locator(".leaning").all_inner_texts()]
    assert sizes == sorted(index["advantage"].round(2).abs(), reverse=True)
    page.locator(".filter").fill("failed")
    page.locator(".count", has_text="of 12").wait_for()
    assert {tick for tick, *_ in rows(page)} == {"✗"}
    assert page.locator(".count").inner_text() == f"{(~index['success']).sum()} of 12 episodes"
    page.locator(".filter").fill("nobody said this")
    page.get_by_role("button", name="Clear the filter").click()
    assert len(rows(page)) == 12


FOUND = """([cases, episodes]) => cases.map(([line, _]) => {
  const terms = parse(line);
  const has = (row) => matches(terms, { row, marked: () => row.marked,
    text: () => [row.task, row.episode, ...row.texts].join("\\0").toLowerCase() });
  return [line, episodes.flatMap((row, place) => (has(row) ? [place] : []))];
})"""


def test_what_a_line_finds(opened):
    assert list(map(tuple, opened().evaluate(FOUND, [CASES, EPISODES]))) == CASES


def test_each_key_moves_and_the_address_follows(opened):
    page = opened("#step=1&episode=maze-a%230")
    start = shown(page)
    assert start == {"run": "0", "step": "1", "episode": "maze-a#0", "node": "maze-a#0/0", "candidate": "1"}
    assert sum(one.is_visible() for one in page.locator(".index, .head").locator("button, input, summary").all()) <= 11
    page.get_by_text("more", exact=True).click()
    assert page.locator(".move .where").all_inner_texts() == ["1 of 3", "1 of 2", "1 of 2", "2 of 6"]
    path = keys(page, "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert [one["node"][-1] for one in path] == ["1", "2", "2", "1"]
    assert [one["node"][-1] for one in keys(page, "ArrowLeft", "t", "T")] == ["0", "2", "0"]
    assert [one["candidate"] for one in keys(page, "c", "c", "C")] == ["0", "0", "1"]
    # The group goes on past what stands on the same card, into the other episode of the task.
    moved = keys(page, "g", "g", "G", "G")
    assert [(one["episode"], one["candidate"]) for one in moved] == [
        ("maze-a#1", "0"), ("maze-a#1", "1"), ("maze-a#1", "0"), ("maze-a#0", "2")]  # fmt: skip
    assert page.locator(".candidate.now .alike").inner_text() == "×2"
    [before] = keys(page, "k")
    assert keys(page, "j", "k")[1]["episode"] == before["episode"]
    [beside] = keys(page, "s")
    assert page.locator(".column").count() == 2 and "episode=maze" in beside["beside"]
    choice = page.get_by_label("Beside it")
    assert choice.locator("option").count() == 5  # the same task elsewhere
    choice.select_option(index=4)
    page.wait_for_timeout(20)
    assert shown(page)["beside"] != beside["beside"]
    assert "beside" not in keys(page, "Escape")[0] and page.locator(".column").count() == 1
    page.keyboard.press("?")
    assert page.locator("dialog[open] kbd").count() > 12
    assert keys(page, "j", "Escape")[0] == keys(page, "x")[0], "a key moves what a dialog covers"
    page.keyboard.press("/")
    page.keyboard.type("jfg")
    assert page.locator(".filter").input_value() == "jfg", "in the search, letters move nothing"


def test_a_link_opens_its_spot_and_a_reload_keeps_it(opened, turns):
    link = lab.RolloutViewer(turns).link(2, "maze-b#1", "maze-b#1/2")
    page = opened(link)
    for _ in range(2):
        assert shown(page)["node"] == "maze-b#1/2" and page.locator("article.now h3").inner_text() == "asker turn 1"
        assert page.locator("tr[aria-current]").count() == 1
        page.reload()
    page.evaluate("location.hash = '#step=9&episode=nobody'")
    page.get_by_text("Episode nobody of step 9 is not on this page.").wait_for()
    assert page.locator("article").count() == 3


def test_nodes_show_what_was_heard_said_and_kept(opened):
    page = opened("#step=0&episode=maze-a%231")
    assert page.locator("article").first.locator(".candidate strong").all_inner_texts() == ["✓ kept", "candidate 0"]
    assert page.locator(".overview .many").all_text_contents() == ["2"]  # the circle of the two that are alike
    assert page.locator(".overview .way.kept").count() == 2
    page.get_by_role("button", name="doer, turn 0").focus()
    assert page.locator("article.now h3").inner_text() == "asker turn 0"
    page.keyboard.press("Enter")
    assert page.locator("article.now h3").inner_text() == "doer turn 0"
    page.get_by_text("compared with").first.click()
    members = page.locator(".members li")
    members.first.wait_for()
    assert members.count() == 6 and page.locator(".members li.here").count() == 1
    assert members.first.inner_text().split("\n")[0] == "−1.00"
    members.first.get_by_role("link").click()
    page.locator(".named", has_text="maze-a#0").wait_for()
    # Tokens: those of the largest advantage stand open, shaded by what is chosen, and the legend says how.
    assert page.locator(".token").count() == 2
    parts = "all => all.map((one) => [one.style.getPropertyValue('--part'), one.classList.contains('below')])"
    assert page.locator(".token").evaluate_all(parts) == [["0.250", False], ["1.000", False]]
    assert page.locator(".legend").inner_text().split("\n")[:3] == ["tokens by surprise", "0", "2.00 nats"]
    page.get_by_text("more", exact=True).click()
    page.get_by_label("Shade tokens by").select_option("advantage")
    page.locator(".unfold").nth(1).click()
    assert page.locator(".token").evaluate_all(parts)[0] == ["0.667", True]
    page.get_by_text("team=team").first.wait_for()  # what turns these ids into text
    assert page.locator(".token").first.get_attribute("title").endswith("surprise 0.50, entropy 0.10, advantage −1.00")


def test_marks_and_notes_are_kept_and_exported(opened):
    page = opened("#step=0&episode=maze-a%231")
    page.get_by_text("more", exact=True).click()
    assert page.get_by_role("button", name="export").is_disabled()
    page.keyboard.press("m")
    page.keyboard.press("j")
    page.keyboard.press("n")
    page.keyboard.type('=1+1, said "so"')
    page.keyboard.press("Escape")
    page.reload()
    page.locator(".rows .star").nth(1).wait_for()
    assert page.locator(".rows .star").count() == 2
    page.locator(".filter").fill("marked")
    page.locator(".count", has_text="2 of 12").wait_for()
    page.get_by_text("more", exact=True).click()
    with page.expect_download() as saved:
        page.get_by_role("button", name="export 2 marks").click()
    lines = saved.value.path().read_text(encoding="utf-8").splitlines()
    assert lines[0] == "step,episode,task,node,note" and lines[1] == "0,maze-a#1,maze-a,maze-a#1/0,"
    assert lines[2].endswith(''',"'=1+1, said ""so"""''')


def test_a_chain_of_digits_shows_how_it_is_read_and_what_is_right(open_page, tmp_path):
    rows = {"episode": "e", "agent": "a", "turn": 0, "candidate": [0, 1, 2], "kept": [True, False, False]}
    said = ["5 2 answer 3", "7 4 answer 4", "hm"]
    rows = pd.DataFrame({**rows, "task": "t", "completion": said, "prompt": "user: tried 1 solve 3 + 4 * 2"})
    page = open_page(lab.RolloutViewer(rows).to_html(tmp_path / "page.html"))
    assert "each result modulo 10 (its last digit): 3 → 7 → 4" in page.locator(".given").inner_text()
    assert page.locator(".candidate .flag").all_inner_texts() == ["wrong, 4 is right"]


def test_hostile_texts_show_as_text(open_page, hostile, tmp_path):
    texts = list(hostile.values())
    rows = pd.DataFrame({"episode": "e", "agent": "a", "turn": 0, "candidate": range(len(texts)), "task": "t"})
    rows["kept"] = rows["candidate"] == 0
    rows["completion"] = rows["prompt"] = pd.Series(texts, dtype=object)
    page = open_page(lab.RolloutViewer(rows).to_html(tmp_path / "page.html"))
    said = page.locator(".candidate > pre.said").all_text_contents()
    assert said[0] == hostile["markup"] and len(said[list(hostile).index("long")]) == 100_000
    assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_scripts_the_dialogue_stands_there(browser, spiky, tmp_path):
    page, viewer = browser.new_context(java_script_enabled=False).new_page(), lab.RolloutViewer(spiky)
    page.goto(viewer.to_html(tmp_path / "rollouts.html").as_uri())
    turns = lab.load_run(spiky).turns
    said = turns.loc[(turns["episode"] == viewer.episodes[0]) & turns["kept"], "completion"]
    played = page.get_by_role("group", name="as it was played")
    assert played.locator("tbody tr:visible").count() == len(said)
    assert all(text in played.inner_text() for text in said)
    page.context.close()


def test_a_narrow_viewer_folds_its_index_and_prints_without_controls(opened):
    page = opened()
    page.set_viewport_size({"width": 390, "height": 800})
    index, lists = page.locator(".viewer .index"), page.get_by_role("button", name="all episodes")
    assert not index.is_visible() and page.locator(".viewer .named").is_visible()
    lists.click()
    assert index.is_visible() and lists.get_attribute("aria-expanded") == "true"
    page.emulate_media(media="print")
    assert not index.is_visible() and page.locator(".viewer pre.said").last.is_visible()
