"""Every notebook runs from top to bottom, in both forms, short (`SMOKE = True`): the solutions are right, and what
students open goes through with "not yet" wherever something is left to them. Full lengths are slow.

Elsewhere: notebooks under the hands of a reader (`widgets/test_jupyterlab`), 10 and 11 on their engines (`backends`).
"""

import json
import re
from importlib.util import find_spec

import execution
import forms
import nbformat
import pytest

from mas_lab.course import exercises
from mas_lab.paths import notebooks_dir

MASTERS = forms.masters()
MANY = "11_many_gpus_vllm"  # trains in three processes of its own: slow
OWN = "09_your_own_team"  # makes a pocket model
WITHOUT_TRL = pytest.mark.skipif(
    find_spec("trl") is None, reason="TRL teaches a pocket model; the install cell adds it"
)


def case(path, *marks):
    return pytest.param(path, marks=[*marks, *[WITHOUT_TRL] * (path.stem == OWN)], id=path.stem)


SHORT = [case(path, *[pytest.mark.slow] * (path.stem == MANY)) for path in MASTERS]


def parameters(notebook):
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell


def prepared(path, smoke: bool, recorded: bool = True, form: forms.Form | None = None):
    """A notebook with these parameters: the stored one, or a form of a master."""
    notebook = nbformat.reads(json.dumps(forms.notebook(path, form)), 4) if form else nbformat.read(path, as_version=4)
    assert re.search(r"^SMOKE = False", parameters(notebook).source, flags=re.M)
    return execution.with_parameters(notebook, {"SMOKE": smoke, "RECORDED": recorded})


def run(notebook):
    return execution.execute(notebook, "the notebook")


WIDGET = "application/vnd.jupyter.widget-view+json"
READABLE = {"text/html", "text/plain", "text/markdown", "image/png"}


def strays(notebook) -> list[str]:
    """What stands in a stored notebook that nobody can read: warnings, dead widgets, the bare form of an object."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                found += [output.text] if output.name == "stderr" else []
            elif set(output.data) == {"text/plain"}:
                plain = output.data["text/plain"]
                found += [plain] if plain == "None" or plain.startswith(("<", "Figure(", "[<", "(<")) else []
            elif WIDGET in output.data or not READABLE & set(output.data):
                found.append(str(list(output.data)))
    return found


def printed(notebook, name: str = "stdout") -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == name)


def verdicts(notebook) -> dict[str, bool]:
    return {name: mark == "●" for mark, name in re.findall(r"^([●○]) (\d\d\.\d+) ", printed(notebook), flags=re.M)}


@pytest.mark.parametrize("master", SHORT)
def test_solutions_are_right_and_nothing_is_loaded_that_could_be_made(master):
    notebook = run(prepared(master, smoke=True, recorded=False, form="solution"))
    assert verdicts(notebook) == {one.name: True for one in exercises.of_notebook(master.stem[:2])}, printed(notebook)
    assert strays(notebook) == []


@pytest.mark.slow
@pytest.mark.parametrize("master", [case(path) for path in MASTERS])
def test_what_students_open_goes_through_with_nothing_right_yet(master):
    notebook = run(prepared(notebooks_dir() / f"{master.stem}.ipynb", smoke=True))
    assert verdicts(notebook) == {one.name: False for one in exercises.of_notebook(master.stem[:2])}, printed(notebook)


FULL = [case(path, *[pytest.mark.full] * (path.stem != "00_quickstart")) for path in MASTERS if path.stem != MANY]


@pytest.mark.slow
@pytest.mark.parametrize("master", FULL)
def test_notebook_runs_at_full_length(master):
    notebook = run(prepared(master, smoke=False, form="solution"))
    assert all(verdicts(notebook).values())
    if master.stem == "00_quickstart":
        before, after = re.search(r": ([\d.]+) before, ([\d.]+) after", printed(notebook)).groups()
        assert float(after) >= float(before) + 0.2
