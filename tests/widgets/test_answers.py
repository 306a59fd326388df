"""What a kernel answers a RolloutViewer's page, asked without a browser; and the filter, on cases and random tables."""

import numpy as np
import pandas as pd
import pyarrow
import pytest
from filter_cases import CASES, EPISODES
from hypothesis import given, settings
from hypothesis import strategies as st

import mas_lab as lab
from mas_lab.runs.disk import read_arrow
from mas_lab.widgets import bridge, texts
from mas_lab.widgets.answers import Answers
from mas_lab.widgets.filters import matching, parse
from mas_lab.widgets.index import plain
from mas_lab.widgets.text import escape_control_chars

INDEX = pd.DataFrame(EPISODES).astype({"success": "boolean"})
TEXTS = ["\n".join([one["task"], one["episode"], *one["texts"]]).lower() for one in EPISODES]


def found(line):
    def have(places, word):
        return np.array([word in TEXTS[place] for place in places], bool)

    return np.flatnonzero(matching(INDEX, line, have, lambda: INDEX["marked"].to_numpy())).tolist()


@pytest.mark.parametrize(("line", "expected"), CASES)
def test_a_line_finds(line, expected):
    assert found(line) == expected


WORDS = [line for line, _ in CASES if line.strip('- "') and line.count('"') % 2 == 0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=4))
def test_all_terms_of_a_line_must_hold(lines):
    expected = set(range(len(EPISODES))).intersection(*(found(line) for line in lines))
    assert found(" ".join(lines)) == sorted(expected)
    assert len(parse(" ".join(lines))) == sum(len(parse(line)) for line in lines)


@pytest.fixture(scope="module")
def answers(spiky):
    return lab.RolloutViewer(spiky, limit_mb=0.001)._answers


def ask(answers, **question):
    return answers.answer({"id": 7, **question})


def window(answers, line="", sort="telling", descending=True, start=0, count=100):
    told = {"ask": "index", "sort": sort, "descending": descending, "filter": line, "from": start, "count": count}
    return ask(answers, **told)


def test_the_index_is_answered_in_windows_however_it_is_sorted(answers):
    index = answers.index
    assert ask(answers, ask="hello") == {"id": 7, "hello": True, "total": 10}
    whole = window(answers)
    assert whole == {"id": 7, "rows": plain(index), "found": 10, "total": 10}
    assert window(answers, start=4, count=3)["rows"]["episode"] == index["episode"].tolist()[4:7]
    assert window(answers, start=100)["rows"]["episode"] == []
    for name in ("step", "tokens", "surprise", "advantage"):
        key = index[name].abs()
        rising, falling = (window(answers, sort=name, descending=down)["rows"][name] for down in (False, True))
        assert np.allclose(np.abs(rising), key.sort_values().round(4), atol=1e-4)
        assert np.allclose(np.abs(falling), key.sort_values(ascending=False).round(4), atol=1e-4)
    failed = window(answers, "failed")
    assert failed["found"] == int((~index["success"]).sum()) and not any(failed["rows"]["success"])


def test_a_word_is_searched_in_all_that_was_heard_and_said(answers, spiky, monkeypatch):
    turns = lab.load_run(spiky).turns
    turns = turns[~turns["probe"]]
    for word in ("w3", "asker now", "nobody says this"):
        has = turns["prompt"].str.contains(word) | turns["completion"].str.contains(word)
        expected = set(turns.loc[has, ["step", "episode"]].itertuples(index=False, name=None))
        rows = window(answers, f'"{word}"')["rows"]
        assert set(zip(rows["step"], rows["episode"], strict=True)) == expected
    monkeypatch.setattr(texts, "KEPT", 0)  # a run with more text than memory is read again each time
    again = lab.RolloutViewer(turns)._answers
    assert window(again, "w3")["rows"]["episode"] and not again._texts._kept
    assert set(window(again, "w3")["rows"]["episode"]) == set(window(answers, "w3")["rows"]["episode"])


LETTERS = st.text("aAkzZßẞİıΣσςKÅé語 .\n\t\x00\x1b\x7f\u202e\u2028\U0001f600", max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(LETTERS, min_size=1, max_size=6), LETTERS, st.booleans())
def test_a_word_is_found_where_python_finds_it_in_what_the_page_shows(said, word, is_dictionary):
    known, places = escape_control_chars(word).lower(), np.arange(len(said))
    expected = {place for place, text in enumerate(said) if known in escape_control_chars(text).lower()}
    in_file = pyarrow.chunked_array([said[:2], said[2:]], pyarrow.string())
    in_file = texts._as_text(in_file.dictionary_encode() if is_dictionary else in_file, "prompt", "a run")
    for values in (in_file, pd.Series(said), pd.Series(said, dtype=object), pd.Series(said, dtype="category")):
        assert set(texts._column(values, places).places_of(known.encode()).tolist()) == expected
    assert not len(texts._column(in_file, np.full(len(said), -1)).places_of(b""))  # of no episode in the index


def test_half_a_character_is_searched_for_and_shown_as_what_it_is():
    heard = pd.Series(["x\ud800", None], dtype=object)
    rows = pd.DataFrame({"episode": ["e", "f"], "agent": "a", "completion": "", "prompt": heard})
    answers = lab.RolloutViewer(rows)._answers
    assert window(answers, "U+D800")["rows"]["episode"] == ["e"] and window(answers, "\ud800")["found"] == 0


def test_only_steps_that_are_asked_for_are_read_and_each_once(spiky, monkeypatch):
    read, texts_of = [], texts._tables

    def tables(source, steps):
        read.append(list(steps))
        return texts_of(source, steps)

    monkeypatch.setattr(texts, "_tables", tables)
    monkeypatch.setattr(texts, "AT_ONCE", 2)
    answers = lab.RolloutViewer(spiky)._answers
    few = window(answers, "step:1-2 w3")["rows"]["episode"]
    assert read == [[1, 2]]
    every = window(answers, "w3")["rows"]
    assert read == [[1, 2], [0, 3], [4]] and {1, 2} <= set(every["step"])
    assert [name for name, step in zip(every["episode"], every["step"], strict=True) if step in (1, 2)] == few
    window(answers, "w4 -w3")
    assert len(read) == 3


def test_a_column_that_holds_no_text_is_named(spiky, monkeypatch):
    answers = lab.RolloutViewer(spiky)._answers

    def changed(parts, columns):
        return [table.set_column(3, "prompt", [[[1.0]] * len(table)]) for table in read_arrow(parts, columns)]

    monkeypatch.setattr(texts, "read_arrow", changed)
    assert "column 'prompt' holds list<item: double>, not text" in window(answers, "w3")["error"]


def test_an_episode_and_a_group_are_those_of_the_page(answers, spiky):
    page = lab.RolloutViewer(spiky).data()
    for place, episode in enumerate(page["episodes"]):
        told = ask(answers, ask="episode", run=0, step=episode["step"], episode=episode["name"])
        assert told["episode"] == episode and page["index"]["episode"][place] == episode["name"]
        for name, members in told["groups"].items():
            assert members == page["groups"][name]
            assert (
                ask(answers, ask="group", run=0, step=episode["step"], group=name.split("|", 2)[2])["members"]
                == members
            )
    assert ask(answers, ask="group", run=0, step=0, group="none")["members"] == []


def test_marks_are_held_and_found(spiky):
    viewer = lab.RolloutViewer(spiky)
    first, second = (viewer.index.iloc[place] for place in (3, 8))
    one = {"run": 0, "step": int(first["step"]), "episode": first["episode"], "task": "not its task", "node": None}
    other = {"step": int(second["step"]), "episode": second["episode"], "node": "n", "note": "=look()"}
    assert ask(viewer._answers, ask="marks", marks=[one, other]) == {"id": 7, "marked": 2}
    assert viewer.marks["task"].tolist() == [first["task"], second["task"]]
    assert viewer.marks["note"].tolist() == ["", "=look()"] and viewer.marks["node"].tolist() == ["", "n"]
    assert window(viewer._answers, "marked")["rows"]["episode"] == [first["episode"], second["episode"]]
    assert "no episode" in ask(viewer._answers, ask="marks", marks=[{"step": 0, "episode": "nobody"}])["error"]
    assert len(viewer.marks) == 2
    ask(viewer._answers, ask="marks", marks=[])
    assert viewer.marks.empty and window(viewer._answers, "marked")["found"] == 0


HUGE = "x" * 100_000
WRONG = [
    None, 3, [], "ask", {}, {"ask": None}, {"ask": "__class__"}, {"ask": ["index"]}, {"ask": "index"},
    {"ask": "index", "from": -1, "count": 1, "filter": ""}, {"ask": "index", "from": 0, "count": 501, "filter": ""},
    {"ask": "index", "from": 0, "count": True, "filter": ""}, {"ask": "index", "from": 0.0, "count": 1, "filter": ""},
    {"ask": "index", "from": 0, "count": 1, "filter": HUGE}, {"ask": "index", "from": 0, "count": 1, "filter": None},
    {"ask": "index", "from": 0, "count": 1, "filter": "", "sort": "seat"},
    {"ask": "index", "from": 0, "count": 1, "filter": "", "sort": ["step"]},
    {"ask": "index", "from": 0, "count": 1, "filter": "", "descending": "yes"},
    {"ask": "episode", "run": 0, "step": 0, "episode": "nobody"},
    {"ask": "episode", "run": 1, "step": 0, "episode": "e"},
    {"ask": "episode", "run": 0, "step": "0", "episode": "e"},
    {"ask": "episode", "run": 0, "step": 10**30, "episode": "e"},
    {"ask": "group", "run": 0, "step": 99, "group": "g"}, {"ask": "group", "run": 0, "step": 0, "group": {}},
    {"ask": "marks"}, {"ask": "marks", "marks": {}}, {"ask": "marks", "marks": [3]},
    {"ask": "marks", "marks": [{}] * 10_001},
]  # fmt: skip


@pytest.mark.parametrize("question", WRONG)
def test_what_is_no_question_gets_a_sentence(answers, question):
    told = answers.answer(question)
    assert list(told) == ["error"] and 10 < len(told["error"]) < 400
    if isinstance(question, dict):
        assert answers.answer({**question, "id": HUGE})["error"] == told["error"]
        assert list(answers.answer({**question, "id": 5})) == ["id", "error"]


def test_hostile_names_are_asked_for_as_they_are_shown(hostile):
    names = [name for key, name in hostile.items() if key not in ("long", "surrogate")]  # neither is in a file
    rows = pd.DataFrame({"episode": pd.Series(names, dtype=object), "agent": "a", "task": "t", "completion": "x"})
    viewer = lab.RolloutViewer(rows.assign(group="g"))
    answers = viewer._answers
    shown = window(answers)["rows"]["episode"]
    assert len(shown) == len(names) and "␛[31mred␛[0m␇" in shown
    for name in shown:
        assert ask(answers, ask="episode", step=0, episode=name)["episode"]["name"] == name
        assert window(answers, '"' + name.replace('"', "") + '"', count=1)["found"] >= ('"' not in name)
        assert lab.RolloutViewer(rows, at=viewer.link(0, name)).data()["at"] == viewer.link(0, name)
        assert ask(answers, ask="marks", marks=[{"step": 0, "episode": name, "note": name}])["marked"] == 1


def test_the_widget_carries_questions_and_leaves_nothing(monkeypatch, answers):
    shown, sent = [], []

    class Handle:
        def update(self, bundle, **how):
            shown.append(bundle)

    def display(bundle, **how):
        shown.append(bundle)
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    widget = bridge.connect("mas-lab-1", answers.answer)
    monkeypatch.setattr(type(widget), "send", lambda self, content: sent.append(content))
    assert widget._dom_classes == ("mas-lab-1",)
    assert "application/vnd.jupyter.widget-view+json" in shown[0] and shown[0]["text/html"] == ""
    for number in (1, 2):
        widget._handle_custom_msg({"id": number, "ask": "hello"}, [])
    assert sent == [{"id": number, "hello": True, "total": 10} for number in (1, 2)]
    assert shown[1:] == [{"text/plain": "", "text/html": ""}]
    widget.close()


def test_only_where_a_widget_lives_a_viewer_shows_one(monkeypatch, spiky):
    shown, connected = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **how: shown.append(bundle))
    monkeypatch.setattr("mas_lab.widgets.rollouts.connect", lambda name, answer: connected.append((name, answer)))
    viewer = lab.RolloutViewer(spiky)
    with pytest.raises(NotImplementedError):  # as IPython asks of who would rather be shown otherwise
        viewer._ipython_display_()
    monkeypatch.setattr("mas_lab.widgets.rollouts.front_end", lambda: "jupyter")
    viewer._ipython_display_()
    [bundle], [(name, answer)] = shown, connected
    assert '<iframe class="mas-lab" sandbox="allow-scripts allow-downloads"' in bundle["text/html"]
    assert f' name="{name}"' in bundle["text/html"] and answer({"ask": "hello"})["total"] == 10
    assert isinstance(viewer._answers, Answers)
