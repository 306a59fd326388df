"""Model text shows as text, whatever it is made of."""

import html
import json
import re

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_lab.widgets.document import document, frame, table_html, write
from mas_lab.widgets.text import escape_control_chars, for_script


def tags(page):
    return re.findall(r"<([a-z]+)", page)


def column(texts):
    """As objects: the strings of pandas 3 hold no lone surrogate."""
    return pd.DataFrame({"said": pd.Series(texts, dtype=object)})


def test_what_is_invisible_is_shown():
    assert escape_control_chars("a\x00\x1b[1m\x7f\n\tb") == "a␀␛[1m␡\n\tb"
    assert escape_control_chars("abc\u202egnp") == "abc⟨U+202E⟩gnp"
    assert escape_control_chars("half \ud800") == "half ⟨U+D800⟩"
    assert escape_control_chars("\u200b\ufeff\u2028") == "⟨U+200B⟩⟨U+FEFF⟩⟨U+2028⟩"


@settings(max_examples=30)
@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_no_text_leaves_its_script_element_or_its_table(text):
    held = for_script({"said": text})
    assert not set("<>&") & set(held) and held.isascii()
    assert json.loads(held) == {"said": text}
    page = table_html(column([text]), "caption")
    assert tags(page) == ["div", "table", "caption", "thead", "tr", "th", "tbody", "tr", "td"]
    table_html(column([text]), text).encode("utf-8")


def test_hostile_texts_stay_texts_in_a_page_and_in_a_frame(hostile, tmp_path):
    page = document("<b>title", table_html(column(list(hostile.values())), "x"), data=hostile)
    assert tags(page).count("script") == 2 and "img" not in tags(page)
    assert write(tmp_path / "deep" / "page.html", page).read_text(encoding="utf-8") == page
    framed = frame(page, "a page", 100)
    assert tags(framed) == ["iframe"]
    assert html.unescape(framed.partition("srcdoc='")[2].rpartition("'")[0]) == page
    assert 'sandbox="allow-scripts allow-downloads"' in framed


def test_tables_show_numbers_shortly_and_say_where_there_is_none():
    shown = table_html(pd.DataFrame({"a": [0.12345, float("nan")], "b": [1, 2]}), "x")
    assert "<td>0.123</td>" in shown and "<td>–</td>" in shown and "<td>2</td>" in shown
