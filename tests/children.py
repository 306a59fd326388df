"""What the tests of runs do in processes of their own: go on with runs, and end in the middle of writing one.

python children.py finish MODELS RUNS STEPS          every run below RUNS, named kind-..., to STEPS steps
python children.py killed MODELS RUNS STEPS MOMENT.. a run killed at each of these writes, then finished
python children.py interrupted ...                   the same, by Ctrl-C

What is killed or interrupted has the kind of team that RUNS is named after.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import small

from mas_lab.runs.run import load_run

WRITES = ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir")


def warm_up(models: Path) -> None:
    """Import what a training imports late, once for all forks; nothing here starts a thread."""
    import pyarrow.parquet  # noqa: F401

    small.make_team("shared", models)


def in_a_fork(work: Callable[[], None]) -> int:
    """Run `work` in a fork; return the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except KeyboardInterrupt:
            os._exit(signal.SIGINT)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended == 1:
        raise SystemExit("a fork failed; its error stands above")
    return abs(ended)


def ending(work: Callable[[], None], moment: int, by: int = signal.SIGKILL) -> Callable[[], None]:
    """`work`, which gets a signal just before its `moment`-th change of a file or folder, counted from 1."""
    seen = 0

    def counted(call):
        def wrapper(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), by)
            return call(*arguments, **options)

        return wrapper

    def work_and_end() -> None:
        for name in WRITES:
            setattr(os, name, counted(getattr(os, name)))
        work()

    return work_and_end


def ended(what: str, models: Path, where: Path, steps: int, moments: list[int]) -> None:
    """What `there` is after a death: the steps of the run, or None."""
    for moment in moments:
        run = where / f"{where.name}-{moment}"

        def work(run=run) -> None:
            list(small.start(where.name, models, run, steps))

        signalled = in_a_fork(ending(work, moment, signal.SIGINT if what == "interrupted" else signal.SIGKILL))
        there = load_run(run).steps if (run / "run.json").is_file() else None
        in_a_fork(work)
        print(json.dumps({"moment": moment, "ended": signalled, "there": there, "bits": small.bits(run)}), flush=True)
        if not signalled:
            return  # it was through before that moment came


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    models, where, steps, moments = *map(Path, arguments[:2]), int(arguments[2]), list(map(int, arguments[3:]))
    if what == "finish":
        for run in sorted(where.iterdir()):
            list(small.start(run.name.partition("-")[0], models, run, steps))
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        warm_up(models)
        ended(what, models, where, steps, moments)
