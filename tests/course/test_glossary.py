"""The glossary says what words mean, in one place."""

import runpy
from pathlib import Path

import pytest
from forms import masters

import mas_lab as lab
from mas_lab.course.glossary import TERMS

ROOT = Path(__file__).parents[2]


def test_the_page_is_written_from_it():
    written = ROOT / "docs" / "glossary.md"
    if not written.exists():
        pytest.skip("not a checkout")
    made = runpy.run_path(written.with_suffix(".py"))
    assert written.read_text(encoding="utf-8") == made["page"](), "python docs/glossary.py"


def test_words_are_found_in_any_case_and_shown_as_text_and_as_a_table():
    shown = lab.course.glossary("Advantage", "flat group")
    assert list(shown.terms) == ["advantage", "flat group"]
    assert repr(shown).startswith("advantage: how much better") and "(arXiv 2402.03300)" in repr(shown)
    assert shown._repr_html_().count("<tr>") == 3
    assert len(lab.course.glossary().terms) == len(TERMS)


def test_a_word_that_is_not_there_is_named_with_those_like_it():
    with pytest.raises(KeyError, match="no 'advantages'; like it: advantage"):
        lab.course.glossary("advantages")


def test_words_stand_in_order_and_none_is_longer_than_a_line_or_two():
    assert list(TERMS) == sorted(TERMS, key=str.lower)
    assert all(20 < len(meaning) < 200 and not meaning.endswith(".") for meaning, _ in TERMS.values())


def test_the_first_notebook_says_where_it_is():
    assert "lab.course.glossary()" in masters()[0].read_text(encoding="utf-8")
