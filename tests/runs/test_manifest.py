"""Every file of a run is checked when it is read: a changed bit is named or changes nothing; no step counts by half."""

import random
import shutil
from pathlib import Path

import faults
import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs import recorder
from mas_lab.runs.disk import read_arrow, read_tables
from mas_lab.runs.manifest import MANIFEST, Manifest, Part, digest, manifest_of
from mas_lab.runs.scores import keep_scores, run_curve, score_curve

FLIPS = 50
"""Enough for every kind of file."""
STEPS = 5
SCORED = small.SETTINGS | {"score_every": 2, "score_tasks": 2, "score_episodes": 1}


def train(models, run: Path, steps: int) -> list[int]:
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=1, samples=2)
    training = lab.train(
        small.Relay(), small.make_team("shared", models), small.RECIPE, steps, run=run, watch=watch, **SCORED
    )
    return [report.step for report in training]


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """Five steps with scores, of which the first four stand in files of two."""
    run = tmp_path_factory.mktemp("kept") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "JOINED_STEPS", 2)
        train(models, run, STEPS)
    names = {"000000-000001.parquet", "000002-000003.parquet", "000004.parquet"}
    assert {path.name for path in (run / "turns").iterdir()} == names
    return run


@pytest.fixture
def run(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "run")


def opened(folder: Path, with_team: bool = False) -> dict[str, object]:
    """All that a run is read for, each by the way that users have to it."""
    run = lab.load_run(folder)
    found = {"config": run.config, "turns": run.turns, "stats": run.stats, "watched": run.watched()}
    found |= {"step": run.step_turns(1), "curve": run_curve(run), "scores": score_curve(run)}
    found |= {"texts": run.token_texts()}
    if with_team:
        weights = run.team().policies["shared"].parameters
        found |= {"weights": {name: value.tolist() for name, value in weights.items()}}
    return found


def same(one: object, other: object) -> bool:
    return one.equals(other) if isinstance(one, pd.DataFrame) else one == other


def flipped(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def judged(folder: Path, path: Path, expected: dict[str, object]) -> str:
    """What reading a run with one changed bit in `path` gives: "named" or "the same", or what is wrong with it."""
    try:
        found = opened(folder, "weights" in expected)
    except lab.RunError as error:
        return "named" if str(folder) in str(error) else f"not named: {error}"
    except Exception as error:
        return f"raw: {error!r}"
    wrong = [name for name in expected if not same(expected[name], found[name])]
    return f"silent: {wrong}" if wrong else "the same"


def survey(folder: Path, count: int) -> dict[str, int]:
    """How often each judgement fell, over `count` bits spread over all files of a run: as many in each file."""
    rng, expected = random.Random(0), [opened(folder), opened(folder, folder.is_dir())]
    files = [folder]
    if folder.is_dir():
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    judgements: dict[str, int] = {}
    for number in range(count):
        path = files[number % len(files)]
        before, bit = path.read_bytes(), rng.randrange(8 * path.stat().st_size)
        flipped(path, bit)
        judgement = judged(folder, path, expected["checkpoints" in path.parts])  # the team takes its time
        path.write_bytes(before)
        if judgement not in ("named", "the same"):
            judgement += f", bit {bit} of {path.name}"
        judgements[judgement] = judgements.get(judgement, 0) + 1
    return judgements


@pytest.mark.parametrize(
    "flips", [FLIPS, pytest.param(faults.FLIPS, marks=[pytest.mark.long, pytest.mark.timeout(7200)])]
)
def test_flipped_bit_is_named_or_changes_nothing(run, flips):
    judgements = survey(run, flips)
    print(f"\nflipped bits: {sum(judgements.values())} {judgements}")
    assert set(judgements) == {"named", "the same"}
    assert judgements["named"] > flips / 2


@pytest.mark.slow
def test_flipped_bit_of_a_zip_is_named_or_changes_nothing(run, tmp_path):
    judgements = survey(lab.export(run, tmp_path / "run.zip"), 5)
    assert set(judgements) <= {"named", "the same"} and judgements["named"] > 1


@pytest.mark.parametrize(("name", "trains"), [("turns/000000-000001.parquet", True), ("stats/000004.parquet", False)])
def test_damaged_run_continues_only_without_the_damaged_table(run, models, name, trains):
    flipped(run / name, 8 * 1000)
    if trains:
        assert train(models, run, STEPS + 1) == [STEPS]
    with pytest.raises(lab.RunError, match=f"{name} is changed"):
        lab.load_run(run).turns if trains else train(models, run, STEPS + 1)


@pytest.mark.parametrize("name", ["turns/000000-000001.parquet", "stats/000004.parquet", "scores/000002", MANIFEST])
def test_missing_file_is_named(run, models, name):
    [path] = run.glob(f"{name}*")
    path.unlink()
    with pytest.raises(lab.RunError, match=f"{name}.* is missing; put it back"):
        opened(run)
    if not name.startswith("scores"):
        with pytest.raises(lab.RunError, match=f"{name} is missing; put it back"):
            train(models, run, STEPS + 1)


def test_unrecorded_table_is_not_read(run):
    turns = lab.load_run(run).turns
    shutil.copy(run / "turns" / "000004.parquet", run / "turns" / "000005.parquet")
    assert lab.load_run(run).turns.equals(turns)


def test_scores_that_are_kept_again_replace_the_old_ones(run):
    scores = pd.DataFrame({"task": ["t"], "success": [0.25], "return": [0.5]})
    reader = lab.load_run(run)
    before = score_curve(reader)
    keep_scores(lab.load_run(run), 2, scores)
    after = score_curve(reader)  # it sees the new manifest
    assert after["step"].tolist() == before["step"].tolist() and after.set_index("step").loc[2, "success"] == 0.25
    assert len(list((run / "scores").iterdir())) == len(after)


@pytest.fixture
def manifest(tmp_path):
    files = {name: digest(name.encode()) for name in ("run.json", "turns/000000.parquet", "stats/000000.parquet")}
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    Manifest(tmp_path).add(files)
    return Manifest(tmp_path)


def test_flipped_bit_of_a_manifest_is_named(manifest):
    whole = manifest.path.read_bytes()
    for bit in range(0, 8 * len(whole), 5):
        flipped(manifest.path, bit)
        with pytest.raises(lab.RunError, match=f"{MANIFEST} is changed"):
            Manifest(manifest.root).files  # noqa: B018
        manifest.path.write_bytes(whole)


def test_two_writers_keep_each_others_files(manifest):
    other = Manifest(manifest.root)
    for number, one in enumerate((manifest, other, manifest, other)):
        one.add({f"scores/{number:06d}-aaaaaaaa.parquet": "a" * 64})
    assert len(manifest.files) == len(other.files) == 7
    assert [part.step for part in Manifest(manifest.root).parts("scores")] == [0, 1, 2, 3]


def test_manifest_drops_and_continues_in_one_write(manifest):
    manifest.add({"turns/000000-000001.parquet": "b" * 64}, ["turns/000000.parquet"], [{"step": 1}])
    read = Manifest(manifest.root)
    assert [(part.name, part.steps) for part in read.parts("turns")] == [("turns/000000-000001.parquet", range(2))]
    assert read.continued == [{"step": 1}] and read.part("run.json").read_bytes() == b"run.json"
    with pytest.raises(lab.RunError, match=r"notes\.txt is not recorded"):
        read.part("notes.txt")


SHA = digest(b"")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (7, "int"),
        *(({name: SHA}, f"a file named .*{name}") for name in ("turns/../../000000.parquet", "../../x", "/etc/passwd")),
        *(({"run.json": sha}, "a file named 'run.json' with|expected string") for sha in ("", SHA[1:], [])),
        ({"turns/000000.parquet": SHA, "turns/000002.parquet": SHA}, "step 1 of turns is missing"),
    ],
)
def test_manifest_of_another_making_is_named(tmp_path, files, words):
    (tmp_path / MANIFEST).write_bytes(manifest_of(files))
    with pytest.raises(lab.RunError, match=f"{MANIFEST} was not written by mas_lab .*{words}"):
        Manifest(tmp_path).files  # noqa: B018
    with pytest.raises(lab.RunError, match=r"gone\.parquet is missing"):
        Part(tmp_path / "elsewhere", "gone.parquet", "").read_bytes()


def test_joined_steps_are_read_as_if_they_were_alone(models, tmp_path, monkeypatch):
    list(small.start("shared", models, tmp_path / "alone", 4))
    monkeypatch.setattr(recorder, "JOINED_STEPS", 2)
    list(small.start("shared", models, tmp_path / "merged", 4))
    alone, merged = lab.load_run(tmp_path / "alone"), lab.load_run(tmp_path / "merged")
    assert len(merged.parts("turns")) == 3 and len(alone.parts("turns")) == 4
    for step in range(4):
        assert merged.step_turns(step).equals(alone.step_turns(step))
        assert merged.step_turns(step, ["completion_ids"]).columns.tolist() == ["completion_ids"]
    some = read_tables([merged.part(step) for step in (1, 2)], ["step", "prompt"])
    assert some.equals(alone.turns.loc[alone.turns["step"].isin([1, 2]), ["step", "prompt"]].reset_index(drop=True))
    assert len(read_arrow([merged.part(1)])[0]) == len(alone.step_turns(1))
    expected = opened(tmp_path / "alone")
    for one in (tmp_path / "merged", lab.export(tmp_path / "merged", tmp_path / "merged.zip")):
        assert all(same(table, expected[name]) for name, table in opened(one).items())


def test_joining_respects_size_and_checkpoints(run, monkeypatch):
    manifest, calls = Manifest(run), []
    monkeypatch.setattr(recorder, "JOINED_STEPS", 1)
    for until in (4, STEPS):
        recorder.merge(manifest, until, lambda: calls.append(1))
    assert manifest.parts("turns")[-1].name == "turns/000004.parquet" and calls == [1], "one step is not joined"


def test_large_steps_stay_apart_and_joined_ones_can_still_be_read(models, tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setattr(recorder, "JOINED_BYTES", 1)
    monkeypatch.setattr(recorder, "JOINED_STEPS", 2)
    train(models, run, 4)
    reader = lab.load_run(run)
    assert [len(part.steps) for part in reader.parts("turns")] == [1, 1, 1, 1]
    part, expected = reader.part(0), reader.turns
    monkeypatch.setattr(recorder, "JOINED_BYTES", 2**20)
    recorder.merge(Manifest(run), 4, list)
    assert len(reader.parts("turns")) == 2 and reader.turns.equals(expected)
    assert len(read_arrow([part])[0]) == (expected["step"] == 0).sum()


@pytest.mark.slow
def test_killed_at_any_write_of_joining_no_step_is_lost(models, tmp_path, monkeypatch):
    run = tmp_path / "run"
    list(small.start("shared", models, run, 2))
    expected = opened(run)
    *deaths, survived = small.child("merged", run, 2, MERGED="2")
    assert len(deaths) > 8 and {death["ended"] for death in deaths} == {9} and survived["ended"] == 0
    monkeypatch.setattr(recorder, "JOINED_STEPS", 2)
    list(small.start("shared", models, run, 3))
    for number, told in enumerate((*deaths, survived)):
        copy = Path(told["copy"])
        assert lab.load_run(copy).turns.equals(expected["turns"]) and lab.load_run(copy).stats.equals(expected["stats"])
        if number in (2, 8):
            list(small.start("shared", models, copy, 3))
            assert small.bits(copy) == small.bits(run)
