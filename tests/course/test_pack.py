"""The zip for a class: what is in it, what students are not given; the teacher's page names what there is."""

import re
import runpy
import zipfile
from pathlib import Path

import cheatsheet
import execution
import forms
import nbformat
import pack
import pytest

from mas_lab.recipes import RECIPES
from mas_lab.table import SCHEMA

MASTERS = {path.stem[:2]: path for path in forms.masters()}
TEXT = (forms.masters_dir() / "INSTRUCTOR.md").read_text(encoding="utf-8")


@pytest.fixture
def wheel(tmp_path):
    made = tmp_path / "mas_lab-0.0-py3-none-any.whl"
    made.write_bytes(b"a wheel")
    return made


def held(path: Path) -> set[str]:
    with zipfile.ZipFile(path) as archive:
        return {name.removeprefix(f"{pack.ROOT}/") for name in archive.namelist()}


def test_students_get_no_solution_and_no_page_for_teachers(wheel, tmp_path):
    made = pack.pack(tmp_path / "out" / "course.zip", students=True, wheel=wheel)
    names = held(made)
    assert {f"notebooks/{path.stem}.ipynb" for path in MASTERS.values()} | {"cheatsheet.html"} <= names
    assert f"notebooks/{wheel.name}" in names, "the first cell looks for the wheel beside the notebook"
    assert not [name for name in names if re.match(r"solutions|executed|INSTRUCTOR|tools", name)]
    with zipfile.ZipFile(made) as archive:
        stored = archive.read(f"{pack.ROOT}/notebooks/00_quickstart.ipynb").decode()
    assert stored == forms.text_of(MASTERS["00"], "release")


@pytest.mark.slow
def test_a_teacher_gets_all_of_it_and_its_pages_need_no_network(wheel, tmp_path):
    pytest.importorskip("math_core", reason="`make pages` brings it")
    kept, told = tmp_path / "ran", []
    kept.mkdir()
    for path in MASTERS.values():  # as if they had been run: the running itself is tested with the notebooks
        solution = execution.with_parameters(pack._solution(path), {"SMOKE": True})
        nbformat.write(solution, kept / f"{path.stem}-solution.ipynb")
    made = pack.pack(tmp_path / "course.zip", executed=kept, wheel=wheel, say=told.append)
    names = held(made)
    assert len(told) == len(MASTERS) and all("taken from" in line for line in told)
    for name in (path.stem for path in MASTERS.values()):
        assert {f"solutions/{name}.ipynb", f"executed/{name}.html"} <= names
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "unpacked")
    folder = tmp_path / "unpacked" / pack.ROOT
    assert "| 00 Quickstart: one table, four cells | Level: " in (folder / "INSTRUCTOR.md").read_text(encoding="utf-8")
    assert "tools/__main__.py" in names, "a teacher grades without a checkout"
    links = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "site" / "links.py"))
    assert links["check"](folder)[0] == []


def test_one_failing_notebook_costs_no_other(wheel, tmp_path, monkeypatch):
    pytest.importorskip("math_core", reason="`make pages` brings it")

    def executed(notebook, name, kept, say):
        if name.startswith("01"):
            raise execution.NotebookError("01_rollout-solution, cell 3: KeyError: 'x'")
        return notebook

    monkeypatch.setattr(execution, "executed", executed)
    with pytest.raises(
        pack.PackError, match=r"course\.zip is written, but 1 notebooks failed: 01_rollout-solution, cell 3"
    ):
        pack.pack(tmp_path / "course.zip", wheel=wheel, say=lambda text: None)
    with zipfile.ZipFile(tmp_path / "course.zip") as archive:
        pages = {
            name: archive.read(f"{pack.ROOT}/executed/{name}.html").decode() for name in ("00_quickstart", "01_rollout")
        }
    told = "This notebook was not executed to its end"
    assert told in pages["01_rollout"] and told not in pages["00_quickstart"]


def test_the_teachers_page_names_notebooks_and_headings_that_there_are():
    named = re.findall(r"\*\*(\d\d)\*\*((?:,? \*[A-Z][^*]+\*)*)", TEXT)
    assert {number for number, _ in named} == set(MASTERS)
    for number, headings in named:
        if number in MASTERS:
            there = re.findall(r"^# #+ (.+)$", MASTERS[number].read_text(encoding="utf-8"), re.MULTILINE)
            for heading in re.findall(r"\*([^*]+)\*", headings):
                assert heading in there, f"INSTRUCTOR.md: {number} has no heading {heading!r}"
    routes = [part for part in TEXT.split("\n## ") if part.startswith(("50 minutes", "3 hours"))]
    for part, minutes in zip(routes, (50, 180), strict=True):
        assert sum(map(int, re.findall(r"^\| (\d+) \|", part, re.MULTILINE))) == minutes


def test_the_cheat_sheet_says_every_recipe_and_column():
    page = cheatsheet.cheatsheet()
    for name in (*RECIPES, *SCHEMA):
        assert f"<code>{name}</code>" in page, name
    assert "http" not in page and "<script" not in page


@pytest.mark.slow
@pytest.mark.browser
def test_the_cheat_sheet_prints_on_one_page(tmp_path, browser):
    (tmp_path / "sheet.html").write_text(cheatsheet.cheatsheet(), encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "sheet.html").as_uri())
    page.set_viewport_size({"width": 725, "height": 1050})  # what A4 leaves between these margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 725, "nothing is cut at the paper's edge"
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
