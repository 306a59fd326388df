"""What a stored notebook keeps of a training and of its bars: one line of what was done, and nothing that is dead."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
import sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from small import *
from mas_lab.display import cell_bars
from mas_lab.display.progress import no_bars, progress_bar
cell_bars.DELAY = 0.0
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
STEP = "report = next(training)"
ENDED = "training.close()"
BARS = """
with progress_bar(3, "reading <b>", "file", even=True) as bar:
    for number in range(3):
        time.sleep(0.3)
        bar.update()
with no_bars(), progress_bar(1, "hidden", "file") as hidden:
    hidden.update()
"""
QUICK = """
cell_bars.DELAY = 60.0
lab.rollout(env, team, tasks)
1 + 1
"""


@pytest.fixture(scope="module")
def cells(models, tmp_path_factory):
    """Outputs of the cells, as they are stored."""
    setup = SETUP.format(tests=str(Path(__file__).parent), models=str(models))
    begun = "training = lab.train(env, team, RECIPE, 3, **SETTINGS)\n" + STEP
    sources = [setup, TRAIN, begun, STEP, ENDED, BARS, QUICK]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    drawn = []
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    take = client.process_message

    def overheard(message, *rest):
        if message["msg_type"] in ("display_data", "update_display_data"):
            drawn.append(message["content"]["data"])
        return take(message, *rest)

    client.process_message = overheard
    client.execute(cwd=str(tmp_path_factory.mktemp("notebook")))
    setup, train, begun, step, ended, bars, quick = [cell.outputs for cell in notebook.cells]
    return {"train": train, "begun": begun, "step": step, "ended": ended, "bars": bars, "quick": quick, "drawn": drawn}


def test_a_training_leaves_one_line(cells):
    """Its own rollouts, and those of the loop's body, are part of it; those before and after it are told."""
    [line, printed] = cells["train"]
    assert printed.text == "all done\n" and list(line.data) == ["text/plain"]
    told = line.data["text/plain"]
    number = r"\d\.\d\d"
    assert re.fullmatch(
        rf"rollout: 4 episodes, \d+ s; (\w+): 3 steps, \d+ s, [\d,]+ tokens, success {number} to {number} "
        r"\(held-out tasks\)", told,
    )  # fmt: skip


def test_each_cell_tells_what_was_done_until_its_end(cells):
    [first], [second] = cells["begun"], cells["step"]
    assert re.search(r": 1 of 3 steps, \d+ s, [\d,]+ tokens", first.data["text/plain"])
    assert re.search(r": 2 of 3 steps, \d+ s, [\d,]+ tokens", second.data["text/plain"])
    assert list(second.data) == ["text/plain"], "closed by a later cell, it is a bar that moves no more"
    assert cells["ended"] == []


def test_a_bar_moves_and_leaves_its_line(cells):
    """What it is called is text."""
    [line] = cells["bars"]
    assert re.fullmatch(r"reading <b>: 3 files, \d s", line.data["text/plain"])
    moved = [data["text/html"] for data in cells["drawn"] if "reading" in data.get("text/html", "")]
    shown = [int(re.search(r'<progress value="(\d)" max="3"></progress> reading &lt;b&gt;', one)[1]) for one in moved]
    assert shown and shown == sorted(set(shown))
    assert any("left" in one for one in moved)


def test_what_ends_at_once_leaves_nothing(cells):
    [result] = cells["quick"]
    assert result.output_type == "execute_result" and result.data["text/plain"] == "2"


def test_no_widget_and_nothing_on_stderr(cells):
    outputs = [output for name, cell in cells.items() if name != "drawn" for output in cell]
    assert all(output.get("name") != "stderr" for output in outputs)
    assert not any("widget" in kind for data in cells["drawn"] for kind in data)
