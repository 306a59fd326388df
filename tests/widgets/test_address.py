"""Addresses of another page: one rule for every instrument that links to one."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

import mas_lab as lab
from mas_lab.widgets.address import page_address

RELATIVE = ["rollouts.html", "../pages/who said what.html", 'a"><b>.html', Path("pages") / "rollouts.html"]
WHOLE = ["https://a.b/c.html?run=3", "http://a.b", "file:/runs/c.html"]
NONE = ["javascript:alert(1)", "java\nscript:alert(1)", "data:text/html,x", "//a.b/c", "/a.html", "https:c.html",
        "a.html#b", "https://a.b/c#d", "a.html?b", "?b", "", ".\\a.html", "C:/a.html"]  # fmt: skip


@pytest.mark.parametrize("page", RELATIVE)
def test_a_relative_address_is_quoted(page):
    found = page_address(page, "Who")
    assert unquote(found) == f"./{Path(page).as_posix()}" and not set(found) & set(' "<>?#:')


@pytest.mark.parametrize("page", WHOLE)
def test_a_whole_one_is_taken_as_it_is(page):
    assert page_address(page, "Who") == page


@pytest.mark.parametrize("page", NONE)
def test_what_would_run_or_lead_astray_is_refused(page):
    with pytest.raises(ValueError, match=r"^Who: rollouts=.* is no address of a page; pass a file name"):
        page_address(page, "Who")


@pytest.mark.parametrize("kind", [lab.SpikeInspector, lab.RewardInspector])
def test_both_inspectors_go_by_it(spiky, tmp_path, kind):
    inspector, path = kind(spiky), tmp_path / "page.html"
    for page in NONE[:1] + NONE[-2:]:
        with pytest.raises(ValueError, match=rf"{kind.__name__}: rollouts={re.escape(repr(page))} is no address of"):
            inspector.to_html(path, rollouts=page)
    assert not path.exists()
    for page in ("who said what.html", WHOLE[0]):
        told = inspector.to_html(path, rollouts=page).read_text(encoding="utf-8")
        held = json.loads(told.partition('id="data">')[2].partition("</script>")[0] or "{}")
        found = set(re.findall('href="([^"#]*)#step=', told)) or {held["page"]}  # a script of the page writes its links
        assert found == {page_address(page, "")} and held.get("rollouts") is None
