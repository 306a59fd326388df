"""What a kernel answers a RolloutViewer's page, asked without a browser (lines of its filter: with one)."""

import numpy as np
import pandas as pd
import pytest
from filter_cases import filtered

import mas_lab as lab
from mas_lab.runs.disk import read_arrow
from mas_lab.widgets.answers import Term, connect
from mas_lab.widgets.episodes import plain

KINDS = {
    ("failed",): [0, 3], ("succeeded",): [1], ("invalid",): [1], ("truncated",): [0], ("lone",): [2], ("marked",): [0],
    ("reinforced",): [3],
    ("agent", "stage 1"): [2, 3], ("agent", "plan"): [], ("task", "sums 1"): [2, 3], ("step", "", 12, 15): [1, 2],
    ("run", "", 1, 1): [2, 3], ("text", "walls"): [0, 1],
}  # fmt: skip


def found(*terms):
    names = ("kind", "value", "from", "to", "negated")
    return filtered([Term(**dict(zip(names, term, strict=True))) for term in terms])


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


def test_a_word_is_searched_in_all_that_was_heard_and_said(spiky):
    turns = lab.load_run(spiky).turns
    turns = turns[~turns["probe"]]
    for answers in (lab.RolloutViewer(spiky)._answers, lab.RolloutViewer(turns)._answers):
        for word in ("w3", "asker now", "nobody says this"):
            has = turns["prompt"].str.contains(word) | turns["completion"].str.contains(word)
            expected = set(turns.loc[has, ["step", "episode"]].itertuples(index=False, name=None))
            rows = window(answers, word)["rows"]
            assert set(zip(rows["step"], rows["episode"], strict=True)) == expected


def test_a_word_is_found_in_a_name_in_any_case_and_as_what_it_is_shown():
    heard = pd.Series(["x\ud800", None, "ÅÉ \u202e"], dtype=object)
    rows = pd.DataFrame({"episode": ["Eins", "f", "g"], "agent": "a", "completion": "", "prompt": heard})
    answers = lab.RolloutViewer(rows)._answers
    for word, expected in (("eins", ["Eins"]), ("åé", ["g"]), ("u+d800", ["Eins"]), ("u+202e", ["g"])):
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


def test_an_episode_and_a_group_are_those_of_the_page(answers, spiky):
    page = lab.RolloutViewer(spiky).data()
    for place, episode in enumerate(page["episodes"]):
        told = ask(answers, ask="episode", run=0, step=episode["step"], episode=episode["name"])
        assert told["episode"] == episode and page["index"]["episode"][place] == episode["name"]
        for name, members in told["groups"].items():
            one = ask(answers, ask="group", run=0, step=episode["step"], group=name.split("|", 2)[2])
            assert members == page["groups"][name] == one["members"]
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
    None, 3, [], "ask", {}, {"ask": None}, {"ask": "__class__"}, {"ask": ["index"]}, {"ask": "index", "from": -1},
    {"ask": "index", "count": 501}, {"ask": "index", "count": True}, {"ask": "index", "from": 0.0},
    {"ask": "index", "filter": [{"kind": "text", "value": HUGE}]}, {"ask": "index", "filter": None},
    {"ask": "index", "sort": "seat"}, {"ask": "index", "sort": ["step"]},
    {"ask": "index", "filter": [{"kind": "seat"}]},
    {"ask": "index", "filter": [{"kind": "step", "from": "1"}]},
    {"ask": "index", "filter": [{"kind": "failed"}] * 101},
    {"ask": "index", "filter": [{"kind": "text", "value": "\ud800"}]},
    {"ask": "episode", "run": 0, "step": 0, "episode": "nobody"},
    {"ask": "episode", "run": 1, "step": 0, "episode": "e"},
    {"ask": "episode", "step": "0", "episode": "e"}, {"ask": "episode", "step": 10**30, "episode": "e"},
    {"ask": "group", "step": 99, "group": "g"}, {"ask": "group", "run": 5, "step": 0}, {"ask": "group", "group": {}},
    {"ask": "marks", "marks": {}}, {"ask": "marks", "marks": [3]}, {"ask": "marks", "marks": [{}] * 10_001},
]  # fmt: skip


def test_what_is_no_question_gets_a_sentence(answers):
    for question in WRONG:
        told = answers.answer(question)
        assert list(told) == ["error"] and 10 < len(told["error"]) < 400, question
        if isinstance(question, dict):
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
