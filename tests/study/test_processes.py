"""Jobs side by side: each brings its result, one that fails or dies costs no other, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import jobs
import pytest
import small

from mas_lab.study.processes import ended_jobs


@pytest.mark.slow
def test_a_job_that_fails_or_dies_costs_no_other():
    """The functions of a cell, here a lambda, reach the processes as well."""
    own = (lambda number: (number, os.getpid()), 7)
    asked = [own, (jobs.die,), (jobs.fail,), own, (jobs.is_silent,)]
    found = {id(job): ended for job, ended in ended_jobs(asked, workers=2)}
    ended = [found[id(job)] for job in asked]
    assert len(found) == 4 and ended[0].result()[0] == 7 and ended[0].result()[1] != os.getpid()
    assert isinstance(ended[1].exception(), BrokenProcessPool) and ended[4].result() is True
    with pytest.raises(ValueError, match="planned"):
        ended[2].result()


def alive(process: int) -> bool:
    """Return whether a process is neither gone nor a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc who is alive")
@pytest.mark.parametrize("ending", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(ending):
    """Ctrl-C in a terminal reaches the children too; a kill reaches the parent alone."""
    command, pipe = [sys.executable, jobs.__file__], subprocess.PIPE
    program = subprocess.Popen(command, env=small.environment(), stdout=pipe, text=True, start_new_session=True)
    children = [int(program.stdout.readline()) for _ in range(2)]
    try:
        os.killpg(program.pid, ending) if ending == signal.SIGINT else program.kill()
        assert program.wait(timeout=60) == (130 if ending == signal.SIGINT else -ending)
        end = time.monotonic() + 60
        while any(map(alive, children)) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(map(alive, children))
    finally:
        for process in filter(alive, [program.pid, *children]):
            os.kill(process, signal.SIGKILL)
