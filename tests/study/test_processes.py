"""Trainings side by side: results arrive, a failure or an interrupt ends them all, and none outlives its parent."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jobs
import pytest

from mas_lab.display.progress import no_bars, progress_bar
from mas_lab.study.processes import side_by_side

HERE = Path(__file__).parents[1]


def test_every_job_brings_its_result_from_another_process():
    found = dict(side_by_side([(jobs.count, name, 3) for name in ("first", "second", "third")], workers=2))
    assert set(found) == {"first", "second", "third"}
    assert os.getpid() not in found.values() and len(set(found.values())) <= 2


def test_bars_within_a_job_are_hidden():
    assert list(side_by_side([(jobs.hushed,)])) == [True]


def test_a_failure_ends_the_others():
    with pytest.raises(ValueError, match="planned"):
        list(side_by_side([(jobs.endless, "first"), (jobs.fail,)], workers=2))


@pytest.fixture
def endless():
    """A program that runs two endless jobs, and the processes of these."""
    paths = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    program = subprocess.Popen(
        [sys.executable, str(HERE / "jobs.py")], env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    children = [int(program.stdout.readline()) for _ in range(2)]
    yield program, children
    for one in (program.pid, *children):
        if alive(one):
            os.kill(one, signal.SIGKILL)
    program.wait()


def alive(process: int) -> bool:
    """Not gone, nor dead and waiting to be asked."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(processes, seconds=60.0):
    end = time.monotonic() + seconds
    while any(map(alive, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, processes))


on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who is alive")


@on_linux
def test_an_interrupt_ends_them_all_and_quietly(endless):
    program, children = endless
    os.killpg(program.pid, signal.SIGINT)  # what Ctrl-C in a terminal sends: to the children too
    assert program.wait(timeout=60) == 130
    assert until_gone(children)


@on_linux
def test_none_outlives_the_process_that_started_them(endless):
    program, children = endless
    program.kill()
    program.wait()
    assert until_gone(children)


@on_linux
def test_nor_does_a_fork_of_it_keep_them(endless):
    """It holds all that its parent held, such as the pipes by which the children are told."""
    program, children = endless
    program.send_signal(signal.SIGUSR1)
    fork = int(program.stdout.readline())
    try:
        program.kill()
        program.wait()
        assert until_gone(children) and alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)


class Screen(io.StringIO):
    """Somebody watches; while a test runs, not while its fixtures are made: pytest's own capture comes in between."""

    def isatty(self):
        return True


def test_a_bar_tells_the_time_left_only_where_units_are_even(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    with progress_bar(3, "training", "step", even=True) as even, progress_bar(3, "rollout", "episode") as uneven:
        assert "remaining" in even.bar_format and "remaining" not in uneven.bar_format
    assert sys.stderr.getvalue() == ""


def test_bars_are_hidden_within_one_another(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Screen())
    with no_bars():
        with no_bars():
            assert progress_bar(1, "inner", "step").disable
        assert progress_bar(1, "outer", "step").disable
    with progress_bar(1, "alone", "step") as bar:
        assert not bar.disable
