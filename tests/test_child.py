"""Child processes that answer questions: what a pool of workers survives, and when it ends. On each tier at hand.

Comparing mathematical answers in a child is in `test_math`, checking arguments with a schema in `test_tool_calls`.

Imports neither torch nor pandas, so that it also runs in the small environment of `make test-sandbox`.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas_lab.child import usable_cores
from mas_lab.tasks import sandbox


def double(n):
    return sandbox.run("def f(x):\n    return x * 2", "f", [[n]]).values[0]


def workers():
    return [each.process.pid for each in sandbox.workers(sandbox.tier()).idle]


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal on Windows")
def test_a_worker_that_dies_at_work_costs_its_program_alone(tier):
    assert double(1) == 2
    *_, worker = workers()  # the one that is taken next
    with ThreadPoolExecutor() as pool:
        spins = pool.submit(sandbox.run, "while True: pass", timeout_s=30)
        while worker in workers():
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        outcome = spins.result()
    assert (outcome.status, outcome.backstop) == ("killed", False)
    assert double(1) == 2


def test_several_threads_at_once(tier):
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(double, range(24)))
    assert answers == [2 * n for n in range(24)]
    assert len(workers()) <= usable_cores()


SCRIPT = """
import os, signal, sys, threading, time
from mas_lab.tasks import sandbox
sandbox.tier = lambda: {tier!r}
def value(n):
    return sandbox.run("def f(x): return x * 2", "f", [[n]]).values[0]
def workers():
    return [child.process.pid for child in sandbox.workers({tier!r}).idle]
def started():
    def parent(pid):
        return int(open(f"/proc/{{pid}}/stat").read().rsplit(")", 1)[1].split()[1])
    children = workers()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return children + [pid for pid in pids if os.path.exists(f"/proc/{{pid}}/stat") and parent(pid) in children]
assert value(1) == 2
"""
FORK = """
mine = workers()
pid = os.fork()
if pid == 0:
    right = value(2) == 4 and not set(workers()) & set(mine)
    sys.exit(0 if right else 3)
assert os.waitpid(pid, 0)[1] == 0
assert workers() == mine and value(3) == 6 and workers() == mine
print("right")
"""
INTERRUPT = """
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    sandbox.run("while True: pass", timeout_s=60)
except KeyboardInterrupt:
    assert value(4) == 8
    print("right")
"""
END = """
threading.Timer(0.5, os.kill, (os.getpid(), signal.{signal})).start()
print(*started(), flush=True)
sandbox.run("while True: pass", timeout_s=200)
"""


def script(tier, folder, text):
    """Run a script without `if __name__ == "__main__"`."""
    (folder / "script.py").write_text(SCRIPT.format(tier=tier) + text, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", str(folder / "script.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork and no such signal on this platform")
@pytest.mark.parametrize("text", [FORK, INTERRUPT], ids=["fork", "interrupt"])
def test_the_next_program_runs_after_a_fork_or_an_interrupt(tier, tmp_path, text):
    done = script(tier, tmp_path, text)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT"])
def test_what_was_started_ends_with_its_parent_in_the_middle_of_a_program(tier, tmp_path, end):
    started = script(tier, tmp_path, END.format(signal=end)).stdout.split()
    assert len(started) == {"pyeryx": 1, "monty": 2}[tier]
    last = time.monotonic() + 60
    while any(map(_runs, started)):
        assert time.monotonic() < last, "a worker goes on"
        time.sleep(0.05)


def _runs(pid: str) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
