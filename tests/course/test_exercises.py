"""Each exercise tells the notebook's own solution from wrong answers, and says how far one is."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

import forms
import numpy as np
import pandas as pd
import pytest
import torch
from course.wrong_answers import ALSO_RIGHT, WRONG, known
from transformers import Qwen3Config

import mas_lab as lab
from mas_lab.course import exercises
from mas_lab.study.intervals import iqm

ALWAYS = {"np": np, "pd": pd, "torch": torch, "lab": lab, "random": random, "dataclass": dataclass, "iqm": iqm,
          "Qwen3Config": Qwen3Config, "display": lambda *_: None, "__name__": "__main__"}  # fmt: skip
SOURCES = [
    "".join(cell["source"]) + "\n"
    for path in forms.masters()
    for cell in forms.notebook(path, "solution")["cells"]
    if cell["cell_type"] == "code"
]
CELLS = {
    name: source[: source.index("\n", source.index(f'check("{name}"')) + 1]
    for source in SOURCES
    for name in re.findall(r'lab\.course\.check\("([\d.]+)"', source)
}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(exercises, "_right", set())
    monkeypatch.setattr(exercises, "_hinted", {})


@pytest.fixture(scope="module")
def scope():
    """What the cells of a notebook find; made once."""
    made = {}
    return lambda number: ALWAYS | (made[number] if number in made else made.setdefault(number, known(number)))


def asks_for(*candidates):
    """Return a plan that requests these candidates of the first call."""

    def plan(episode):
        at = episode.start()
        yield [lab.Generate(at, agent, one) for agent in episode.acting(at) for one in candidates]

    return plan


def test_every_exercise_has_two_wrong_answers_and_a_hint():
    checks = Path(exercises.__file__).with_name("checks")
    asked = [one for path in sorted(checks.glob("n[0-9]*.py")) for one in exercises.of_notebook(path.stem[1:])]
    assert [one.name for one in asked] == list(CELLS) == list(WRONG)
    for one in asked:
        assert len(WRONG[one.name]) >= 2 and one.hints, one.name


@pytest.mark.slow
@pytest.mark.parametrize("name", CELLS)
def test_the_solution_passes_and_wrong_answers_do_not(name, scope, capsys):
    right = [("", ""), *ALSO_RIGHT.get(name, [])]
    source = CELLS[name].replace("lab.load_policy(", "Model(")
    for old, new in (*right, *WRONG[name]):
        assert old in source
        exec(compile(source.replace(old, new), name, "exec"), scope(name[:2]))
        told = capsys.readouterr().out
        verdict = f"● {name} right" if (old, new) in right else f"○ {name} not yet: "
        assert verdict in told, (old, new, told)


def test_a_check_says_how_many_of_the_notebook_are_right(capsys):
    lab.course.check("00.1", [-0.79, -0.79, -0.79, 0.79, 1.58])
    assert capsys.readouterr().out.endswith("(1 of 4 in this notebook)\n")
    lab.course.progress("00")
    assert capsys.readouterr().out == "1 of 4:  ● 00.1  ○ 00.2  ○ 00.3  ○ 00.4\n"
    lab.course.check("00.1", [0] * 5)
    lab.course.progress("00")
    assert "0 of 4" in capsys.readouterr().out, "an answer that was right and is changed counts no more"


@pytest.mark.parametrize("form", [pd.Series, torch.tensor, tuple])
def test_numbers_may_come_as_an_array(form, capsys):
    lab.course.check("00.1", form([-0.79, -0.79, -0.79, 0.79, 1.58]))
    assert "● 00.1 right" in capsys.readouterr().out
    lab.course.check("00.1", form([-0.79, -0.79, -0.79, 0.79, 2.0]))
    assert "○ 00.1 not yet: row 4" in capsys.readouterr().out


def test_a_starter_with_dots_in_it_is_asked_for_an_answer(capsys):
    lab.course.check("07.3", ["114 agent_1", ...])
    assert "○ 07.3 not yet: put your answer in place of each `...`" in capsys.readouterr().out
    lab.course.check("08.4", {0.5: {"a": ...}})
    assert "gamma 0.5, joint action a: put your answer in place of the `...`" in capsys.readouterr().out


def test_hints_come_one_by_one_below_the_earlier_ones(capsys):
    one = exercises.of_notebook("00")[0]
    for place in range(len(one.hints)):
        lab.course.hint(one.name)
        told = [f"{one.name}, hint {n} of {len(one.hints)}: {text}\n" for n, text in enumerate(one.hints, start=1)]
        assert capsys.readouterr().out == "".join(told[: place + 1])
    lab.course.check(one.name, ...)
    assert "hint" not in capsys.readouterr().out


@pytest.mark.parametrize("name, answer, told", [
    ("03.3", [1], 'it takes 2 values and got 1: lab.course.check("03.3", candidates, answer)'),
    ("00.1", [], 'it takes 1 value and got 0: lab.course.check("00.1", advantages)'),
    ("00.1", [[-0.7071] * 5], "row 0, credit 0.2: -0.7071; you divide by n - 1; divide by n (pandas: `ddof=0`)"),
    ("00.1", [[-0.2] * 5], "row 0, credit 0.2: -0.2; you subtract the mean, but do not divide"),
    ("00.1", [[0.2] * 5], "row 0, credit 0.2: 0.2; you give the credit itself; subtract the mean"),
    ("00.1", [[-0.6] * 5], "row 0, credit 0.2: -0.6 is too close to 0"),
    ("00.2", [pd.DataFrame({"agent": ["executor"], "kept": [False]}), pd.Series([1])],
     "the count: give one number, not a Series of 1"),
    ("00.2", [pd.DataFrame({"agent": ["executor"], "kept": [False]}), None], "the count: give one number, not None"),
    ("00.2", [pd.DataFrame({"agent": ["executor"], "kept": [False]}), np.nan], "the count: NaN, from 0 / 0 or"),
    ("03.1", [lambda turns: 0.5], "your advantage is a float; give 39 numbers"),
    ("03.2", [lambda turns, agent: turns["credit"]], "task t0, verifier: give one number, not a Series of 11"),
    ("07.1", [lambda *moments: None], "`<lambda>` returned nothing"),
    ("09.3", [lambda turns: turns["team_reward"] / turns.groupby("episode")["episode"].transform("size")],
     "row 2 (task t2, episode t2e1, agent solver, turn 0): your credit is 0; you use the raw `team_reward` of the row"),
    ("03.4", [[1] * 8, 3], "the check raised TypeError: 'int' object is not iterable; your answer is of type list"),
    ("00.1", [[-0.9] * 5], "row 0, credit 0.2: -0.9 is too far from 0"),
    ("03.1", [lambda turns: turns], "your answer is a table; return a number per row, the advantage"),
    ("03.3", [pd.DataFrame({"agent": ["tester"], "b": 0.3, "sigma_k": 0.25, "n_k": 6}), pd.Series([True])],
     "give the list itself, not a mask of True and False"),
    ("09.2", [asks_for(1, 2)], "you ask for candidate 2; ask for 0 and 1"),
])  # fmt: skip
def test_a_wrong_answer_gets_a_sentence(name, answer, told, capsys):
    lab.course.check(name, *answer)
    assert capsys.readouterr().out.startswith(f"○ {name} not yet: {told}")


@pytest.mark.parametrize("name", ["00.3", "03.1", "03.2", "03.5", "05.1", "07.4"])
def test_a_deviation_that_divides_by_n_minus_1_is_told_so(name, scope, capsys):
    source = CELLS[name].replace("ddof=0", "ddof=1").replace(".var()", ".var(ddof=1)")
    source = source.replace("lab.normalize(", "lab.normalize(ddof=1, turns=")
    assert "ddof=1" in source
    exec(compile(source, name, "exec"), scope(name[:2]))
    assert "you divide by n - 1; divide by n (pandas: `ddof=0`)" in capsys.readouterr().out


@pytest.mark.slow
def test_another_credit_is_refused_where_only_the_groups_may_change(scope, capsys):
    source = CELLS["00.3"].replace("lab.mixed(alpha=1.0)", "lab.episode_return()")
    exec(compile(source, "00.3", "exec"), scope("00"))
    assert "○ 00.3 not yet: its credit is another one; keep `credit=lab.mixed(alpha=1.0)`" in capsys.readouterr().out


@pytest.mark.parametrize("name, told", [
    ("00.9", "no exercise '00.9'; notebook 00 has 00.1, 00.2"), (3.3, "no notebook"),
])  # fmt: skip
def test_an_unknown_exercise_is_named(name, told):
    with pytest.raises(exercises.ExerciseError, match=told):
        lab.course.check(name, 1)
    with pytest.raises(exercises.ExerciseError, match="no notebook has the number"):
        lab.course.progress(name)


def test_an_agent_that_is_named_twice_counts_once(capsys):
    judged = pd.DataFrame({"agent": ["a", "a", "b"], "right": False, "global": [0.5, 0.5, -0.5]})
    lab.course.check("05.2", judged, judged["agent"][:2])
    assert "● 05.2 right: 1 of 2 agents" in capsys.readouterr().out


@pytest.mark.parametrize("letter, steps, told", [
    ("F", 1, "no broken training 'F'; there are A, B"), ("C", 0, r"broken: steps=0 .*1 or more"),
])  # fmt: skip
def test_a_broken_training_has_a_letter_and_a_step(letter, steps, told):
    with pytest.raises(ValueError, match=told):
        lab.course.broken(letter, steps=steps)


def test_a_step_of_several_optimizer_steps_is_told_so(capsys):
    lab.course.check("00.4", lambda *_: pd.DataFrame({"agent": ["planner"] * 2, "grad_norm": 1.0}))
    assert "○ 00.4 not yet: your step makes several optimizer steps; make one" in capsys.readouterr().out
