"""A process of its own that answers questions, one JSON line each: what may hang or crash does so there, alone.

`Child(file)` runs this file, which runs `file` and takes the function that its `prepare()` returns. `multiprocessing`
would run the caller's own script anew in each process. Both files import nothing of the package. Leaves out: what is
asked, and how many children there are.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

READY = '"ready"\n'


class ChildEnded(RuntimeError):
    """A child that gave no answer: `late` if it was ended for taking too long, else it died (`code`)."""

    def __init__(self, late: bool, code: int | None):
        super().__init__("ended for taking too long" if late else f"ended with {code}")
        self.late, self.code = late, code


class Child:
    """Started at once. Raises `ChildEnded` where the program does not start. One question at a time."""

    def __init__(self, program: str | Path):
        command = [sys.executable, "-P", __file__, str(program)]  # -P: `import math` must not find the task there
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8", start_new_session=True
        )
        if self.process.stdout.readline() != READY:
            raise self._ended(late=False)

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer (plain data). Raises `ChildEnded` where none comes in time; the child is gone then."""
        late = threading.Event()
        clock = threading.Timer(seconds, lambda: (late.set(), self._kill()))
        clock.start()
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:  # a broken pipe, which Windows calls an invalid argument
            line = ""
        except BaseException:
            self.close()  # an answer that nobody waited for would be taken for that of the next question
            raise
        finally:
            clock.cancel()
        if not line.endswith("\n"):
            raise self._ended(late.is_set())
        if late.is_set():  # at the last moment: the answer is whole, the child is gone
            self.close()
        return json.loads(line)

    def _ended(self, late: bool) -> ChildEnded:
        self.close()
        return ChildEnded(late, self.process.returncode)

    def _kill(self) -> None:
        """With what it started itself, which would go on to its own limit."""
        if self.process.returncode is None:  # until it is waited for, nobody else has its number
            _end_group(self.process.pid)
            self.process.kill()

    def close(self) -> None:
        self._kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # what was not written to a process that is gone
                pipe.close()


def serve(program: str) -> None:
    """A child's life. What the program prints is not part of the protocol."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer = runpy.run_path(program)["prepare"]()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    answers.write(READY)
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answer(*json.loads(line))) + "\n")
        answers.flush()


def _end_with(parent: int) -> None:
    """A fork of the parent that outlives it would hold the pipe open. (Windows goes on naming the same parent.)"""
    while os.getppid() == parent:
        time.sleep(1)
    _end_group(os.getpid())
    os._exit(0)


def _end_group(leader: int) -> None:
    """Ends what a child started, and the child, where a system has groups of processes."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # all of it is gone (a Mac says: not permitted)
            os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
