"""What a kernel answers a RolloutViewer's page, asked without a browser (lines of its filter: with one)."""

import numpy as np
import pandas as pd
import pytest
from filter_cases import EPISODES

import mas_lab as lab
from mas_lab.runs.disk import read_arrow
from mas_lab.widgets.answers import Answers, Texts, connect, matching
from mas_lab.widgets.episodes import plain

INDEX = pd.DataFrame(EPISODES).astype({"success": "boolean"})
KINDS = {
    ("failed",): [0, 3], ("succeeded",): [1], ("invalid",): [1], ("truncated",): [0], ("lone",): [2], ("marked",): [0],
    ("agent", "stage 1"): [2, 3], ("agent", "plan"): [], ("task", "sums 1"): [2, 3], ("step", "", 12, 15): [1, 2],
    ("run", "", 1, 1): [2, 3], ("text", "walls"): [0, 1],
}  # fmt: skip


def found(*terms):
    def have(places, word):
        return np.array([any(word in text for text in EPISODES[place]["texts"]) for place in places], bool)

    return np.flatnonzero(matching(INDEX, terms, have, lambda: INDEX["marked"].to_numpy())).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_term_finds_its_episodes_and_negated_all_others(kind):
    term = (*kind, *("", 0, 0)[len(kind) - 1 :])
    others = [place for place in range(4) if place not in KINDS[kind]]
    assert found((*term, False)) == KINDS[kind] and found((*term, True)) == others
    assert found((*term, False), ("step", "", 0, 12, False)) == [place for place in KINDS[kind] if place < 2]


@pytest.fixture(scope="module")
def answers(spiky):
    return lab.RolloutViewer(spiky, limit_mb=0.001)._answers


def ask(answers, **question):
    return answers.answer({"id": 7, **question})


def window(answers, *terms, sort="telling", descending=True, start=0, count=100):
    """The answer about the rows with terms: kinds, or words to find."""
    given = [{"kind": term} if term in ("failed", "marked") else {"kind": "text", "value": term} for term in terms]
    told = {"ask": "index", "sort": sort, "descending": descending, "filter": given, "from": start, "count": count}
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


@pytest.mark.parametrize("kept", [10**9, 0])
def test_a_word_is_searched_in_all_that_was_heard_and_said(spiky, monkeypatch, kept):
    monkeypatch.setattr(Texts, "KEPT", kept)  # 0: a run with more text than memory is read again each time
    turns = lab.load_run(spiky).turns
    turns = turns[~turns["probe"]]
    for answers in (lab.RolloutViewer(spiky)._answers, lab.RolloutViewer(turns)._answers):
        for word in ("w3", "asker now", "nobody says this"):
            has = turns["prompt"].str.contains(word) | turns["completion"].str.contains(word)
            expected = set(turns.loc[has, ["step", "episode"]].itertuples(index=False, name=None))
            rows = window(answers, word)["rows"]
            assert set(zip(rows["step"], rows["episode"], strict=True)) == expected
        assert bool(answers._texts._kept) == bool(kept)


def test_a_word_is_found_in_a_name_in_any_case_and_as_what_it_is_shown():
    heard = pd.Series(["x\ud800", None, "ÅÉ \u202e"], dtype=object)
    rows = pd.DataFrame({"episode": ["Eins", "f", "g"], "agent": "a", "completion": "", "prompt": heard})
    answers = lab.RolloutViewer(rows)._answers
    for word, expected in (("eins", ["Eins"]), ("åé", ["g"]), ("u+d800", ["Eins"]), ("\ud800", []), ("u+202e", ["g"])):
        assert window(answers, word)["rows"]["episode"] == expected, word


def test_only_steps_that_are_asked_for_are_read_and_each_once(spiky, monkeypatch):
    read = []

    def parts(paths, columns):
        read.append(len(paths))
        return read_arrow(paths, columns)

    answers = lab.RolloutViewer(spiky)._answers
    monkeypatch.setattr("mas_lab.widgets.source.read_arrow", parts)
    told = {"from": 0, "count": 9, "filter": [{"kind": "text", "value": "w3"}, {"kind": "step", "from": 1, "to": 2}]}
    few = ask(answers, ask="index", **told)
    assert read == [2] and set(few["rows"]["step"]) <= {1, 2}
    window(answers, "w3")
    assert window(answers, "w4")["total"] == 10 and read == [2, 5]


def test_a_column_that_holds_no_text_is_named(spiky, monkeypatch):
    answers = lab.RolloutViewer(spiky)._answers

    def changed(parts, columns):
        return [table.set_column(3, "prompt", [[1.0] * len(table)]) for table in read_arrow(parts, columns)]

    monkeypatch.setattr("mas_lab.widgets.source.read_arrow", changed)
    assert "column 'prompt' holds double, not text" in window(answers, "w3")["error"]


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
    {"ask": "index", "from": -1, "count": 1, "filter": []}, {"ask": "index", "from": 0, "count": 501, "filter": []},
    {"ask": "index", "from": 0, "count": True, "filter": []}, {"ask": "index", "from": 0.0, "count": 1, "filter": []},
    {"ask": "index", "from": 0, "count": 1, "filter": [{"kind": "text", "value": HUGE}]},
    {"ask": "index", "from": 0, "count": 1, "filter": None},
    {"ask": "index", "from": 0, "count": 1, "filter": [], "sort": "seat"},
    {"ask": "index", "from": 0, "count": 1, "filter": [], "sort": ["step"]},
    {"ask": "index", "from": 0, "count": 1, "filter": [{"kind": "seat"}]},
    {"ask": "index", "from": 0, "count": 1, "filter": [{"kind": ["text"]}]},
    {"ask": "index", "from": 0, "count": 1, "filter": [{"kind": "step", "from": "1"}]},
    {"ask": "index", "from": 0, "count": 1, "filter": [{"kind": "failed"}] * 101},
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
        assert window(answers, name.lower(), count=1)["found"]
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
    widget = connect("mas-lab-1", answers.answer)
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
