"""A zip from others opens, or says what is wrong with which member; it takes no more than it may, and runs nothing."""

import re
import shutil
import zipfile

import pytest
from hostile import BOMBS, HOSTILE, TURNS, Members, members, pack
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.runs.run import Run
from mas_lab.runs.scores import kept_scores, run_curve
from mas_lab.widgets.source import Source

INSTRUMENTS = (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer)
LITTER = (".DS_Store", "desktop.ini", "Thumbs.db", "._run.json", "__MACOSX/._run.json", ".ipynb_checkpoints/x.py")


@pytest.fixture(scope="module")
def honest(spiky, tmp_path_factory) -> Members:
    """What an exported run holds: five steps, a watch that opened spikes, and a score."""
    root = tmp_path_factory.mktemp("honest")
    run = lab.load_run(shutil.copytree(spiky, root / "run"))
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
    run.recipe, run.turns, run.stats, run_curve(run), kept_scores(run)
    Source(run).watched(), run.token_texts(), lab.AblationBoard([run])


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


def test_an_honest_zip_opens_everywhere(honest, tmp_path):
    (tmp_path / "class").mkdir()
    assert told(pack(honest, tmp_path / "class" / "alice.zip"), tmp_path, every=True) == {}
    again = lab.load_run(tmp_path / "again.zip")
    assert again.turns.equals(lab.load_run(tmp_path / "class" / "alice.zip").turns) and again.watched()["spikes"]


def test_the_types_of_an_honest_table_speak_for_its_cells(honest, tmp_path, monkeypatch):
    def walked(*_):
        raise AssertionError("an honest table's cells are looked at one by one")

    monkeypatch.setattr("mas_lab.runs.forms._require_each", walked)
    monkeypatch.setattr("mas_lab.table.pa.DataFrameSchema", walked)
    assert told(pack(honest, tmp_path / "alice.zip"), tmp_path, every=False) == {}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_zip_is_refused_by_member(honest, tmp_path, what):
    refused(*HOSTILE[what], honest, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_zip_is_refused_by_member_wherever_it_is_read(honest, tmp_path, what):
    refused(*HOSTILE[what], honest, tmp_path, every=True)


@pytest.mark.parametrize("what", BOMBS)
def test_a_zip_that_unpacks_to_much_is_refused_before_it_takes_the_memory(honest, tmp_path, monkeypatch, what):
    resource = pytest.importorskip("resource", reason="memory is counted by POSIX")
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.0625")
    make, words = BOMBS[what]
    path = make(honest, tmp_path / "made.zip")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(lambda _, place: shutil.copy(path, place), words, honest, tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**18  # KiB; macOS counts bytes


def test_the_limit_is_told_with_how_to_raise_it(honest, tmp_path, monkeypatch):
    path = pack(honest, tmp_path / "alice.zip")
    assert lab.load_run(path).steps == 5
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.0001")
    with pytest.raises(lab.RunError, match=r'os\.environ\["MAS_LAB_ZIP_GIB"\] = "0\.0004"'):
        lab.load_run(path)
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "0.00001")
    with pytest.raises(lab.RunError, match=r"takes 0\.00 GiB on disk"):
        lab.load_run(path)
    monkeypatch.setenv("MAS_LAB_ZIP_GIB", "much")
    with pytest.raises(lab.RunError, match="MAS_LAB_ZIP_GIB='much' is not a number"):
        lab.load_run(path)


def test_rows_count_over_all_tables_that_are_read_and_each_once(honest, tmp_path, monkeypatch):
    run = lab.load_run(pack(honest, tmp_path / "alice.zip"))
    for _ in range(3):
        run.turns, run.stats  # noqa: B018
    account = run.folder.root.account
    assert account.rows == len(run.turns) + len(run.stats) and account.bytes > 1000
    monkeypatch.setattr("mas_lab.runs.zips.ROWS", account.rows // 2 - 1)  # of each of two GiB
    other = lab.load_run(tmp_path / "alice.zip")
    other.turns  # noqa: B018
    with pytest.raises(lab.RunError, match=r"stats/00000\d\.parquet: the tables read so far hold .* rows"):
        other.stats  # noqa: B018


def test_what_systems_and_notebooks_leave_behind_is_passed_over(honest, models, tmp_path):
    zipped = pack(honest, tmp_path / "alice.zip", more=[(name, b"x") for name in (*LITTER, "notes.txt")])
    assert told(zipped, tmp_path, every=False) == {}
    run = tmp_path / "run"
    for steps in (1, 2):
        for place in (run, run / "turns", run / "checkpoints" / f"{steps - 1:06d}" / "policies" / "0"):
            for name in LITTER:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(b"x")
            if steps == 1:
                break
        reports = list(lab.train(Relay(), make_team("shared", models), RECIPE, steps, run=run, **SETTINGS))
        assert [report.step for report in reports] == [steps - 1]
    assert lab.load_run(run).team()
    (run / "checkpoints" / "000002" / "policies" / "0" / "mine.txt").write_text("x")
    with pytest.raises(lab.RunError, match=r"mine\.txt is not recorded"):
        lab.load_run(run).team()


def test_a_class_with_litter_beside_the_zips(honest, tmp_path):
    pack(honest, tmp_path / "alice.zip")
    for name in LITTER:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert lab.AblationBoard(tmp_path).runs["file"].tolist() == ["alice.zip"]


def test_a_members_bytes_are_read_as_the_zip_lists_them(honest, tmp_path):
    run: Run = lab.load_run(pack(honest, tmp_path / "alice.zip", zipfile.ZIP_STORED))
    place = run.folder / TURNS
    assert place.read_bytes() == honest[TURNS] and place.open("rb").read() == honest[TURNS]
    assert (run.folder / "run.json").read_text() == (run.folder / "run.json").open().read()
