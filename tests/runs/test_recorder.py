"""A full disk: the error names the run, the file and what is safe, and the same command goes on when there is room.

`test_faults` kills the training, and `test_run` resumes, refuses and locks it.
"""

import errno
import os
from pathlib import Path

import pytest
import small
from faults import fill

import mas_lab as lab
from mas_lab.runs.disk import Unwritten, writing
from mas_lab.runs.scores import keep_scores, score_curve

STEPS = 3
FAR = 400
"""More changes of files than such a run makes."""


@pytest.fixture(scope="module")
def straight(models, tmp_path_factory):
    run = tmp_path_factory.mktemp("full") / "straight"
    list(small.start("shared", models, run, STEPS))
    return run


def fails_and_goes_on(models, run: Path, straight: Path, moment: int, error: int) -> bool:
    """Did the disk fill up before the run was through?"""
    with pytest.MonkeyPatch.context() as patch:
        refused = fill(patch, moment, error)
        try:
            list(small.start("shared", models, run, STEPS))
        except lab.RunError as told:
            message = str(told)
            assert str(run) in message and os.strerror(error) in message
            if (run / "run.json").exists():
                step = lab.load_run(run).checkpoint().step
                assert "free space or make it writable" in message
                assert f"the run is whole up to step {step}, and the same command goes on" in message
            else:
                assert "choose another folder" in message
    assert not list(run.rglob("*.tmp"))
    list(small.start("shared", models, run, STEPS))
    assert small.bits(run) == small.bits(straight)
    lab.load_run(run).turns  # noqa: B018
    return bool(refused)


@pytest.mark.parametrize(("moment", "error"), [(1, errno.EDQUOT), (37, errno.EDQUOT), (37, errno.EROFS)])
def test_full_disk_stops_the_run_and_loses_nothing(models, straight, tmp_path, moment, error):
    assert fails_and_goes_on(models, tmp_path / "run", straight, moment, error)


@pytest.mark.slow
def test_disk_may_fill_up_at_any_change_of_a_file(models, straight, tmp_path):
    for moment in range(3, FAR, 23):
        if not fails_and_goes_on(models, tmp_path / str(moment), straight, moment, errno.ENOSPC):
            break
    assert 150 < moment < FAR - 23


def test_library_that_cannot_write_weights_is_told_by_the_file(tmp_path):
    """It has an error of its own."""
    with pytest.raises(Unwritten, match=r"weights cannot be written \(Too large"), writing(tmp_path / "weights"):
        raise ValueError("Too large (os error 27)")
    with pytest.raises(ValueError, match="of another kind"), writing(tmp_path / "weights"):
        raise ValueError("of another kind")


def test_export_that_does_not_fit_leaves_nothing(straight, tmp_path, monkeypatch):
    fill(monkeypatch, 1)
    with pytest.raises(lab.RunError, match=r"run\.zip cannot be written .*No space left.*free space"):
        lab.export(straight, tmp_path / "run.zip")
    assert not list(tmp_path.iterdir())


def test_scores_that_do_not_fit_leave_the_old_ones(straight, tmp_path, models):
    run = lab.load_run(straight)
    scores = lab.evaluate(small.Relay(), small.make_team("shared", models), small.Relay().tasks(2, "test", 0), k=1)
    keep_scores(run, 1, scores)
    before = score_curve(run)
    for moment in range(1, 4):
        with pytest.MonkeyPatch.context() as patch:
            fill(patch, moment)
            with pytest.raises(lab.RunError, match=r"cannot be written .*free space"):
                keep_scores(run, 1, scores.assign(success=0.0))
        assert score_curve(lab.load_run(straight)).equals(before)
    assert not list(straight.rglob("*.tmp"))
