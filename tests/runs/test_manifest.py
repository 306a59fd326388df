"""Every file of a run is checked when it is read: a changed bit is named or changes nothing; no step counts by half."""

import json
import random
import shutil
from pathlib import Path

import faults
import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs import merging
from mas_lab.runs.manifest import MANIFEST, Manifest, Part
from mas_lab.runs.run import TABLES
from mas_lab.runs.scores import kept_scores, run_curve

FLIPS = 150
"""Enough for every kind of file."""
STEPS = 5


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """Five steps with scores, of which the first four stand in files of two."""
    run = tmp_path_factory.mktemp("kept") / "run"
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=0.01, samples=2)
    settings = small.SETTINGS | {"score_every": 2, "score_tasks": 2, "score_episodes": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "STEPS", 2)
        team = small.make_team("shared", models)
        list(lab.train(small.Relay(), team, small.RECIPE, STEPS, run=run, watch=watch, **settings))
    assert {path.name for path in (run / "turns").iterdir()} == {
        "000000-000001.zip", "000002-000003.zip", "000004.parquet"
    }  # fmt: skip
    return run


@pytest.fixture
def run(kept, tmp_path):
    return Path(shutil.copytree(kept, tmp_path / "run"))


def opened(folder: Path, with_team: bool = False) -> dict[str, object]:
    """All that a run is read for, each by the way that users have to it."""
    run = lab.load_run(folder)
    found = {"config": run.config, "turns": run.turns, "stats": run.stats, "watched": run.watched()}
    found |= {
        "step": run.step_turns(1),
        "curve": run_curve(run),
        "scores": kept_scores(run),
        "texts": run.token_texts(),
    }
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
    files = (
        sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
        if folder.is_dir()
        else [folder]
    )
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


def test_a_flipped_bit_is_named_or_changes_nothing(run):
    judgements = survey(run, FLIPS)
    assert set(judgements) == {"named", "the same"}
    assert judgements["named"] > FLIPS / 2


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_nor_do_thousands(run):
    judgements = survey(run, faults.FLIPS)
    print(f"\nflipped bits: {sum(judgements.values())} {judgements}")
    assert set(judgements) == {"named", "the same"}


def test_nor_in_an_exported_zip(run, tmp_path):
    judgements = survey(lab.export(run, tmp_path / "run.zip"), FLIPS // 2)
    assert set(judgements) <= {"named", "the same"} and judgements["named"] > FLIPS / 4


@pytest.mark.parametrize(
    "name", ["turns/000000-000001.zip", "turns/000004.parquet", "stats/000004.parquet", "run.json"]
)
def test_a_damaged_run_is_not_trained_on_or_goes_on_with_what_it_did_not_need(run, models, name):
    path = run / name
    held = Manifest(run).parts.get(
        "turns/000001.parquet" if name.endswith(".zip") else name
    )  # between the parts is air
    flipped(path, 8 * (held.start + len(held.stored()) // 2))
    team = small.make_team("shared", models)
    settings = small.SETTINGS | {"score_every": 2, "score_tasks": 2, "score_episodes": 1}
    watch = lab.SpikeWatch(warmup=2, window=4, threshold=0.01, samples=2)
    training = lab.train(small.Relay(), team, small.RECIPE, STEPS + 1, run=run, watch=watch, **settings)
    if name.startswith("turns"):
        assert [report.step for report in training] == [STEPS]
        with pytest.raises(lab.RunError, match=f"{path.name}.* is changed"):
            lab.load_run(run).turns  # noqa: B018
    else:
        with pytest.raises(lab.RunError, match=f"{path.name} is changed"):
            list(training)


@pytest.mark.parametrize("name", ["turns/000000-000001.zip", "stats/000004.parquet", "scores/000002.parquet", MANIFEST])
def test_a_missing_file_is_named_and_not_left_out(run, name):
    (run / name).unlink()
    with pytest.raises(lab.RunError, match=f"{name}.* is missing; put it back"):
        opened(run)


def test_what_nobody_recorded_is_not_read(run):
    turns = lab.load_run(run).turns
    shutil.copy(run / "turns" / "000004.parquet", run / "turns" / "000005.parquet")
    assert lab.load_run(run).turns.equals(turns)


@pytest.fixture
def small_manifest(tmp_path):
    for name in ("run.json", "turns/000000.parquet", "turns/000001.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
        Manifest(tmp_path).add({name: [str(len(name)) * 64]})
    return tmp_path


def test_a_bit_of_a_manifest_counts(small_manifest):
    path = small_manifest / MANIFEST
    whole = path.read_bytes()
    assert len(Manifest(small_manifest).parts) == whole.count(b"\n") == 3
    for bit in range(0, 8 * len(whole), 5):
        flipped(path, bit)
        with pytest.raises(lab.RunError, match=f"{MANIFEST}: line [123] is changed"):
            Manifest(small_manifest).parts  # noqa: B018
        path.write_bytes(whole)


def test_a_line_that_a_kill_left_unfinished_does_not_count_and_the_next_one_does(small_manifest):
    path = small_manifest / MANIFEST
    whole, first = path.read_bytes(), Manifest(small_manifest)
    assert list(first.parts) == ["run.json", "turns/000000.parquet", "turns/000001.parquet"]
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        for tail in (b"", b"\0" * 9):
            path.write_bytes(whole[:end] + (tail if end < len(whole) - 1 else b""))
            manifest = Manifest(small_manifest)
            names = {"run.json", "turns/000000.parquet"} | (
                {"turns/000001.parquet"} if end == len(whole) - 1 else set()
            )
            assert set(manifest.parts) == names
        manifest.add({"turns/000002.parquet": ["2" * 64]})
        assert set(Manifest(small_manifest).parts) == names | {"turns/000002.parquet"}


def test_two_processes_may_record(small_manifest):
    one, other = Manifest(small_manifest), Manifest(small_manifest)
    assert len(one.parts) == len(other.parts) == 3
    for number, manifest in enumerate((one, other, one, other)):
        manifest.add({f"scores/{number:06d}.parquet": ["a" * 64]})
    assert len(one.parts) == len(other.parts) == len(Manifest(small_manifest).parts) == 7


def test_a_file_that_is_written_anew_is_right_at_every_moment(small_manifest, monkeypatch):
    manifest, seen = Manifest(small_manifest), []
    first, then = b"first", b"then"
    manifest.replace("run.json", first)
    move = Path.replace

    def watched(path, target):
        seen.append(Manifest(small_manifest).parts["run.json"].read_bytes())
        move(path, target)
        seen.append(Manifest(small_manifest).parts["run.json"].read_bytes())

    monkeypatch.setattr(Path, "replace", watched)
    manifest.replace("run.json", then, Manifest(small_manifest).parts["run.json"].sha256)
    assert seen == [first, then]
    (small_manifest / "run.json").write_bytes(first)
    with pytest.raises(lab.RunError, match=r"run\.json is changed"):
        manifest.parts["run.json"].read_bytes()


def test_scores_that_are_kept_again_count(run):
    there = lab.load_run(run)
    scores = pd.DataFrame({"task": ["t"], "success": [0.25], "return": [0.5]})
    lab.keep_scores(there, 2, scores)
    assert kept_scores(lab.load_run(run)).set_index("step").loc[2, "success"] == 0.25


# Steps kept together


def test_a_step_is_read_out_of_a_file_of_many_without_the_others(run):
    path = run / "turns" / "000000-000001.zip"
    [first, second] = lab.load_run(run).parts("turns")[:2]
    assert (first.path, second.path) == (path, path)
    data = path.read_bytes()
    path.write_bytes(data[: first.start] + bytes(first.size) + data[first.start + first.size :])
    assert lab.load_run(run).step_turns(1)["step"].unique().tolist() == [1]
    with pytest.raises(lab.RunError, match=r"000000-000001\.zip \(turns/000000\.parquet\) is changed"):
        lab.load_run(run).step_turns(0)


def test_files_of_many_are_plain_zips_of_what_the_steps_wrote(models, tmp_path, monkeypatch):
    list(small.start("shared", models, tmp_path / "alone", 6))
    monkeypatch.setattr(merging, "STEPS", 2)
    list(small.start("shared", models, tmp_path / "merged", 6))
    for table in TABLES:
        shutil.unpack_archive(tmp_path / "merged" / table / "000002-000003.zip", tmp_path / table)
        for name in ("000002.parquet", "000003.parquet"):
            assert (tmp_path / table / name).read_bytes() == (tmp_path / "alone" / table / name).read_bytes()
    zips = [lab.export(tmp_path / name, tmp_path / f"{name}.zip") for name in ("alone", "merged")]
    for one in (tmp_path / "merged", *zips):
        for name, table in opened(one).items():
            assert same(table, opened(tmp_path / "alone")[name])


def test_no_file_is_larger_than_its_bound_and_none_holds_what_a_resumed_run_makes_again(run, monkeypatch):
    manifest = Manifest(run)
    monkeypatch.setattr(merging, "BYTES", 1)
    merging.merge(manifest, TABLES, until=4)
    assert manifest.parts["turns/000004.parquet"].file == ""
    merging.merge(manifest, TABLES, until=STEPS)
    assert manifest.parts["turns/000004.parquet"].file == ""  # it fills no file as long as there is no next one


def test_where_a_part_moves_while_it_is_read_it_is_found(run, monkeypatch):
    part = lab.load_run(run).part(4)
    monkeypatch.setattr(merging, "STEPS", 1)
    turns = lab.load_run(run).step_turns(4)
    merging.merge(Manifest(run), TABLES, until=STEPS)
    assert not part.path.exists()
    from mas_lab.runs.disk import read_table

    assert read_table(part).equals(turns)


def test_killed_at_any_write_while_steps_move_together_nothing_is_lost(models, tmp_path, monkeypatch):
    run = tmp_path / "run"
    list(small.start("shared", models, run, 4))
    expected = opened(run)
    *deaths, survived = small.child("merged", run, 4, MERGED="2")
    assert len(deaths) > 20 and {death["ended"] for death in deaths} == {9} and survived["ended"] == 0
    for copy in (Path(told["copy"]) for told in (*deaths, survived)):
        assert lab.load_run(copy).turns.equals(expected["turns"]) and lab.load_run(copy).stats.equals(expected["stats"])
    monkeypatch.setattr(merging, "STEPS", 2)
    list(small.start("shared", models, run, 5))
    for death in deaths[2::8]:
        list(small.start("shared", models, Path(death["copy"]), 5))
        assert small.bits(Path(death["copy"])) == small.bits(run)


@pytest.mark.slow
def test_killed_at_every_eighth_write_of_a_run_whose_steps_move_together(models, tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "STEPS", 2)
    list(small.start("shared", models, tmp_path / "straight", 5))
    (tmp_path / "runs").mkdir()
    *deaths, survived = small.child("killed", models, tmp_path / "runs", 5, *range(1, 900, 8), MERGED="2")
    assert len(deaths) > 20 and survived["ended"] == 0
    for death in (*deaths, survived):
        assert death["bits"] == small.bits(tmp_path / "straight"), f"killed before write {death['moment']}"


def test_a_manifest_of_somebody_else_is_named(tmp_path):
    from mas_lab.runs.manifest import digest

    text = json.dumps({"run.json": 7}).encode()
    (tmp_path / MANIFEST).write_bytes(text + b"\t" + digest(text).encode() + b"\n")
    with pytest.raises(lab.RunError, match=f"{MANIFEST}: line 1 was not written by mas_lab"):
        Manifest(tmp_path).parts  # noqa: B018
    with pytest.raises(lab.RunError, match=r"gone\.parquet is missing"):
        Part(tmp_path / "elsewhere", "gone.parquet").read_bytes()
