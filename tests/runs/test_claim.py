"""One training at a time in a folder, on drives with locks and without."""

import errno
import json
import os
import subprocess
import sys

import filelock
import pytest
import small

import mas_lab as lab
from mas_lab.runs.claim import HOLDER, Claim

ANOTHER = {"process": 4711, "host": "colab-7", "machine": "", "since": "2026-11-20T18:30:00+01:00"}


def refusing(error: BaseException):
    """What `flock` does on a drive without locks, as this release of filelock tells it."""

    def acquire(self, *_, **__):
        raise error

    return acquire


class Falling(filelock.SoftFileLock):
    """What newer releases of filelock do by themselves: the file's existence is the lock."""

    def __init__(self, path, **_):
        super().__init__(path, timeout=0)


@pytest.fixture(params=["ENOSYS", "ENOLCK", "ENOTSUP", "unimplemented", "falls back"])
def without_locks(request, monkeypatch):
    if request.param == "falls back":
        monkeypatch.setattr(filelock, "FileLock", Falling)
    elif request.param == "unimplemented":
        monkeypatch.setattr(filelock.FileLock, "acquire", refusing(NotImplementedError("no flock here")))
    else:
        number = getattr(errno, request.param)
        monkeypatch.setattr(filelock.FileLock, "acquire", refusing(OSError(number, os.strerror(number))))


def train(models, run, steps: int) -> list[int]:
    return [report.step for report in small.start("shared", models, run, steps)]


def test_it_trains_and_goes_on_and_leaves_nothing(without_locks, models, tmp_path):
    run = tmp_path / "run"
    generator = small.start("shared", models, run, 1)
    next(generator)
    held = json.loads((run / HOLDER).read_text())
    assert held["process"] == os.getpid() and held["host"]
    generator.close()
    assert not (run / HOLDER).exists()
    assert train(models, run, 2) == [1]


def test_who_trains_elsewhere_is_named_with_what_to_do(without_locks, models, tmp_path):
    """The host may have died: nobody here can tell."""
    run = tmp_path / "run"
    train(models, run, 1)
    (run / HOLDER).write_text(json.dumps(ANOTHER))
    with pytest.raises(lab.RunError) as caught:
        train(models, run, 2)
    said = str(caught.value)
    for word in (str(run), "process 4711 on colab-7", "since 2026-11-20T18:30:00+01:00", f"says {run / HOLDER}"):
        assert word in said
    assert "delete the file and start again" in said
    (run / HOLDER).unlink()
    assert train(models, run, 2) == [1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"process": "x"}'])
def test_a_file_that_says_nothing_is_somebodys_too(without_locks, tmp_path, text):
    (tmp_path / HOLDER).write_text(text)
    with pytest.raises(lab.RunError, match=r"trains in this folder, says .*delete the file"):
        Claim.of(tmp_path)
    assert (tmp_path / HOLDER).read_text() == text


def test_a_process_of_this_machine_that_died_is_succeeded_and_a_living_one_is_not(without_locks, tmp_path):
    held = Claim.of(tmp_path)
    mine = json.loads((tmp_path / HOLDER).read_text())
    held.release()
    if not mine["machine"]:
        pytest.skip("this system does not say which processes see one another's numbers")
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (tmp_path / HOLDER).write_text(json.dumps(mine | {"process": other.pid}))
    try:
        with pytest.raises(lab.RunError, match=f"process {other.pid} on "):
            Claim.of(tmp_path)
    finally:
        other.kill()
        other.communicate()
    Claim.of(tmp_path).release()
    assert not (tmp_path / HOLDER).exists()


def test_a_claim_does_not_take_away_what_another_wrote(without_locks, tmp_path):
    held = Claim.of(tmp_path)
    (tmp_path / HOLDER).write_text(json.dumps(ANOTHER))
    held.release()
    assert json.loads((tmp_path / HOLDER).read_text()) == ANOTHER


def test_other_troubles_of_a_drive_are_told_as_they_are(models, tmp_path, monkeypatch):
    monkeypatch.setattr(filelock.FileLock, "acquire", refusing(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(lab.RunError, match=r"cannot keep a run here .*Input/output error"):
        train(models, tmp_path / "run", 1)
