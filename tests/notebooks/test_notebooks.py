"""Every notebook runs from top to bottom once, short (`SMOKE = True`), and makes itself what it would load of recorded
runs (`RECORDED = True`). As stored, at full length, those run that a CPU is enough for.

Elsewhere: notebooks 00 and 05 under the hands of a reader (`widgets/test_jupyterlab`), 10 and 11 on their engines
(`backends`).
"""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from mas_lab.paths import notebooks_dir

NOTEBOOKS = sorted(notebooks_dir().glob("*.ipynb"))


def parameters(notebook):
    [cell] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    return cell


def prepared(path, smoke: bool, recorded: bool = True):
    """The notebook with these parameters."""
    notebook = nbformat.read(path, as_version=4)
    cell = parameters(notebook)
    assert re.search(r"^SMOKE = False", cell.source, flags=re.M)
    cell.source = re.sub(r"^SMOKE = False", f"SMOKE = {smoke}", cell.source, flags=re.M)
    cell.source = re.sub(r"^RECORDED = True", f"RECORDED = {recorded}", cell.source, flags=re.M)
    return notebook


def run(path, tmp_path, smoke: bool, recorded: bool = True):
    notebook = prepared(path, smoke, recorded)
    NotebookClient(notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    return notebook


def printed(notebook) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")


def test_there_are_notebooks():
    assert NOTEBOOKS


MANY = "11_many_gpus_vllm"  # trains in three processes of its own: slow


@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path.stem == MANY), id=path.stem) for path in NOTEBOOKS]
)
def test_notebook_runs_short(path, tmp_path):
    run(path, tmp_path, smoke=True, recorded=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["00_quickstart", "05_gradient_spikes"])
def test_notebook_runs_at_full_length(name, tmp_path):
    notebook = run(notebooks_dir() / f"{name}.ipynb", tmp_path, smoke=False)
    if name == "00_quickstart":
        before, after = re.search(r": ([\d.]+) before, ([\d.]+) after", printed(notebook)).groups()
        assert float(after) >= float(before) + 0.2
