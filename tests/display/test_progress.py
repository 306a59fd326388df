"""Progress bars: what an executed notebook keeps of them, and the front end in which they are drawn."""

import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from mas_lab.display import progress

SETUP = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from small import *
from mas_lab.display import progress
from mas_lab.display.progress import no_bars, progress_bar
progress.DELAY = 0.0
env, team = Relay(), make_team("shared", Path({models!r}))
tasks = env.tasks(2, "train", seed=0)
"""
TRAIN = """
lab.rollout(env, team, tasks)
for report in lab.train(env, team, RECIPE, 3, score_every=1, **SETTINGS):
    lab.rollout(env, team, tasks)
lab.rollout(env, team, tasks)
print("all", "done")
"""
BEGUN = """
training = lab.train(env, team, RECIPE, 3, **SETTINGS)
report = next(training)
"""
STEP = "report = next(training)"
BARS = """
training.close()
with progress_bar(3, "reading <b>", "file", even=True) as bar:
    bar.update(3)
with no_bars(), progress_bar(1, "hidden", "file") as hidden:
    hidden.update()
"""
QUICK = """
progress.DELAY = 60.0
reports = list(lab.train(env, team, RECIPE, 1, **SETTINGS))
1 + 1
"""
CELLS = {"setup": SETUP, "train": TRAIN, "begun": BEGUN, "step": STEP, "bars": BARS, "quick": QUICK}


@pytest.fixture(scope="module")
def executed(models, tmp_path_factory):
    """Return the outputs of each cell as they are stored."""
    sources = [SETUP.format(tests=str(Path(__file__).parents[1]), models=str(models)), *list(CELLS.values())[1:]]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path_factory.mktemp("notebook")))
    return {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def lines(outputs) -> list[str]:
    [output] = outputs
    assert list(output.data) == ["text/plain"], "a stored notebook would show a dead bar"
    return output.data["text/plain"].split("\n")


@pytest.mark.slow
def test_a_training_leaves_one_line_that_covers_its_rollouts(executed):
    *drawn, verdict, printed = executed["train"]
    assert printed.text == "all done\n" and verdict.text.endswith(", seed 5: Nothing stands out.\n")
    rollout, trained = lines(drawn)
    assert re.fullmatch(r"rollout: 100%\|█+\| 2/2 episode \[00:\d\d\]", rollout)
    assert re.fullmatch(
        r"\w+: 100%\|█+\| 3/3 step \[00:\d\d<00:00, [\d,]+ tokens, success \d\.\d\d to \d\.\d\d "
        r"\(held-out tasks\)\]", trained,
    )  # fmt: skip


@pytest.mark.slow
def test_a_training_is_drawn_in_the_cell_that_asks_for_its_step_and_a_quick_one_is_not(executed):
    for name, made in (("begun", 1), ("step", 2)):
        [line] = lines(executed[name])
        assert f"{made}/3 step" in line and " tokens" in line
    [line] = lines(executed["bars"])
    assert line.startswith("reading <b>: 100%|")
    verdict, result = executed["quick"]
    assert verdict.output_type == "stream" and result.data["text/plain"] == "2"


TRACES = {
    "terminal": ([], {}), "static": (["ipykernel.kernelapp"], {}),
    "jupyter": (["ipykernel.kernelapp"], {"JPY_SESSION_NAME": "a.ipynb"}),
    "vscode": (["ipykernel.kernelapp"], {"VSCODE_PID": "1"}), "colab": (["ipykernel.kernelapp", "google.colab"], {}),
    "kaggle": (["ipykernel.kernelapp"], {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}),
    "kaggle-batch": (["ipykernel.kernelapp"], {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}),
}  # fmt: skip


@pytest.mark.parametrize("expected", TRACES)
def test_the_front_end_follows_from_its_traces(monkeypatch, expected):
    modules, environment = TRACES[expected]
    for name in ("ipykernel.kernelapp", "google.colab"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("JPY_SESSION_NAME", "VSCODE_PID", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, sys)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert progress.front_end() == expected and set(TRACES) == set(progress.FRONT_ENDS)
