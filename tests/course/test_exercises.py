"""Each exercise tells right answers from wrong ones, and says how far one is."""

import importlib
from pathlib import Path

import pytest

import mas_lab as lab
from mas_lab.course import exercises

NUMBERS = sorted(path.stem[-2:] for path in Path(__file__).parent.glob("wrong_[0-9][0-9].py"))
LISTS = {number: importlib.import_module(f"course.wrong_{number}") for number in NUMBERS}
ANSWERS = [
    pytest.param(name, answer, right, id=f"{name}-{'right' if right else 'wrong'}-{place}")
    for module in LISTS.values()
    for right, lists in ((True, module.RIGHT), (False, module.WRONG))
    for name, answers in lists.items()
    for place, answer in enumerate(answers)
]


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(exercises, "_right", set())
    monkeypatch.setattr(exercises, "_hinted", {})


def test_every_notebook_with_exercises_has_lists_of_answers():
    checks = Path(exercises.__file__).with_name("checks")
    assert sorted(path.stem[1:] for path in checks.glob("n[0-9][0-9].py")) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_every_exercise_has_two_wrong_answers_and_a_hint(number):
    asked = exercises.of_notebook(number)
    assert len(asked) >= 3 and [one.name for one in asked] == [f"{number}.{i + 1}" for i in range(len(asked))]
    for one in asked:
        assert len(LISTS[number].WRONG[one.name]) >= 2 and LISTS[number].RIGHT[one.name] and one.hints, one.name


@pytest.mark.parametrize("name, answer, right", ANSWERS)
def test_right_answers_pass_and_wrong_ones_do_not(name, answer, right, capsys):
    lab.course.check(name, *answer)
    told = capsys.readouterr().out
    assert told.startswith(f"● {name} right" if right else f"○ {name} not yet: "), told


def test_a_check_says_how_many_of_the_notebook_are_right(capsys):
    lab.course.check("00.1", [-0.79, -0.79, -0.79, 0.79, 1.58])
    assert capsys.readouterr().out.endswith("(1 of 3 in this notebook)\n")
    lab.course.progress("00")
    assert capsys.readouterr().out == "1 of 3:  ● 00.1  ○ 00.2  ○ 00.3\n"
    lab.course.check("00.1", [0] * 5)
    lab.course.progress("00")
    assert "0 of 3" in capsys.readouterr().out, "an answer that was right and is changed counts no more"


def test_hints_come_one_by_one_and_then_all(capsys):
    one = exercises.of_notebook("00")[0]
    for place, text in enumerate(one.hints):
        lab.course.hint(one.name)
        assert capsys.readouterr().out == f"{one.name}, hint {place + 1} of {len(one.hints)}: {text}\n"
    lab.course.check(one.name, ...)
    assert "hint" not in capsys.readouterr().out
    lab.course.hint(one.name)
    assert all(text in capsys.readouterr().out for text in one.hints[:1])


@pytest.mark.parametrize("name", ["00.9", "99.1", "three", "", 3])
def test_an_unknown_exercise_is_named(name):
    with pytest.raises(
        exercises.ExerciseError,
        match="no exercise '00.9'; notebook 00 has 00.1, 00.2" if name == "00.9" else "no notebook",
    ):
        lab.course.check(name, 1)
