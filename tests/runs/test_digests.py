"""Every file of a run is checked when it is read: a changed bit is named or changes nothing; no step counts by half."""

import random
import shutil
from pathlib import Path

import faults
import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs.scores import keep_scores, run_curve, score_curve

FLIPS = 30
"""Enough for every kind of file."""
STEPS = 3
SCORED = small.SETTINGS | {"score_every": 2, "score_tasks": 2, "score_episodes": 1}


def train(models, run: Path, steps: int) -> list[int]:
    asked = SCORED | {"run": run, "watch": lab.SpikeWatch(warmup=2, window=4, threshold=1, samples=2)}
    team = small.make_team("shared", models)
    return [report.step for report in lab.train(small.Relay(), team, small.RECIPE, steps, **asked)]


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """Three steps with scores."""
    train(models, run := tmp_path_factory.mktemp("kept") / "run", STEPS)
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


def test_a_damaged_or_missing_table_is_named(run, models):
    def more(run):
        return train(models, run, STEPS + 1)

    for name in ("turns/000001", "turns/000002", "stats/000002"):
        [path] = run.glob(f"{name}-*")
        held = path.read_bytes()
        path.unlink()
        for use in (opened, more):
            with pytest.raises(lab.RunError, match=rf"{name}-\*\.parquet is missing; put it back"):
                use(run)
        path.write_bytes(held)
    flipped(path, 8 * 1000)
    with pytest.raises(lab.RunError, match=f"{path.name} is changed"):
        more(run)
    path.write_bytes(held)
    [path] = run.glob("turns/000001-*")
    flipped(path, 8 * 1000)
    assert more(run) == [STEPS], "an old table that is changed stops no training"
    with pytest.raises(lab.RunError, match=f"{path.name} is changed"):
        lab.load_run(run).turns  # noqa: B018


def test_steps_that_a_kill_left_by_half_do_not_count(run, models):
    """Its stats are in place and its turns are not; a score beyond the newest step."""
    before = opened(run)
    [stats], [scores] = run.glob("stats/000002-*"), run.glob("scores/000002-*")
    shutil.copy(stats, stats.with_name(stats.name.replace("000002", "000003")))
    shutil.copy(scores, scores.with_name(scores.name.replace("000002", "000004")))
    (run / "turns" / "000003-0123456789abcdef.parquet.tmp").write_bytes(b"torn")
    after = opened(run)
    assert all(same(before[name], after[name]) for name in before)
    assert train(models, run, STEPS + 1) == [STEPS] and not list(run.rglob("*.tmp"))


def test_scores_that_are_kept_again_replace_the_old_ones(run):
    scores = pd.DataFrame({"task": ["t"], "success": [0.25], "return": [0.5]})
    reader = lab.load_run(run)
    before = score_curve(reader)
    keep_scores(lab.load_run(run), 2, scores)
    after = score_curve(reader)
    assert after["step"].tolist() == before["step"].tolist() and after.set_index("step").loc[2, "success"] == 0.25
    assert len(list((run / "scores").iterdir())) == len(after)
