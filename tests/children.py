"""What the tests of runs do in processes of their own: go on with runs, and die while writing one.

python children.py finish MODELS RUNS STEPS          every run below RUNS, named kind-..., to STEPS steps
python children.py killed MODELS RUNS STEPS MOMENT.. a run killed at each of these writes, then finished
python children.py shot MODELS RUN STEPS TIMES SEED  one run, killed at random times, then finished
python children.py interrupted MODELS RUNS STEPS TIMES SEED  runs interrupted at a random time each, then finished
python children.py forked MODELS RUN STEPS MOMENT..  a fork of RUN, killed at each of these writes, then made
python children.py merged RUN UNTIL                   copies of RUN, each killed at another write of a merge

What is killed or interrupted has the kind of team that RUNS is named after, else a shared one.
MERGED in the environment: so many steps fill a file.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import small

from mas_lab.runs import merging
from mas_lab.runs.manifest import Manifest
from mas_lab.runs.run import load_run

WRITES = ("fsync", "rename", "replace", "unlink", "mkdir", "rmdir")


def go_on(models: Path, run: Path, steps: int) -> None:
    kind = run.name.partition("-")[0]
    for _ in small.start(kind, models, run, steps):
        pass


def warm_up(models: Path) -> None:
    """Import what a training imports late, once for all forks; nothing here starts a thread."""
    import pyarrow.parquet  # noqa: F401

    small.make_team("shared", models)


def in_a_fork(work: Callable[[], None], patience: float | None = None) -> int:
    """Runs `work` in a fork, killed after `patience` seconds if it lives so long; the signal that ended it, or 0."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    if patience is not None:
        time.sleep(patience)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a fork failed; its error stands above")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def dying(work: Callable[[], None], moment: int) -> Callable[[], None]:
    """`work`, killed by SIGKILL just before its `moment`-th change of a file or folder, counted from 1."""
    seen = 0

    def counted(call):
        def wrapper(*arguments, **options):
            nonlocal seen
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    def work_and_die() -> None:
        for name in WRITES:
            setattr(os, name, counted(getattr(os, name)))
        work()

    return work_and_die


def interrupting(work: Callable[[], None], after: float) -> Callable[[], None]:
    """`work`, interrupted as by Ctrl-C between two instructions after so many seconds; then it ends by that signal."""

    def work_and_stop() -> None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            work()
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)

    return work_and_stop


def kind_of(runs: Path) -> str:
    return runs.name if runs.name in small.KINDS else "shared"


def killed(models: Path, runs: Path, steps: int, moments: list[int]) -> None:
    for moment in moments:
        run = runs / f"{kind_of(runs)}-{moment}"
        ended = in_a_fork(dying(lambda run=run: go_on(models, run, steps), moment))
        in_a_fork(lambda run=run: go_on(models, run, steps))
        print(json.dumps({"moment": moment, "ended": ended, "bits": small.bits(run)}), flush=True)
        if not ended:
            return  # it was through before that moment came


def forked(models: Path, run: Path, steps: int, moments: list[int]) -> None:
    """What `there` is after a death: the steps of the fork, or None."""
    for moment in moments:
        fork = run.with_name(f"fork-{moment}")

        def work(fork=fork) -> None:
            list(small.start("shared", models, fork, steps, fork=run, score_every=2, score_tasks=2, score_episodes=1))

        ended = in_a_fork(dying(work, moment))
        there = load_run(fork).steps if (fork / "run.json").is_file() else None
        in_a_fork(work)
        print(json.dumps({"moment": moment, "ended": ended, "there": there, "bits": small.bits(fork)}), flush=True)
        if not ended:
            return


def taken(work: Callable[[], None]) -> float:
    """Seconds of `work` in a process of its own."""
    began = time.perf_counter()
    in_a_fork(work)
    return time.perf_counter() - began


def shot(models: Path, run: Path, steps: int, times: int, seed: int) -> None:
    """Killed by the clock, and the clock set by this machine: none of `times` tries has a sixth of the time it takes,
    nor all together much more than that."""
    whole = taken(lambda: go_on(models, run.with_name(f"{run.name}-whole"), steps))
    rng, longest = random.Random(seed), 2 * whole / times
    deaths = sum(in_a_fork(lambda: go_on(models, run, steps), rng.uniform(0, longest)) > 0 for _ in range(times))
    in_a_fork(lambda: go_on(models, run, steps))
    print(json.dumps({"deaths": deaths, "bits": small.bits(run)}), flush=True)


def interrupted(models: Path, runs: Path, steps: int, times: int, seed: int) -> None:
    rng, whole = random.Random(seed), taken(lambda: go_on(models, runs / f"{kind_of(runs)}-whole", steps))
    for number in range(times):
        run, after = runs / f"{kind_of(runs)}-{number}", rng.uniform(0.01, whole)
        ended = in_a_fork(interrupting(lambda run=run: go_on(models, run, steps), after))
        in_a_fork(lambda run=run: go_on(models, run, steps))
        print(json.dumps({"after": after, "ended": ended, "bits": small.bits(run)}), flush=True)


def merged(run: Path, until: int) -> None:
    moment, ended = 0, 9
    while ended:
        moment += 1
        copy = Path(shutil.copytree(run, run.with_name(f"{run.name}-{moment}")))
        ended = in_a_fork(dying(lambda copy=copy: merging.merge(Manifest(copy), until, list), moment))
        print(json.dumps({"copy": str(copy), "ended": ended}), flush=True)


if __name__ == "__main__":
    merging.STEPS = int(os.environ.get("MERGED", merging.STEPS))
    what, *arguments = sys.argv[1:]
    if what == "merged":
        sys.exit(merged(Path(arguments[0]), int(arguments[1])))
    models, where, steps, rest = *map(Path, arguments[:2]), int(arguments[2]), list(map(int, arguments[3:]))
    if what == "finish":
        for run in sorted(where.iterdir()):
            go_on(models, run, steps)
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        warm_up(models)
        if what in ("killed", "forked"):
            {"killed": killed, "forked": forked}[what](models, where, steps, rest)
        else:
            {"shot": shot, "interrupted": interrupted}[what](models, where, steps, *rest)
