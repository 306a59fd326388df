"""The site: every public name has its place, docstrings keep their words, dead links are found; built, it opens from a
folder, without a network, on a wide and on a narrow screen."""

import importlib
import json
import sys
from pathlib import Path

import nbformat
import pytest

import mas_lab as lab

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "docs" / "site"
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="docs/ is part of the checkout alone")


@pytest.fixture(scope="module")
def parts():
    """The modules of docs/site, by name."""
    sys.path.insert(0, str(SITE))
    yield importlib.import_module
    sys.path.remove(str(SITE))


def test_every_public_name_has_one_place(parts):
    pages = parts("public_names").pages()
    placed = [name for _, modules in pages.values() for names in modules.values() for name in names]
    assert sorted(placed) == sorted(lab.__all__)
    assert next(iter(pages["cells"][1])) == "mas_lab.cells.rollout", "the cells stand as they follow each other"


@pytest.mark.parametrize(("said", "told"), [
    (["One `x` of *many*, a_b_ | c."], ["One \\ ``x``\\  of \\*many\\*, a\\_b\\_ \\| c.", ""]),
    (["`swap`s by `tree(4)`."], ["\\ ``swap``\\ s by \\ :py:obj:`tree(4) <mas_lab.tree>`\\ .", ""]),
    (["Args:", "    x: An `a`,", "        b.", "    **y: C."], ["**Args**", "", "- \\ ``x``\\ : An \\ ``a``\\ , b.",
                                                                "- \\ ``**y``\\ : C.", ""]),
    (["As in:", "", "    f(*x)"], ["As in:", "", ".. code-block:: python", "", "    f(*x)", ""]),
])  # fmt: skip
def test_a_docstring_reads_as_it_was_written(parts, said, told):
    assert parts("docstrings").as_rst(said, {"tree"}) == told


def test_every_diagram_of_the_tasks_is_drawn(parts):
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    drawn = parts("diagrams").drawn(text)
    assert text.count("```mermaid") == drawn.count("<svg") > 5 and "mermaid" not in drawn


DEAD = {
    '<a href="gone.html">': "index.html: gone.html: there is no such file",
    '<a href="other.html#none">': "index.html: other.html#none: there is no such anchor",
    '<a href="sub">': "index.html: sub: is a folder, which a browser lists",
    '<a href="../up.html">': "index.html: ../up.html: leads out of the site",
    '<script src="https://a.example/x.js">': "index.html: asks another place for https://a.example/x.js",
    "<style>@import 'gone.css';</style>": "index.html: gone.css: there is no such file",
}


def test_dead_links_are_named_and_living_ones_pass(parts, tmp_path):
    good = (
        '<a href="other.html#top"><a href="other%20page.html"><a href="https://a.example/x"><p id="here">'
        '<link rel="canonical" href="https://b.example"><img src="data:image/png;base64,AA"><a href="#here">'
    )
    (tmp_path / "sub").mkdir()
    for name in ("other.html", "other page.html"):
        (tmp_path / name).write_text('<h1 id="top">', encoding="utf-8")
    for link, told in {"": None, **DEAD}.items():
        (tmp_path / "index.html").write_text(f"<html><body>{good}{link}", encoding="utf-8")
        assert parts("links").check(tmp_path)[0] == ([told] if told else [])


FIGURE = {"data": [{"y": [1, 2]}], "layout": {"title": {"text": "<b>rising</b>"}}}


@pytest.fixture(scope="module")
def site(parts, tmp_path_factory):
    """Built with no notebook run but the first, which is taken as it was run before."""
    for name in ("sphinx", "myst_nb", "furo", "math_core"):
        pytest.importorskip(name, reason="`make pages` brings it")
    build, execution, forms = parts("build"), *map(importlib.import_module, ("execution", "forms"))
    folder = tmp_path_factory.mktemp("site")
    first = forms.masters()[0]
    ran = execution.with_parameters(nbformat.reads(forms.text_of(first, "page"), 4), {"SMOKE": True})
    code = [cell for cell in ran.cells if cell.cell_type == "code"]
    output = nbformat.v4.new_output
    code[-1].outputs = [
        output("stream", text="10%\r100%\n"),
        output("display_data", data={"application/vnd.plotly.v1+json": FIGURE}),
        output("display_data", data={"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Widget()"}),
    ]
    (folder / "ran").mkdir()
    nbformat.write(ran, folder / "ran" / f"{first.stem}.ipynb")
    html = build.build(folder, [first.stem], short=True, kept=folder / "ran")
    return html, html / "notebooks" / f"{first.stem}.html"


@pytest.mark.slow
def test_no_link_of_the_site_is_dead_and_the_reference_holds_every_public_name(site, parts):
    wrong, outside = parts("links").check(site[0])
    assert not wrong, "\n".join(wrong)
    assert all(address.startswith("https://") for address in outside)
    text = "".join(path.read_text(encoding="utf-8") for path in (site[0] / "reference").glob("*.html"))
    for name in lab.__all__:
        assert f'id="mas_lab.{name}"' in text or f'id="module-mas_lab.{name}"' in text, name
    update = text[text.index('id="mas_lab.update"') :][:6000]
    assert "aggregate" in update and "Train every policy of" in update


@pytest.mark.slow
def test_a_notebook_stands_in_static_form_and_its_formulas_need_no_script(site):
    page = site[1].read_text(encoding="utf-8")
    assert "100%" in page and "10%\r" not in page
    assert 'aria-label=" rising "' in page and "plotly-cartesian.min.js" in page and "Widget()" not in page
    assert "those of a short run" in page
    framed = (site[0] / "docs" / "instruments.html").read_text(encoding="utf-8")
    for name in ("RewardInspector", "RolloutViewer", "SpikeInspector", "AblationBoard"):
        assert f"_static/live/{name}.html" in framed and (site[0] / "_static" / "live" / f"{name}.html").is_file()
    assert "Show code cell source" in page, "the install cell is folded"
    stored = json.loads((site[0] / "_static" / f"{site[1].stem}.ipynb").read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in stored["cells"]), "what is offered is what students open"
    pages = [path.read_text(encoding="utf-8") for path in (site[0] / "notebooks").glob("*.html")]
    assert any("<math" in page and "<mfrac>" in page for page in pages)
    assert not any('class="math ' in page or "MathJax" in page for page in pages)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_it_opens_from_a_folder_without_a_network(site, width, scheme, browser):
    """No request leaves, no script complains, and no page is wider than the screen."""
    troubles = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else troubles.append(asked.url))
    page.on("requestfailed", lambda asked: troubles.append(asked.url))
    for path in sorted(site[0].rglob("*.html")):
        page.goto(path.as_uri())
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            troubles.append(f"{path.name} is {wide} pixels wide")
    page.goto(site[1].as_uri())
    page.locator(".drawing").first.scroll_into_view_if_needed()  # a figure is drawn once it comes near
    page.wait_for_selector(".drawing .main-svg")
    page.goto((site[0] / "search.html").as_uri() + "?q=normalize")
    page.wait_for_selector("#search-results li a")
    page.close()
    assert [trouble for trouble in troubles if not trouble.startswith(("data:", "blob:"))] == []
