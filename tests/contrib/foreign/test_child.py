"""A run from others opens, or says what is wrong with which file; it takes no more than it may, and runs nothing.

Also the tests of `check` and `forms` beside it, and of `runs.trust`.
"""

import io
import re
import shutil
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import BOMBS, HOSTILE, Members, members, pack
from small import RECIPE, SETTINGS, Relay, copied, make_team

import mas_lab as lab
from mas_lab.contrib.foreign import child as foreign
from mas_lab.contrib.foreign.check import check_run
from mas_lab.runs.run import Run
from mas_lab.runs.scores import run_curve, score_curve

INSTRUMENTS = (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer)
LITTER = (".DS_Store", "desktop.ini", "Thumbs.db", "._run.json", "__MACOSX/._run.json", ".ipynb_checkpoints/x.py")


@pytest.fixture(scope="module")
def honest(spiky, tmp_path_factory) -> Members:
    """What an exported run holds: five steps, a watch that opened spikes, and a score."""
    root = tmp_path_factory.mktemp("honest")
    run = lab.load_run(copied(spiky, root / "run"))
    scored = lab.evaluate(Relay(), run.team(), Relay().tasks(4, "test", 0))
    lab.keep_scores(run, 5, scored)
    return members(lab.export(run, root / "run.zip"))


def ways_in(path, out) -> dict:
    """What is public and reads a zip, by what it is called; the first reads all that the others do."""
    return {
        "load_run": lambda: everything(lab.load_run(path)),
        "AblationBoard": lambda: lab.AblationBoard(path.parent).to_html(out / "board.html"),
        "export": lambda: lab.export(path, out / "again.zip"),
        **{each.__name__: lambda each=each: each(path).to_html(out / "page.html") for each in INSTRUMENTS},
    }


def everything(run: Run) -> None:
    run.recipe, run.turns, run.stats, run_curve(run), score_curve(run), run.watched(), run.token_texts()


def told(path, out, every: bool) -> dict[str, str]:
    """What each way in said that refused it. Any other error than a named one is a defect."""
    said = {}
    for name, way in list(ways_in(path, out).items())[: None if every else 1]:
        try:
            way()
        except (lab.RunError, ValueError) as error:
            said[name] = str(error)
    return said


def refused(make, words: str, honest: Members, tmp_path, every: bool = False) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "out").mkdir()
    path = make(honest, tmp_path / "class" / "mallory.zip")
    before = path.read_bytes()
    said = told(path, tmp_path / "out", every)
    assert said and all("mallory.zip" in one for one in said.values()), said
    assert any(re.search(words, one, re.DOTALL) for one in said.values()), said
    assert [one.name for one in path.parent.iterdir()] == ["mallory.zip"] and path.read_bytes() == before


@pytest.mark.slow
def test_honest_zip_opens_everywhere(honest, tmp_path):
    (tmp_path / "class").mkdir()
    assert told(pack(honest, tmp_path / "class" / "alice.zip"), tmp_path, every=True) == {}
    again = lab.load_run(tmp_path / "again.zip")
    assert again.turns.equals(lab.load_run(tmp_path / "class" / "alice.zip").turns) and again.watched()["spikes"]


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_zip_is_refused_by_file(honest, tmp_path, what, monkeypatch):
    """Each check in this process, which is what the child does; the tests below have a child."""
    monkeypatch.setattr(foreign, "refuse_unreadable", lambda path: check_run(path))
    refused(*HOSTILE[what], honest, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("form, what", [("zip", "a flipped bit"), ("folder", "a pickle for a table")])
def test_everything_refuses_what_the_child_process_refused(honest, tmp_path, form, what):
    make, words = HOSTILE[what]
    path = make(honest, tmp_path / "mallory.zip")
    if form == "folder":
        shutil.unpack_archive(path, tmp_path / "class" / "mallory.zip")
    else:
        (tmp_path / "class").mkdir()
        shutil.move(path, tmp_path / "class")
    said = told(tmp_path / "class" / "mallory.zip", tmp_path, every=True)
    assert len(said) == 2 + 1 + len(INSTRUMENTS) and all(re.search(words, one, re.DOTALL) for one in said.values())


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a process")
@pytest.mark.parametrize("what", BOMBS)
def test_bomb_takes_no_memory_of_this_process(honest, tmp_path, monkeypatch, what):
    import resource

    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.125")
    make, words = BOMBS[what]
    path = make(honest, tmp_path / "made.zip")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(lambda _, place: shutil.copy(path, place), words, honest, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB


def test_endless_reading_ends(honest, tmp_path, monkeypatch):
    pack(honest, tmp_path / "alice.zip")
    monkeypatch.setattr(foreign, "SECONDS", 0.01)
    with pytest.raises(lab.RunError, match=r"alice\.zip takes more than 2 GiB in memory to be read, or minutes"):
        lab.load_run(tmp_path / "alice.zip")


def test_copied_run_is_read_by_a_child_process_until_it_is_trained_here(honest, spiky, models, tmp_path, monkeypatch):
    run = shutil.copytree(spiky, tmp_path / "run")
    asked = []
    monkeypatch.setattr(foreign, "refuse_unreadable", lambda path: asked.append(path))
    lab.load_run(spiky), lab.load_run(run)
    assert asked == [run]
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=1, samples=6)
    list(lab.train(Relay(), make_team("shared", models), RECIPE, 6, run=run, watch=watch, **SETTINGS))
    lab.load_run(run)
    assert asked == [run, run]


def test_limit_names_how_to_raise_it(honest, tmp_path, monkeypatch):
    path = pack(honest, tmp_path / "alice.zip")
    assert lab.load_run(path).steps == 5
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.0001")
    with pytest.raises(lab.RunError, match=r'os\.environ\["MAS_LAB_ZIP_GIB"\] = "0\.0004"'):
        lab.load_run(path)
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.00001")
    with pytest.raises(lab.RunError, match=r"takes 0\.00 GiB, more than 1e-05"):
        lab.load_run(path)
    for wrong in ("two", "0", "nan"):
        monkeypatch.setenv("MAS_LAB_ZIP_GIB", wrong)
        with pytest.raises(lab.RunError, match=f"MAS_LAB_ZIP_GIB='{wrong}' is not a number of GiB above 0"):
            lab.load_run(path)


def test_files_of_systems_and_notebooks_are_ignored(honest, models, tmp_path):
    zipped = pack(honest, tmp_path / "alice.zip", more=[(name, b"x") for name in (*LITTER, "notes.txt", "../x")])
    assert told(zipped, tmp_path, every=False) == {}
    run = tmp_path / "run"
    for steps, places in ((1, [run]), (2, [run / "turns", run / "checkpoints" / "000001" / "policies" / "0"])):
        for path in (place / name for place in places for name in LITTER):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        assert len(list(lab.train(Relay(), make_team("shared", models), RECIPE, steps, run=run, **SETTINGS))) == 1
    assert lab.load_run(run).team()
    (run / "checkpoints" / "000002" / "policies" / "0" / "mine.txt").write_text("x")
    with pytest.raises(lab.RunError, match=r"mine\.txt is not recorded"):
        lab.load_run(run).team()


def test_files_that_are_checked_together_are_named_alone(honest, tmp_path):
    """A small file and its neighbours are checked as one table, and the refusal names the one with the fault."""
    tables = [name for name in honest if name.startswith("turns/")]
    assert len(tables) > 1
    for name in tables:
        changed = honest | {name: other_step(honest[name])}
        path = pack(changed, tmp_path / "mallory.zip")
        with pytest.raises(lab.RunError, match=rf"{name}: column 'step' holds \[\], not"):
            lab.load_run(path)


def other_step(data: bytes) -> bytes:
    held = pq.read_table(io.BytesIO(data))
    place = held.column_names.index("step")
    out = io.BytesIO()
    pq.write_table(held.set_column(place, "step", [pa.array([999] * len(held), held["step"].type)]), out)
    return out.getvalue()
