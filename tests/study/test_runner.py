"""`lab.study`: every cell made once, gone on with after a stop, and nothing counted that was asked for otherwise.

Also the tests of `cell`.
"""

import json
import linecache
import shutil
from dataclasses import replace

import pandas as pd
import pytest
import yaml
from tiny_study import TINY

import __main__
import mas_lab as lab
from mas_lab.__main__ import main
from mas_lab.study.cell import RECORDS, run_of
from mas_lab.study.record import Recorded, read_record, ship
from mas_lab.train.record import code

pytestmark = pytest.mark.slow
SCORED = {"tasks": 2, "score_tasks": 3, "score_episodes": 1, "score_at": [100]}
QUIZ = {"name": "ladder", "n_agents": 3}
ASKED = TINY | {"settings": SCORED, "tasks": {"two": {}, "three": {"env": {"n_agents": 3}, "seeds": 1, "quiz": QUIZ}}}
CELLS = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return lab.study(ASKED, tmp_path_factory.mktemp("study") / "tiny", workers=1, keep="all")


def without_seconds(study):
    return study.table.drop(columns=["seconds", "run"])


def files(study):
    return {path: path.stat().st_mtime_ns for path in study.folder.glob("*/*") if path.is_file()}


def test_every_cell_is_made_to_its_budget_and_scored_on_the_way(made):
    """Arms of a seed are a pair: before training they score the same."""
    table = made.table
    assert (table["state"] == "made").all() and len(table) == CELLS and not made.failed and not made.apart
    assert (table["episodes"] == 32).all() and (table["steps"] == 2).all() and table["tokens"].gt(0).all()
    starts = table.pivot(index=["task", "seed"], columns="arm", values="start")
    assert (starts["global"] == starts["own"]).all()
    for _, own in made.curves.groupby(["task", "arm", "seed"]):
        reached = own["tokens"].to_numpy()
        assert reached[0] == 0 and own["episodes"].iloc[-1] == 32 and (reached[1:] >= 100).sum() >= 1
        assert own["step"].iloc[[0, -1]].tolist() == [0, 2]
    agents = made.agents.query("task == 'three' and arm == 'own' and window == 'start'")
    assert sorted(agents["agent"]) == ["stage_1", "stage_2", "stage_3"]
    assert agents["largest_norm"].ge(agents["median_norm"]).all() and {"signal", "peerless", "own_after"} <= set(agents)
    assert f"{CELLS} of {CELLS} trainings made" in repr(made)
    assert "two: held equal: 32 episodes; arms differ in recipe.by, recipe.once_per" in repr(made)
    board = lab.AblationBoard(made)
    assert set(board.table["recipe"]) == {"global", "own"} and set(board.table["env"]) == {"two", "three"}
    assert (board.runs["budget"] == 32).all() and "success on held-out tasks, up to 32 episodes" in repr(board)
    assert lab.AblationBoard(made, over="tokens").runs["budget"].max() > 32
    opened = lab.AblationBoard(str(made.folder))
    assert repr(opened) == repr(board) and opened.held_out and opened.over == "episodes"
    pd.testing.assert_frame_equal(opened.runs, board.runs, rtol=1e-5)
    assert opened.cautions == board.cautions and opened.equality.equals(board.equality)


def test_the_same_call_makes_nothing_anew_and_more_seeds_only_what_is_missing(made):
    before = files(made)
    assert without_seconds(lab.study(ASKED, made.folder)).equals(without_seconds(made)) and files(made) == before
    more = lab.study(ASKED | {"seeds": 3}, made.folder, play=False)
    assert more.table["state"].value_counts().to_dict() == {"made": CELLS, "missing": 2}
    with pytest.raises(ValueError, match="keep='weights'; known are tables, all, record"):
        lab.study(ASKED, keep="weights")


IN_A_CELL = """
import os
import mas_lab as lab
from mas_lab.tasks.ladder import Ladder

def doubled(turns):
    return lab.episode_return()(turns) * 2.0

class Own(Ladder):
    def step(self, state, actions):
        if self.n_agents == 3:
            os._exit(9)
        return super().step(state, actions)
"""


def in_a_cell(source, name):
    """Run source code as a notebook does: in `__main__`, and with lines that `inspect` finds."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), vars(__main__))


def test_parts_of_a_notebook_are_trained_and_a_cell_that_fails_or_dies_costs_no_other(tmp_path):
    in_a_cell(IN_A_CELL, "<cell 1>")
    own, credit = __main__.Own, __main__.doubled
    tasks = {"two": {"env": own(n_agents=2), "seeds": 1}, "dies": {"env": own(n_agents=3), "seeds": 1}}
    asked = TINY | {"tasks": tasks, "settings": {"tasks": 2, "check": False}}
    lost = {"recipe": "grpo", "team": {"model": "no/such/model"}}
    asked["arms"] = {"a": {"recipe": {"name": "dr_mas", "credit": credit}}, "lost": lost}
    found = lab.study(asked, tmp_path / "tiny", workers=2)
    assert found.table.query("state == 'made'")[["task", "arm"]].to_numpy().tolist() == [["two", "a"]]
    assert "failed: dies, a, seed 0: its process died" in repr(found)
    assert "failed: two, lost, seed 0: PolicyError: no model 'no/such/model'" in repr(found)
    assert set(lab.AblationBoard(found.folder).table["env"]) == {"two"}, "its parts are no obstacle"
    first = [cell.digest for cell in found.cells()]
    assert [cell.digest for cell in lab.study(asked, found.folder, play=False).cells()] == first
    in_a_cell(IN_A_CELL.replace("2.0", "3.0"), "<cell 2>")
    asked["arms"] = {"a": {"recipe": {"name": "dr_mas", "credit": __main__.doubled}}}
    assert lab.study(asked, found.folder, play=False).cells()[0].digest != first[0], "a credit of other code is another"


def test_a_cell_that_was_stopped_goes_on_bit_for_bit(made, tmp_path, capfd):
    """As a kill leaves it: a run of one step, with its checkpoint, and no record. The study prints, its training does
    not."""
    missing = made.cells()[1]
    folder = shutil.copytree(made.folder, tmp_path / "tiny")
    shutil.rmtree(run := run_of(folder, missing))
    [record] = (folder / RECORDS).glob(f"{run.name}.json")
    was = json.loads(record.read_text())
    record.unlink()
    asked = missing.training()
    next(asked.train(asked.make_team(), run=run))
    assert lab.load_run(run).steps == 1
    again = lab.study(ASKED, folder, workers=1)
    out, err = capfd.readouterr()
    assert out == "" and f"1/1  {missing}: made" in err
    now = json.loads(record.read_text())
    assert was["seconds"] > 0 and now == was | {"seconds": None} and not again.failed
    assert not (run / "checkpoints").exists(), "keep='tables' leaves no weights"


def test_a_made_cell_counts_before_a_failed_one_wherever_it_was_made(made, tmp_path):
    cell, folder = made.cells()[0], tmp_path / "tiny"
    shutil.copytree(made.folder / RECORDS, folder / RECORDS)
    path = folder / RECORDS / f"{run_of(folder, cell).name}.json"
    failed = json.loads(path.read_text()) | {"error": "OutOfMemoryError", "curve": [], "agents": []}
    path.write_text(json.dumps(failed))
    before = lab.study(ASKED, folder, play=False)
    assert before.table["state"].tolist() == ["failed"] + ["made"] * (CELLS - 1)
    records = [ship(study, tmp_path / name, "command") for study, name in ((before, "failed"), (made, "made"))]
    for asked, sources in (
        ("elsewhere", records), ("elsewhere", records[::-1]), (folder, records[1:]),
    ):  # fmt: skip
        found = lab.study(ASKED, tmp_path / asked, sources=sources, play=False)
        assert (found.table["state"] == "made").all() and not found.failed


@pytest.mark.full
def test_a_training_that_diverges_is_a_result(tmp_path):
    arms = {"own": {"recipe": "dr_mas"}, "wild": {"recipe": "grpo", "team": {"lr": 1e30}}}
    found = lab.study(ASKED | {"arms": arms, "tasks": {"two": {"seeds": 1}}}, tmp_path / "tiny", workers=1)
    assert found.table.set_index("arm")["state"].to_dict() == {"own": "made", "wild": "failed"}
    board = lab.AblationBoard(found)
    assert board.table[["recipe", "failed"]].to_numpy().tolist() == [["own", 0]]
    assert "two: runs of wild failed (seeds 0; " in board.cautions[0]
    shipped = Recorded(ship(found, tmp_path / "record", "command"))
    [failed] = [one for one in shipped.compared if one.get("error")]
    assert failed in found.compared and (failed["task"], failed["arm"], failed["seed"]) == ("two", "wild", 0)
    assert lab.AblationBoard(shipped).cautions[0] == board.cautions[0]
    alone = lab.study(ASKED | {"arms": {"wild": arms["wild"]}, "tasks": {"two": {"seeds": 1}}}, found.folder)
    with pytest.raises(ValueError, match="AblationBoard: every run failed; the first: wild, seed 0: "):
        lab.AblationBoard(alone.folder)


def test_a_quiz_asks_every_agent_before_and_after(made):
    """The quiz is a ladder: its first stage is asked always, the next where all before were right."""
    agents = made.agents.query("window == 'end' and arm == 'own' and task == 'three'").set_index("agent")
    assert agents[["quiz_before", "quiz_after"]].notna().all(axis=None)
    env, [cell] = lab.make_env(**QUIZ), [one for one in made.cells() if (one.task, one.arm) == ("three", "own")]
    scores = lab.evaluate(env, cell.training().make_team(), env.tasks(64, "test", 0), 4, seed=0)
    assert agents["quiz_before"].to_dict() == pytest.approx(scores.groupby("agent")["own_return"].mean().to_dict())
    without = {key: value for key, value in cell.config.items() if key != "quiz"}
    assert replace(cell, config=without).digest != cell.digest


def test_runs_of_other_code_are_not_averaged_in_silence(made, tmp_path):
    folder = tmp_path / "tiny"
    shutil.copytree(made.folder / RECORDS, folder / RECORDS)
    [path] = (folder / RECORDS).glob(f"{run_of(folder, made.cells()[0]).name}.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"code": "0123456789ab"}))
    found = lab.study(ASKED, folder, play=False)
    assert found.table["state"].tolist() == ["missing"] + ["made"] * (CELLS - 1)
    assert f"made by other code (0123456789ab, this is {code()})" in repr(found)
    allowed = lab.study(ASKED | {"codes": ["0123456789ab"]}, folder, play=False)
    assert (allowed.table["state"] == "made").all()


def test_a_record_that_is_shipped_says_the_same(made, tmp_path):
    shipped = ship(made, tmp_path / "record", "the command")
    about = json.loads((shipped / "provenance.json").read_text())
    assert about["command"] == "the command" and about["design"]["budget"] == {"episodes": 32}
    assert len(read_record(shipped)) == CELLS
    assert str(tmp_path) not in "".join(path.read_text() for path in shipped.iterdir())
    again = lab.study(ASKED, tmp_path / "elsewhere", sources=[shipped], play=False)
    assert without_seconds(again).round(4).equals(without_seconds(made).round(4))
    pd.testing.assert_frame_equal(again.agents, made.agents, rtol=1e-4, check_dtype=False)
    read = Recorded(shipped)
    for name in ("curves", "agents"):
        pd.testing.assert_frame_equal(getattr(read, name), getattr(again, name), check_dtype=False)
    assert read.table["final"].tolist() == again.table["final"].tolist() and read.rates.empty
    assert set(lab.AblationBoard(shipped).table["recipe"]) == {"global", "own"}
    folder = tmp_path / "tiny"  # the record in a folder is that of the last call, which a kill may have left unwritten
    shutil.copytree(made.folder / RECORDS, folder / RECORDS)
    for asked, rows in ((ASKED, CELLS), (ASKED | {"seeds": 1}, CELLS - 2), (ASKED | {"score": "return"}, CELLS)):
        lab.study(asked, folder)
        shipped = Recorded(folder)
        assert len(shipped.table) == rows and shipped.score == asked.get("score", "success")


def test_a_training_that_two_tasks_ask_for_is_recorded_as_each_calls_it(made, tmp_path):
    asked = ASKED | {"tasks": {"two": {"seeds": 1}, "the same": {}}}
    shipped = Recorded(ship(lab.study(asked, made.folder, play=False), tmp_path / "record", "the command"))
    assert shipped.table.groupby("task", sort=False).size().to_dict() == {"two": 2, "the same": 4}
    assert not shipped.curves.duplicated(["task", "arm", "seed", "step"]).any()
    again = lab.study(asked, tmp_path / "elsewhere", sources=[tmp_path / "record"], play=False)
    assert (again.table["state"] == "made").all()


def test_the_command_makes_what_is_missing_records_it_and_says_what_failed(made, tmp_path, capsys):
    file, record = tmp_path / "tiny.yaml", tmp_path / "record"
    file.write_text(yaml.safe_dump(ASKED))
    asked = ["study", str(file), "--folder", str(made.folder), "--record", str(record)]
    assert main(asked) == 0
    assert f"{CELLS} of {CELLS} trainings made" in capsys.readouterr().out and len(read_record(record)) == CELLS
    elsewhere = ["study", str(file), "--folder", str(tmp_path / "elsewhere"), "--record", str(record)]
    assert main(elsewhere) == 0 and not (tmp_path / "elsewhere").exists(), "what is recorded is not made again"
    file.write_text("name: tiny\narms: {a: {}}\nseeds: 1\n")
    assert main(asked) == 1
    assert f"mas_lab study: {file}: " in capsys.readouterr().err
