"""Keeping a run: a folder with the recipe, the tables and checkpoints, from which training goes on bit for bit.

    runs/<name>/run.json                      what was asked: env, recipe, seed, settings, versions, threads
    runs/<name>/turns/000007.parquet          the table of step 7, with what it scored; stats/ beside it
    runs/<name>/checkpoints/000008/           the team after 8 steps: safetensors and JSON, with their sha256

Everything is written beside its place, flushed to disk, and renamed into it, so that a run killed at any moment holds
only whole files. Leaves out: what a step is (`train`).
"""

import json
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from mas_lab import recipes
from mas_lab.checkpoint import Checkpoint
from mas_lab.disk import (
    Files,
    RunError,
    differences,
    dumps,
    read_json,
    read_table,
    read_tables,
    write_json,
    write_table,
)
from mas_lab.team import Team

KEEPING = ("save_every", "workers", "check")
"""Settings that a resumed run may change."""
TABLES = ("turns", "stats")
KEPT_CHECKPOINTS = 2
SCORES = "scores"
"""The folder of held-out scores beside those of `TABLES`, see `scores.keep_scores`."""
LOCK = "training.lock"
"""Held by the process that trains in the folder; the file stays when it has ended."""
WATCH, TOKENS = "watch.json", "tokens.json"
"""What an exported zip holds in the place of checkpoints, for those who read it."""


def runs_dir() -> Path:
    """Where runs are kept: a mounted Drive on Colab, the working folder on Kaggle, else `runs/` (or MAS_LAB_RUNS)."""
    if "MAS_LAB_RUNS" in os.environ:
        return Path(os.environ["MAS_LAB_RUNS"])
    drive, kaggle = Path("/content/drive/MyDrive"), Path("/kaggle/working")
    if drive.is_dir():
        return drive / "mas_lab_runs"
    return kaggle / "runs" if kaggle.is_dir() else Path("runs")


class Run:
    """A run folder or an exported zip, for reading. `load_run` makes one."""

    def __init__(self, folder: Files):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.config['recipe'].get('name')}, {self.steps} steps)"

    @property
    def config(self) -> dict[str, Any]:
        return read_json(self.folder / "run.json")

    @property
    def recipe(self) -> "recipes.Recipe":
        return recipes.from_data(self.config["recipe"])

    @property
    def steps(self) -> int:
        """Training steps whose tables are in the folder."""
        return len(self.parts("stats"))

    @property
    def turns(self) -> pd.DataFrame:
        """All turns of the run, `mas_lab.table.SCHEMA`."""
        return self.read("turns")

    @property
    def stats(self) -> pd.DataFrame:
        """What `update` returned at each step, with the column `step`."""
        return self.read("stats")

    def step_turns(self, step: int, columns: list[str] | None = None) -> pd.DataFrame:
        """The turns of one training step (from 0), or some `columns` of them, without reading the others."""
        return read_table(self.part(step), columns)

    def part(self, step: int) -> Files:
        """The file of one step's turns."""
        path = self.folder / "turns" / f"{step:06d}.parquet"
        if not path.is_file():
            raise RunError(f"{self.folder}: there is no step {step}; the run holds {self.steps} steps, from 0")
        return path

    def parts(self, name: str) -> list[Files]:
        """The files of one table, a step each, in order."""
        folder = self.folder / name
        parts = [path for path in folder.iterdir() if _is_part(path.name)] if folder.is_dir() else []
        return sorted(parts, key=lambda path: path.name)

    def read(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """One table ("turns" or "stats") of all steps, or some `columns` of it, without reading the others."""
        parts = self.parts(name)
        if not parts:
            raise RunError(f"{self.folder}: the run holds no {name} yet; let train() make a step first")
        table = read_tables(parts, columns)
        missing = [column for column in columns or () if column not in table.columns]
        if missing:
            raise RunError(f"{self.folder}: its {name} have no column {missing[0]!r}; they were not written by train()")
        return table

    def watched(self) -> dict[str, Any] | None:
        """What the run's watch remembered, if that had a `state()`: in the newest checkpoint, or in an exported zip."""
        if isinstance(self.folder, zipfile.Path):
            path = self.folder / WATCH
            return read_json(path) if path.is_file() else None
        folders = self._checkpoints()
        return Checkpoint(folders[-1]).state["watch"] if folders else None

    def token_texts(self) -> dict[str, dict[str, str]]:
        """Policy -> token id -> text, of all tokens in the run's completions, as far as tokenizers were kept."""
        if isinstance(self.folder, zipfile.Path):
            path = self.folder / TOKENS
            return read_json(path) if path.is_file() else {}
        if not self._checkpoints() or not self.parts("turns"):
            return {}
        checkpoint = Checkpoint(self._checkpoints()[-1])
        said = read_tables(self.parts("turns"), ["policy", "completion_ids"]).explode("completion_ids").dropna()
        texts = {}
        for policy, ids in said.groupby("policy")["completion_ids"]:
            tokenizer = checkpoint.tokenizer(policy)
            if tokenizer is not None:
                known = sorted(map(int, ids.unique()))
                texts[policy] = {str(one): tokenizer.decode([one], skip_special_tokens=False) for one in known}
        return texts

    def checkpoint(self) -> "Checkpoint":
        """The newest checkpoint, checked against its hashes."""
        if isinstance(self.folder, zipfile.Path):
            raise RunError(f"{self.folder}: an exported run holds tables, not weights; load the run's folder instead")
        folders = self._checkpoints()
        if not folders:
            raise RunError(f"{self.folder}: the run holds no checkpoint; start it again in another folder")
        checkpoint = Checkpoint(folders[-1])
        checkpoint.verify()
        return checkpoint

    def _checkpoints(self) -> list[Path]:
        """Whole checkpoints, oldest first; what a kill left half-written has another name."""
        return sorted(path for path in (self.folder / "checkpoints").glob("*") if path.name.isdigit() and path.is_dir())

    def team(self) -> Team:
        """The team of the newest checkpoint, rebuilt from the folder alone."""
        return self.checkpoint().team()


class Recorder(Run):
    """The run folder of a training in progress."""

    _writers: ClassVar[dict[Path, "Recorder"]] = {}
    _lock = None
    _remembered: Any = None

    def begin(self, config: Mapping[str, Any], team: Team, watch: Any = None) -> int:
        """Create the folder, or go on in it: returns the number of steps done, with the team as it was after them.

        Raises `RunError` naming what differs if the folder belongs to another run, or what cannot be written. Until
        `end()`, no other process may train here; a later training in this one takes the folder over.
        """
        config = json.loads(dumps(config, self.folder / "run.json"))
        with _naming(self.folder):
            if self._was_started():
                self._refuse_another(config)
            try:
                return self._resume(team, watch) if self._was_kept() else self._create(config, team, watch)
            except BaseException:
                self.end()
                raise

    def _claim(self) -> None:
        from filelock import FileLock, Timeout

        place = self.folder.resolve()
        former = self._writers.get(place)
        lock = former._lock if former else FileLock(place / LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise RunError(
                f"{self.folder}: another process is training in this folder; end it first, or choose another folder"
            ) from None
        self._lock, self._writers[place] = lock, self

    def end(self) -> None:
        """Write no more: others may train here now."""
        if not self.is_superseded():
            self._lock.release(force=True)
            del self._writers[self.folder.resolve()]

    def _was_started(self) -> bool:
        if (self.folder / "run.json").exists():
            return True
        if self.folder.exists() and any(entry.name not in ("run.json.tmp", LOCK) for entry in self.folder.iterdir()):
            raise RunError(f"{self.folder} is not empty and holds no run.json; choose another folder")
        return False

    def _was_kept(self) -> bool:
        """Is there something to go on from? A start that was killed before its first checkpoint leaves nothing."""
        return bool(self._checkpoints() or any(self.parts(name) for name in TABLES))

    def _create(self, config: Mapping[str, Any], team: Team, watch: Any) -> int:
        existed = self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claim()
        try:
            write_json(self.folder / "run.json", config)
            for name in (*TABLES, "checkpoints"):
                (self.folder / name).mkdir(exist_ok=True)
            self.save(0, team, watch)
        except BaseException:
            for name in (*TABLES, "checkpoints"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            self.end()
            for name in ("run.json", "run.json.tmp", LOCK):
                (self.folder / name).unlink(missing_ok=True)
            if not existed:
                self.folder.rmdir()
            raise
        return 0

    def _resume(self, team: Team, watch: Any) -> int:
        self._claim()
        checkpoint = self.checkpoint()
        self._refuse_gaps(checkpoint.step)
        checkpoint.load_into(team)
        self._forget_after(checkpoint.step)
        self._remembered = checkpoint.state["watch"]
        self._remind(watch)
        return checkpoint.step

    def _remind(self, watch: Any) -> None:
        """A run may be left and joined by a watch: what one remembered is kept, and every one counts all steps."""
        if hasattr(watch, "load_state") and self._remembered is not None:
            watch.load_state(self._remembered)
        if hasattr(watch, "join") and self.steps:
            watch.join(self.stats)

    def _refuse_another(self, config: Mapping[str, Any]) -> None:
        different = differences(_decisive(self.config), _decisive(config))
        if different:
            raise RunError(
                f"{self.folder}: cannot resume, {different}; ask for what the run has, or choose another folder"
            )

    def _refuse_gaps(self, step: int) -> None:
        """A checkpoint after `step` steps stands on the tables of every one of them."""
        for name in TABLES:
            for number in range(step):
                path = self.folder / name / f"{number:06d}.parquet"
                if not path.is_file():
                    raise RunError(f"{path} is missing; put it back, or start again in another folder")

    def _forget_after(self, step: int) -> None:
        """Tables beyond the checkpoint are made again, bit for bit; what was half-written goes."""
        for name in TABLES:
            for path in self.parts(name)[step:]:
                path.unlink()
            for path in (self.folder / name).glob("*.tmp"):
                path.unlink()
        for path in (self.folder / "checkpoints").glob("*.tmp"):
            shutil.rmtree(path)

    def is_superseded(self) -> bool:
        """Has this training ended, or a later one in this process taken the folder over? Then it must write no more."""
        return self._writers.get(self.folder.resolve()) is not self

    def tables(self, step: int, turns: pd.DataFrame, stats: pd.DataFrame, notes: Mapping[str, Any] | None = None):
        """The tables of one step; `notes` about its turns go into their file."""
        write_table(self.folder / "turns" / f"{step:06d}.parquet", turns, notes)
        write_table(self.folder / "stats" / f"{step:06d}.parquet", stats)

    def save(self, step: int, team: Team, watch: Any = None) -> None:
        """A checkpoint after `step` steps; the two newest are kept."""
        folder = self.folder / "checkpoints" / f"{step:06d}"
        if folder.exists():
            return
        Checkpoint.write(folder, team, watch.state() if hasattr(watch, "state") else self._remembered)
        for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old.rename(old.with_suffix(".tmp")))


def load_run(path: str | Path) -> Run:
    """A run by its folder, by its name under `runs_dir()`, or from an exported zip: `.turns`, `.stats`, `.recipe`,
    and, where the folder is there, `.team()`."""
    for folder in (run_folder(path), Path(path)):
        if (folder / "run.json").is_file():
            return Run(folder)
        if folder.is_file():
            return Run(_open_zip(folder))
    known = sorted(entry.parent.name for entry in runs_dir().glob("*/run.json"))
    raise RunError(
        f"no run at {path} or {run_folder(path)}: there is no run.json; runs in {runs_dir()}: "
        f"{', '.join(known) or 'none'}"
    )


def run_folder(run: str | Path) -> Path:
    """Where a run is kept: a bare name goes under `runs_dir()`, anything with a separator is a path."""
    return runs_dir() / run if Path(run).name == str(run) else Path(run)


def _open_zip(path: Path) -> zipfile.Path:
    try:
        inside = zipfile.Path(path)
    except zipfile.BadZipFile as error:
        raise RunError(f"{path} is neither a run's folder nor a zip made by export() ({error})") from None
    if not (inside / "run.json").is_file():
        raise RunError(f"{path} holds no run.json, so it was not made by export()")
    return inside


def export(run: Run | str | Path, path: str | Path) -> Path:
    """One zip with the run's tables and description, without weights: what a student hands in.

    It also holds what a `SpikeWatch` recorded and the text of every token that was said, for the instruments.
    """
    run = run if isinstance(run, Run) else load_run(run)
    target = Path(path)
    staged = target.with_name(target.name + ".tmp")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run.json", (run.folder / "run.json").read_bytes())
        for name, held in ((WATCH, run.watched()), (TOKENS, run.token_texts())):
            if held:
                archive.writestr(name, dumps(held, run.folder / name))
        for name in (*TABLES, SCORES):
            for part in run.parts(name):
                archive.writestr(f"{name}/{part.name}", part.read_bytes())
    staged.replace(target)
    return target


def _is_part(name: str) -> bool:
    """`000007.parquet`, and nothing that was left half-written or put there by hand."""
    stem, _, suffix = name.partition(".")
    return stem.isdigit() and suffix == "parquet"


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """An error of the file system, with the run that met it."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder}: cannot keep a run here ({error}); choose another folder") from error


def _decisive(config: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the results of a run: all that was asked for, but for how often it is kept and what it runs on."""
    asked = {key: config.get(key) for key in ("env", "recipe", "seed", "settings", "threads")}
    settings = asked["settings"] or {}
    return asked | {"settings": {key: value for key, value in settings.items() if key not in KEEPING}}
