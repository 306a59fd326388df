"""The glossary says what words mean, in one place; the pages of the glossary and of the course are up to date."""

import runpy
from pathlib import Path

import pytest

import mas_lab as lab
from mas_lab.course.glossary import TERMS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["course", "glossary"])
def test_a_page_of_the_docs_is_written_from_its_source(name):
    page = ROOT / "docs" / f"{name}.md"
    made = runpy.run_path(str(page.with_suffix(".py")))
    assert page.read_text(encoding="utf-8") == made["page"](), f"python docs/{name}.py"


def test_words_are_found_in_any_case_and_shown_as_text_and_as_a_table():
    shown = lab.course.glossary("Advantage", "flat group")
    assert list(shown.terms) == ["advantage", "flat group"]
    assert repr(shown).startswith("advantage: how much better") and "(arXiv 2402.03300)" in repr(shown)
    assert shown._repr_html_().count("<tr>") == 3
    assert len(lab.course.glossary().terms) == len(TERMS)


def test_a_word_that_is_not_there_is_named_with_those_like_it():
    with pytest.raises(KeyError, match="no 'advantages'; like it: advantage"):
        lab.course.glossary("advantages")


def test_words_stand_in_order():
    assert list(TERMS) == sorted(TERMS, key=str.lower)
