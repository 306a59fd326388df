"""What a class handed in: verdicts and runs are read, a broken file costs its own line, and nothing is obeyed."""

import json
import re
import runpy
import shutil

import answers
import execution
import forms
import grading
import handed_in
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from evil_names import EVIL, evil_zip

import mas_lab as lab
from mas_lab.course import exercises

V4 = nbformat.v4
main = runpy.run_path(str(forms.NOTEBOOKS / "tools" / "__main__.py"))["main"]
CHECKED = 'import mas_lab as lab\nlab.course.check("00.1", answer)'


def notebook(*cells):
    """(source, printed) each."""
    made = [V4.new_code_cell(source) for source, _ in cells]
    for cell, (_, printed) in zip(made, cells, strict=True):
        cell.outputs = [V4.new_output("stream", text=printed)] if printed else []
    return nbformat.writes(V4.new_notebook(cells=made))


def raised(*errors, check="lab.course.check('02.{}', answer)"):
    """A notebook whose cells raised these errors, each in or before the cell of its exercise."""
    made = []
    for number, error in enumerate(errors, start=1):
        for source in ("answer = work()", check.format(number)):
            made.append(V4.new_code_cell(source))
        made[-1 - number % 2].outputs = [V4.new_output("error", ename=error, evalue="no", traceback=[])]
    return nbformat.writes(V4.new_notebook(cells=made))


@pytest.fixture
def folder(tmp_path):
    """Puts a student's files into a class."""
    place = tmp_path / "class"

    def put(student, **files):
        (place / student).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = place / student / name.replace("__", ".")
            shutil.copy(content, path) if hasattr(content, "parts") else path.write_text(content, encoding="utf-8")
        return place

    return put


@pytest.fixture(scope="module")
def zipped(spiky, tmp_path_factory):
    return lab.export(spiky, tmp_path_factory.mktemp("exported") / "mine.zip")


def test_the_last_verdict_of_each_exercise_counts(folder):
    printed = (
        "○ 00.1 not yet: no\n● 00.1 right    (1 of 3 in this notebook)\n● 00.2 right: yes\n○ 00.2 not yet: changed\n"
    )
    place = folder("ada", **{"00_mine__ipynb": notebook((CHECKED, printed), ("print('● 00.3 rightly')", ""))})
    [ada] = handed_in.students(place)
    [held] = ada.notebooks
    assert (held.number, held.right, held.how) == (
        "00",
        {"00.1": True, "00.2": False, "00.3": None, "00.4": None},
        "stored outputs",
    )


@pytest.mark.slow
def test_a_starter_that_nobody_changed_is_untouched(folder):
    starter = next("".join(cell["source"]) for cell in forms.notebook(forms.masters()[0], "release")["cells"]
                   if 'check("00.3"' in "".join(cell["source"]))  # fmt: skip
    printed = "○ 00.3 not yet: 12 groups for 3 tasks\n"
    for source, right in ((starter, None), (starter.replace("\n", "  \n") + "\n", None),
                          (starter.replace('"turn"', '"node"'), False)):  # fmt: skip
        [student] = handed_in.students(folder("ada", **{"00__ipynb": notebook((source, printed))}))
        assert student.notebooks[0].right["00.3"] is right
    [student] = handed_in.students(folder("ada", **{"00__ipynb": notebook((starter, "● 00.3 right\n"))}))
    assert student.notebooks[0].right["00.3"] is True


def test_running_again_believes_the_kit_and_not_what_is_printed(folder):
    """A typed "right" does not count, a stored one neither; an answer that is right does, and an error costs a cell."""
    right = "import mas_lab as lab\nlab.course.check('02.4', [1, 0.8, 1, 0, 0, 0], [0, 1, 2])"
    typed = "print('● 02.2 right    (3 of 5 in this notebook)')"
    cells = [(right, ""), ("lab.course.check('02.5', 1 / 0)", ""), (typed, "● 02.3 right\n")]
    cells.append(("lab.course.check('02.3', 0.5)", "● 02.3 right\n"))
    place = folder("ada", **{"02__ipynb": notebook(*cells)})
    [[held]] = (student.notebooks for student in handed_in.students(place, run=True))
    told = {"02.1": None, "02.2": False, "02.3": False, "02.4": True, "02.5": handed_in.RAISED}
    assert held.right == told, "an error is not untouched"
    [[stored]] = (student.notebooks for student in handed_in.students(place))
    assert stored.right == {"02.1": None, "02.2": None, "02.3": True, "02.4": None, "02.5": None}
    assert (held.how, stored.how) == ("run again", "stored outputs")


FORGED = """
import pandas as pd
from mas_lab.course import compare, exercises
from mas_lab.course.checks import n02
exercises.of_notebook("02")
exercises._right |= set(exercises.EXERCISES)
for one in exercises.EXERCISES.values():
    object.__setattr__(one, "judge", lambda *answer: "forged")
compare.need = n02.need = n02.same_rows = lambda *given: None
"""
EMPTY = "lab.course.check('02.1', pd.DataFrame({'task': ['t'], 'agent': ['a'], 'group': ['g']}), [])"
THRIFTY = """
from dataclasses import dataclass

@dataclass(frozen=True)
class thrifty:
    cost: float = 0.1

    def __call__(self, turns):
        calls = turns.groupby(["episode", "agent"])["agent"].transform("size")
        return lab.episode_return()(turns) - self.cost * calls

lab.course.check("02.3", thrifty)
"""


@pytest.mark.slow
def test_a_notebook_that_forges_is_judged_by_its_answers(folder):
    """Its list of right answers, its judges and its data count for nothing; an answer that is hidden is wrong."""
    hidden = [
        f"lab.course.check('02.{n}', {', '.join(['object()'] * values)})" for n, values in ((2, 1), (4, 2), (5, 1))
    ]
    cells = ["import mas_lab as lab", THRIFTY, FORGED, EMPTY, *hidden, "print('● 02.4 right')"]
    place = folder("eve", **{"02__ipynb": notebook(*((cell, "") for cell in cells))})
    [[held]] = (student.notebooks for student in handed_in.students(place, run=True))
    right = {"02.1": False, "02.2": False, "02.3": True, "02.4": False, "02.5": False}
    assert held.right == right and held.own == ("02.3",)
    assert "02.3*" in grading._verdicts(held)[1] and "with * asks for code" in grading.AGAIN


MINE = """
import mas_lab as lab

class Shared:
    share = 1

    def __call__(self, turns):
        return self.share * lab.episode_return()(turns) / turns.groupby("episode")["episode"].transform("size")

class Half(Shared):
    share = 0.5
"""


@pytest.mark.slow
def test_code_of_a_student_is_judged_in_a_process_of_its_own():
    exec(MINE, scope := {"__name__": "__main__"})
    [one] = (one for one in exercises.of_notebook("09") if one.name == "09.3")
    for given, right in (("Shared", True), ("Half", False)):
        told = answers.pickled([scope[given]()])
        assert answers.judged_apart(one, told, (), execution.environment(), 300) is right


@pytest.mark.parametrize("value", [
    ([1, 2.5, None, "a", True], {"b": (1, {2})}), np.arange(6.0).reshape(2, 3), torch.ones(2, dtype=torch.int64),
    pd.DataFrame({"a": [1.0, np.nan], "agent": ["x", "y"], "ids": [[1, 2], [3]], "right": [True, False]}, index=[4, 7]),
    pd.Series([0.5, 1.5], ["a", "b"], name="c"), np.float32(0.5), ...,
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_an_answer_leaves_its_kernel_as_it_is(value):
    back = answers.decoded(json.loads(json.dumps(answers.encoded(value))))
    if isinstance(value, pd.DataFrame | pd.Series):
        (pd.testing.assert_frame_equal if value.ndim == 2 else pd.testing.assert_series_equal)(back, value)
    else:
        assert np.array_equal(back, value) if hasattr(value, "shape") else back == value
        assert isinstance(value, np.generic) or type(back) is type(value)


def test_a_loss_of_another_kernel_keeps_its_gradient():
    now, old = torch.tensor([-1.0, -0.5], requires_grad=True), torch.tensor([-0.9, -0.7])
    number = answers.encoded(lambda now, old: (now - old).exp() * now.sum())["values"]
    _, told, slopes = json.loads(answers.reply(number, answers.pickled([now, old])))
    for weight in torch.eye(2):
        here = (now - old).exp() * now.sum()
        there = answers.sloped(answers.decoded(told), slopes, [now, old])
        assert torch.equal(here, there)
        assert torch.equal(*(torch.autograd.grad(one @ weight, now)[0] for one in (here, there)))


@pytest.mark.parametrize(("content", "told"), [
    ("{", "it is no notebook: JSONDecodeError"),
    ("", "there is nothing in it: the file is empty"),
    (notebook(("", "")), "there is nothing in it: no cell has code"),
    pytest.param(" " * (2**20 + 1), "it has 1 MiB, and at most 1 are read", id="large"),
    ('{"cells": 3}', "it is no notebook: there are no cells in it"),
    ('{"cells": [{"cell_type": "code", "source": ["lab.course.check(\'99.1\')"]}]}', "has the number '99'"),
])  # fmt: skip
def test_a_notebook_that_is_none_says_why(folder, content, told, monkeypatch):
    monkeypatch.setattr(handed_in, "BYTES", 2**20)
    place = folder("eve", **{"work__ipynb": content})
    [[held]] = (student.notebooks for student in handed_in.students(place))
    assert told in held.trouble and held.right == {}


@pytest.mark.slow
def test_a_class_on_one_page(folder, zipped, spiky, tmp_path, capsys):
    stored = notebook((CHECKED, "● 00.1 right\n"))
    folder("ada", **{"00_quickstart__ipynb": stored, "mine__zip": zipped})
    folder("bob", **{"mine__zip": zipped, "cut__zip": "PK no zip"})
    place = folder("cy")
    (place / "lone.ipynb").write_text(stored, encoding="utf-8")
    (place / "ada" / "out").symlink_to(tmp_path)
    assert main(["grade", str(place), "--out", str(tmp_path / "grades.html")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "ada: 1 of 4 exercises right, 1 run"
    assert said[1] == "bob: 0 of 0 exercises right, 2 runs, 1 file that cannot be read"
    text = (tmp_path / "grades.html").read_text(encoding="utf-8")
    assert re.search(r"<tr><td>ada</td><td>1 right, 3 untouched</td><td>1</td><td></td></tr>", text)
    assert re.search(r"<tr><td>bob</td><td></td><td>1</td><td>1</td></tr>", text)
    assert "<td>● 00.1  – 00.2  – 00.3  – 00.4</td><td>stored outputs</td>" in text
    assert "<tr><td>00.1</td><td>● 2</td><td>○ 0</td><td>× 0</td><td>– 0</td></tr>" in text
    assert "<tr><td>00.2</td><td>● 0</td><td>○ 0</td><td>× 0</td><td>– 2</td></tr>" in text
    assert "the same tables as bob: mine.zip" in text and "the same tables as ada: mine.zip" in text
    assert re.search(r"<td>cut\.zip</td>(<td></td>){7}<td>cannot be read: [^<]*cut\.zip", text)
    steps = len(lab.load_run(spiky).stats["step"].unique())
    final = lab.AblationBoard(lab.load_run(spiky)).runs["final"].item()
    assert re.search(rf"<td>at_grpo</td><td>5</td><td>{steps}</td><td>[\d,]+</td><td></td><td>{final:.3f}</td>", text)
    assert "A student can forge them" in text and "train again: run = lab.load_run(zip)" in text
    assert "Nothing: neither a notebook nor a zip." in text and text.count('class="drawing"') == 1


def test_errors_are_named_and_an_empty_folder_is_nothing(folder, tmp_path, capsys):
    """One error is that of the exercise's own cell, the other of the cell before it."""
    folder("dan")
    place = folder("flo", **{"02__ipynb": raised("ValueError", "KeyError")})
    assert main(["grade", str(place), "--out", str(tmp_path / "grades.html")]) == 0
    errors = "2 raised an error (ValueError in 02.1, KeyError in 02.2)"
    assert capsys.readouterr().out.splitlines()[:2] == [
        "dan: nothing",
        f"flo: 0 of 5 exercises right, {errors}, 0 runs",
    ]
    text = (tmp_path / "grades.html").read_text(encoding="utf-8")
    assert f"<td>{errors}, 3 untouched</td>" in text and "<td>× 02.1  × 02.2  – 02.3" in text
    assert "<p>Who handed in nothing: dan.</p>" in text


def test_nobody_handed_in_anything(tmp_path, capsys):
    for place in (tmp_path / "none", tmp_path):
        assert main(["grade", str(place), "--out", str(tmp_path / "out" / "grades.html")]) == 1
    told = capsys.readouterr().err
    assert "there is no folder" in told and "holds neither folders of students" in told
    assert not (tmp_path / "out").exists()


def test_what_students_wrote_is_text(folder, spiky, tmp_path):
    printed = f"○ 00.1 not yet: {EVIL}\n"
    name = "<img src=x onerror=alert(1)>"
    place = folder(name, **{"00__ipynb": notebook((CHECKED, printed)), "evil__zip": evil_zip(spiky, tmp_path)})
    folder("bob", **{f"{name}__ipynb": json.dumps({"cells": EVIL})})
    text = grading.grade(place, tmp_path / "grades.html").read_text(encoding="utf-8")
    assert "<img" not in text and "evil.test" in text and "&lt;img src=x" in text
    assert text.count("<script>") == 1 + len(grading.FIGURES), "no script but the page's own"
