"""Answer questions in a child process, one JSON line each, so that code may hang or crash there alone.

`Child(file)` runs this file, which runs `file` and takes the function that its `prepare()` returns. `multiprocessing`
would run the caller's own script again in each process. Both files import nothing of the package. The callers decide
what is asked, and how many children there are.
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
    """Error for a child without an answer: `late` if it was ended for taking too long, else it died (`code`)."""

    def __init__(self, late: bool, code: int | None):
        super().__init__("ended for taking too long" if late else f"ended with {code}")
        self.late, self.code = late, code


class Child:
    """Child process that starts at once and answers one question at a time.

    Raises `ChildEnded` if the program does not start.
    """

    def __init__(self, program: str | Path):
        command = [sys.executable, "-P", __file__, str(program)]  # -P: an import must not find a file of this folder
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
        """Return the answer (plain data); raise `ChildEnded` if none comes in time, and the child is then gone."""
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
            self.close()  # a late answer would be taken for the answer to the next question
            raise
        finally:
            clock.cancel()
        if not line.endswith("\n"):
            raise self._ended(late.is_set())
        if late.is_set():  # the answer is complete, but the clock has ended the child
            self.close()
        return json.loads(line)

    def _ended(self, late: bool) -> ChildEnded:
        self.close()
        return ChildEnded(late, self.process.returncode)

    def _kill(self) -> None:
        """End the child and the processes that it started, which would run on to their own limit."""
        if self.process.returncode is None:  # no other process can get its number before it is waited for
            _end_group(self.process.pid)
            self.process.kill()

    def close(self) -> None:
        self._kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # unwritten data for a process that is gone
                pipe.close()


def serve(program: str) -> None:
    """Answer each line of standard input; what the program prints goes to standard error, outside the protocol."""
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
    """End this process when its parent has ended; a fork of the parent could otherwise keep the pipe open.

    Windows keeps the number of an ended parent, so this does nothing there.
    """
    while os.getppid() == parent:
        time.sleep(1)
    _end_group(os.getpid())
    os._exit(0)


def _end_group(leader: int) -> None:
    """End a child and the processes that it started, if the system has groups of processes."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # all of them are gone (macOS says: not permitted)
            os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__":
    serve(sys.argv[1])
