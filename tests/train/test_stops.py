"""Wherever training stops, it leaves a checkpoint of its newest whole step; the same call ends as if it never had."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import small

import mas_lab as lab
from mas_lab.runs.run import Checkpoint

STEPS, STOPPED = 2, 1
SETTINGS = small.SETTINGS | {"save_every": 100}


class Fault:
    """What breaks, in which part, while the second training step is made."""

    def __init__(self):
        self.part, self.answer, self.armed, self.draws, self.calls = "", None, False, 0, 0

    def drawn(self, split: str) -> None:
        self.draws += split == "train"
        self.armed = self.draws == STOPPED + 1

    def __call__(self, part: str, honest):
        return self.answer(honest) if self.armed and part == self.part else honest


FAULT = Fault()


@dataclass(frozen=True)
class Faulty(small.Relay):
    def tasks(self, n, split, seed):
        FAULT.drawn(split)
        return FAULT("tasks", super().tasks(n, split, seed))

    def step(self, state, actions):
        return FAULT("step", super().step(state, actions))


@dataclass(frozen=True)
class judged:
    def __call__(self, turns):
        return FAULT("credit", lab.mixed()(turns))


class Watch(small.Memory):
    def __call__(self, batch):
        super().__call__(batch)
        FAULT("watch", batch.name)


def start(models, run, steps=STEPS, **changes):
    team, recipe = small.make_team("shared", models), small.RECIPE.replace(credit=judged())
    FAULT.draws = run.is_dir() and lab.load_run(run).steps
    return lab.train(Faulty(), team, recipe, steps, run=run, watch=Watch(), **SETTINGS | changes)


@pytest.fixture(scope="module")
def straight(models, tmp_path_factory):
    run = tmp_path_factory.mktemp("straight") / "run"
    list(start(models, run))
    return small.bits(run)


@pytest.fixture(autouse=True)
def whole():
    yield
    FAULT.__init__()


def breaking(part, answer):
    FAULT.part, FAULT.answer = part, answer


def raising(error):
    def answer(honest):
        raise error

    return answer


STOPPING = {
    "tasks raises": ("tasks", raising(OSError("gone")), r"Faulty\.tasks\(2, 'train', seed=\d+\) failed: OSError: gone"),
    "tasks gives no tasks": ("tasks", lambda honest: ["a", "b"], r"Faulty\.tasks\(2, .* gave 'a'; .*list of lab\.Task"),
    "a script ends in step": ("step", raising(SystemExit("stop")), "stop"),
} | {f"an interrupt in {part}": (part, raising(KeyboardInterrupt("stop")), "stop")
     for part in ("tasks", "step", "credit", "watch")}  # fmt: skip


def newest(run: Path) -> int:
    """The newest checkpoint; all that stand are whole, with the tables of their steps."""
    for folder in (run / "checkpoints").iterdir():
        if folder.suffix != ".tmp":
            Checkpoint(folder).verify()
    assert lab.load_run(run).steps >= lab.load_run(run).checkpoint().step
    return lab.load_run(run).checkpoint().step


def goes_on(models, run, straight, **changes) -> None:
    FAULT.__init__()
    list(start(models, run, **changes))
    assert small.bits(run) == straight


@pytest.mark.parametrize("case", STOPPING)
def test_it_stops_with_a_checkpoint_and_goes_on_bit_for_bit(models, straight, tmp_path, case):
    part, answer, words = STOPPING[case]
    training = start(models, tmp_path / "run")
    breaking(part, answer)
    with pytest.raises((KeyboardInterrupt, SystemExit, lab.RolloutError, lab.EnvError), match=words):
        list(training)
    assert newest(tmp_path / "run") == STOPPED and not list((tmp_path / "run").rglob("*.tmp"))
    goes_on(models, tmp_path / "run", straight)


@pytest.mark.parametrize("moment", ["between two optimizer steps", "turns", "stats"])
def test_an_interrupt_without_a_checkpoint_goes_on_from_the_newest(models, straight, tmp_path, monkeypatch, moment):
    """It comes between two optimizer steps, or while a table of the step is written."""
    write = Path.write_bytes

    def at_the_second(policy):
        FAULT.calls += 1
        if FAULT.calls == 2:
            raise KeyboardInterrupt

    def interrupted(where, held):
        if where.as_posix().endswith(f"{moment}/{STOPPED - 1:06d}.parquet.tmp"):
            raise KeyboardInterrupt
        return write(where, held)

    training = start(models, tmp_path / "run")
    breaking("watch", at_the_second)
    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(training)
    monkeypatch.undo()
    assert newest(tmp_path / "run") == 0
    goes_on(models, tmp_path / "run", straight)


def test_a_checkpoint_that_cannot_be_made_leaves_whole_files_and_says_so(models, straight, tmp_path, monkeypatch):
    training = start(models, tmp_path / "run")
    next(training)
    breaking("step", raising(ValueError("of the env")))
    monkeypatch.setattr("mas_lab.runs.run.digest_of", raising(OSError(28, "No space left on device")))
    with pytest.raises(lab.RolloutError, match="ValueError: of the env") as caught:
        list(training)
    [note] = caught.value.__notes__
    assert "no checkpoint of step 1 was kept: RunError: " in note and "[Errno 28] No space left on device" in note
    monkeypatch.undo()
    assert newest(tmp_path / "run") == 0
    goes_on(models, tmp_path / "run", straight)


@pytest.mark.parametrize("scored", [0, STEPS])
def test_it_stops_while_it_is_scored_and_makes_the_score_when_it_goes_on(models, straight, tmp_path, scored):
    scoring, settings = [], {"score_every": 1, "score_tasks": 2, "score_episodes": 1}

    def due_score(tasks):
        scoring.append(tasks[0].id)
        if scoring[-1].startswith("test") and len([name for name in scoring if name[:4] == "test"]) == scored + 1:
            raise KeyboardInterrupt
        return tasks

    training = start(models, tmp_path / "run", **settings)
    breaking("tasks", due_score)
    FAULT.drawn = lambda split: setattr(FAULT, "armed", True)
    with pytest.raises(KeyboardInterrupt):
        list(training)
    assert newest(tmp_path / "run") == scored
    del FAULT.drawn
    goes_on(models, tmp_path / "run", straight, **settings)
    assert sorted(path.stem[:6] for path in (tmp_path / "run" / "scores").iterdir()) == ["000000", "000001", "000002"]


def script(text: str, *arguments) -> subprocess.Popen:
    command, pipe = [sys.executable, "-c", text, *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, env=small.environment(), stdout=pipe, stderr=pipe, text=True)


ENDING = """
import sys
from pathlib import Path
import small
training = small.start("shared", Path(sys.argv[1]), Path(sys.argv[2]), 4, save_every=100)
next(training), next(training)
sys.exit("enough")
"""


@pytest.mark.slow
def test_a_script_that_ends_in_the_middle_leaves_a_checkpoint(models, tmp_path):
    child = script(ENDING, models, tmp_path / "run")
    _, said = child.communicate(timeout=120)
    assert (child.returncode, said.splitlines()[-1]) == (1, "enough")
    assert newest(tmp_path / "run") == 2
