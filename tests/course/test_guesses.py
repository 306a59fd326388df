"""Guesses: fields after predictions, and explanations that wait for them. Also the drawing of the loop."""

import forms
import pytest
from ipywidgets import Text

import mas_lab as lab
from mas_lab.course import guesses


@pytest.fixture(autouse=True)
def none_yet(monkeypatch):
    monkeypatch.setattr(guesses, "GUESSES", {})
    monkeypatch.setattr(lab.course.exercises, "GUESSES", guesses.GUESSES)


def test_an_explanation_waits_for_the_guess_and_shows_it(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda *parts, **how: shown.extend(parts))
    told = guesses.sealed("*Explain:* it falls.")
    assert "falls" not in told
    lab.course.explain("03.b", told)
    assert not shown and capsys.readouterr().out.startswith("Write your guess (03.b) into the field above first.")
    lab.course.guess("03.b", "it rises")
    lab.course.explain("03.b", told)
    assert shown[1].data == "*Your guess:* it rises\n\n*Explain:* it falls."
    lab.course.progress("03")
    assert "  guess 03.b: it rises" in capsys.readouterr().out
    lab.course.guess("10.a", "none")
    lab.course.progress(10)
    assert "  guess 10.a: none" in capsys.readouterr().out


def test_a_field_keeps_what_is_written(monkeypatch):
    shown, fields = [], []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw: shown.append(bundle))
    monkeypatch.setattr("ipywidgets.Text", lambda *args, **how: fields.append(Text(*args, **how)) or fields[0])
    lab.course.guess("03.b")
    [field] = fields
    field.value = " 12 "
    assert guesses.GUESSES == {"03.b": "12"}
    assert shown[0]["application/vnd.jupyter.widget-view+json"]["model_id"] == field.model_id
    assert shown[0]["text/plain"] == 'Write lab.course.guess("03.b", "your guess") here.'


@pytest.mark.parametrize("master", forms.masters(), ids=lambda path: path.stem)
def test_every_prediction_has_a_field_and_explanations_that_wait(master):
    sources = ["".join(cell["source"]) for cell in forms.notebook(master, "release")["cells"]]
    asked = [place for place, source in enumerate(sources) if source.startswith("*Predict:*")]
    names = [f"{master.stem[:2]}.{letter}" for letter in "abcdefghijklm"[: len(asked)]]
    assert len(asked) >= 3 and asked == [place for place, source in enumerate(sources) if "*Predict" in source]
    assert [sources[place + 1] for place in asked] == [f'lab.course.guess("{name}")' for name in names]
    waits = [source.split('"')[3] for source in sources if "lab.course.explain(" in source]
    assert list(dict.fromkeys(waits)) == names and not [one for one in sources if "*Explain" in one]
    page = [cell["source"] for cell in forms.notebook(master, "page")["cells"]]
    assert not any("lab.course.guess" in "".join(source) for source in page)


def test_one_cell_is_marked():
    assert repr(lab.course.loop("group")) == "rollout → [group] → normalize → update → rollout …"
    assert "[" not in repr(lab.course.loop())
    drawn = lab.course.loop("update")._repr_html_()
    assert drawn.count("you are here") == 1 and "<b>4 update</b> <small>(you are here)" in drawn
    with pytest.raises(ValueError, match="loop: no cell is named 'loss'; the cells are rollout, group"):
        lab.course.loop("loss")
