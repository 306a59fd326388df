"""Keep a run while it is trained, so that a stopped or killed training can continue bit for bit.

Everything is written beside its place, flushed to disk, and renamed into it, also the folder of a new run. So a run
that is killed at any moment holds only complete files. A step counts once its turns are in place, which are written
last. One process at a time writes. A run continues only if it asks for the same training. Leaves out: the content of
the folder (`run`), and the steps (`train`).
"""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.describe import differences
from mas_lab.runs.disk import TABLE, RunError, Unwritten, atomic, dumps, write_hashed, write_step
from mas_lab.runs.run import KEEPING, SCORES, TABLES, Checkpoint, Run
from mas_lab.team import Team

CHECKPOINTS_PER_RUN = 2
LOCK = "training.lock"
"""Locked by the process that trains in the folder."""
RUNS_ON = ("ranks", "device", "code", "sources", "versions")
"""Entries that may change when a run continues, although its results may change with them."""


class Recorder(Run):
    """The run folder of a training in progress."""

    _lock: Any = None
    """The lock on the folder while this training writes there."""
    _remembered: Any = None
    _runs_on: Mapping[str, Any] = {}
    """What the training runs on now; the next step records it if it is new."""

    def __init__(self, folder: Path):
        super().__init__(folder.absolute())  # the training may change the working folder

    def begin(
        self, config: Mapping[str, Any], team: Team, watch: Any = None, states: Mapping[str, Any] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Create the folder or continue in it; return the number of steps done and the `states` after those steps.

        `states` has the state of each part that learns, by its place in the training. Team and `watch` are set to their
        state after those steps. Until `end()`, no other training may write here. Raises `RunError`, which names the
        difference if the folder belongs to another run, or the file that cannot be written.
        """
        config = json.loads(dumps(config, self.folder / "run.json"))
        with self._saying_what_is_safe():
            is_there = (self.folder / "run.json").exists()
            if is_there and (different := differences(decisive(self.config), decisive(config))):
                raise RunError(
                    f"{self.folder}: cannot resume, {different}; ask for what the run has, or choose another folder"
                )
            try:
                if not is_there:
                    return self._create(config, team, watch, states or {})
                self._runs_on = runs_on(config)
                return self._resume(team, watch, states or {})
            except BaseException:
                self.end()
                raise

    def recorded_threads(self) -> int | None:
        """Return the number of threads of the existing run, or `None` if there is none."""
        return self.config.get("threads") if (self.folder / "run.json").is_file() else None

    @property
    def is_writing(self) -> bool:
        """Return whether this training has begun and not ended, so that nobody else writes in its folder."""
        return self._lock is not None

    def end(self) -> None:
        """Stop writing, so that others may train here."""
        if self.is_writing:
            self._lock.release()
            self._lock = None

    def _create(self, config: Mapping[str, Any], team: Team, watch: Any, states: Mapping[str, Any]) -> tuple:
        """Make the folder with a checkpoint of its first step, as a whole or not at all."""
        if self.folder.is_dir() and any(self.folder.iterdir()):
            raise RunError(f"{self.folder} is not empty and holds no run.json; choose another folder")
        with atomic(self.folder, is_folder=True) as staged:
            for name in (*TABLES, SCORES):
                (staged / name).mkdir()
            step, config, states = self._take_over(staged, config, team, states)
            write_hashed(staged / "run.json", config)
            self._remind(watch, Run(staged))
            self._write(staged, step, team, watch, states)
        self._lock = _locked(self.folder)
        return step, states

    def _take_over(self, staged: Path, config: Mapping[str, Any], team: Team, states: Mapping[str, Any]) -> tuple:
        """Return the first step, the content of run.json, and the states."""
        return 0, config, states

    def _resume(self, team: Team, watch: Any, states: Mapping[str, Any]) -> tuple:
        self._lock = _locked(self.folder)
        checkpoint = self.checkpoint()
        for name in TABLES:
            self.parts(name)  # raises RunError if a table is missing
        state = checkpoint.state
        if other := sorted(state["memory"].keys() ^ states.keys()):
            raise RunError(
                f"{self.folder}: cannot resume, the {other[0]} learns (it has a state) in the run or in this call, not "
                "in both; pass the one that the run was made with, or choose another folder"
            )
        checkpoint.load_into(team)
        self._forget_after(checkpoint.step)
        self._tidy()
        self._remembered = state["watch"]
        self._remind(watch, self)
        return checkpoint.step, state["memory"]

    def _remind(self, watch: Any, run: Run) -> None:
        """Restore the state of an earlier watch; every watch counts all steps, even if it joins late.

        The records of the `SpikeWatch` that a kept run has by default are no state of another watch.
        """
        remembered = self._remembered or {}
        if hasattr(watch, "load_state") and remembered and ("rule" not in remembered or hasattr(watch, "rule")):
            watch.load_state(remembered)
        if hasattr(watch, "join") and run.steps:
            watch.join(run.stats)

    def _forget_after(self, step: int) -> None:
        """Delete what a kill left, and the tables beyond the checkpoint, which are made again bit for bit."""
        for name in TABLES:  # turns before stats and the newest step first, so that a kill leaves no gap
            for path in sorted((self.folder / name).iterdir(), reverse=True):
                if (found := TABLE.fullmatch(path.name)) and int(found[1]) >= step:
                    path.unlink()
        for path in sorted(self.folder.rglob("*.tmp")):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def tables(self, step: int, turns: pd.DataFrame, stats: pd.DataFrame) -> None:
        """Write the tables of one step."""
        with self._saying_what_is_safe():
            self._record_what_it_runs_on(step)
            write_step(self.folder / "stats", step, stats)
            write_step(self.folder / "turns", step, in_lists(turns))

    def _record_what_it_runs_on(self, step: int) -> None:
        """Write to run.json if this step ran on other code, sources, versions or devices than those before it."""
        config = self.config
        continued = [one for one in config.get("continued", []) if one["step"] < step]
        before = {name: value for one in (config, *continued) for name, value in runs_on(one).items()}
        if other := {name: value for name, value in self._runs_on.items() if value != before.get(name, {})}:
            continued.append({"step": step, **other})
        if continued != config.get("continued", []):
            write_hashed(self.folder / "run.json", {**config, "continued": continued})

    def save(self, step: int, team: Team, watch: Any = None, states: Mapping[str, Any] | None = None) -> None:
        """Write a checkpoint after `step` steps."""
        if (self.folder / "checkpoints" / f"{step:06d}").exists():
            return
        with self._saying_what_is_safe():
            self._write(self.folder, step, team, watch, states)
            self._tidy()

    def _write(self, folder: Path, step: int, team: Team, watch: Any, states: Mapping[str, Any] | None) -> None:
        watched = watch.state() if hasattr(watch, "state") else self._remembered
        Checkpoint.write(folder / "checkpoints" / f"{step:06d}", team, watched, states)

    def _tidy(self) -> None:
        """Delete all but the newest checkpoints."""
        for old in self._checkpoints()[:-CHECKPOINTS_PER_RUN]:
            with suppress(OSError):  # Windows keeps a file that somebody reads; the next call deletes it
                shutil.rmtree(old.rename(old.with_suffix(".tmp")))

    @contextmanager
    def _saying_what_is_safe(self) -> Iterator[None]:
        """Add to an error of writing which part of the run is safe."""
        try:
            yield
        except (Unwritten, OSError) as error:
            safe = "nothing was kept; choose another folder"
            if checkpoints := self._checkpoints():
                step = int(checkpoints[-1].name)
                safe = f"the run is whole up to step {step}, and the same command goes on from there"
            raise RunError(f"{self.folder}: cannot keep the run ({error}); {safe}") from error


def _locked(folder: Path) -> Any:
    """Return a lock on the folder; raise RunError if another training has it."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / LOCK, timeout=0, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        raise RunError(
            f"{folder}: another training writes in this folder; end it first (a loop by .close(), a dashboard by "
            ".stop() and .wait(), another process by Ctrl+C), or choose another folder"
        ) from None
    return lock


def in_lists(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a list in every row's `advantage` if any row has one: a column of a file has one type."""
    if "advantage" not in turns.columns or is_numeric_dtype(turns["advantage"]):
        return turns
    pairs = zip(turns["advantage"], turns["completion_ids"], strict=True)
    lists = [np.broadcast_to(np.asarray(one, float), len(ids)).tolist() for one, ids in pairs]
    return turns.assign(advantage=pd.Series(lists, turns.index, dtype=object))


def runs_on(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device, code, sources and versions of a run or its continuation, if run.json records them."""
    return {name: config[name] for name in RUNS_ON if name in config}


def decisive(config: Mapping[str, Any], without: Collection[str] = KEEPING) -> dict[str, Any]:
    """Return the part of a config that decides the results, without how it is kept and what it runs on.

    `without` lists the settings that are left out. A custom env is identified by class and options, since it may move
    from a notebook to a file.
    """
    env = dict(config.get("env") or {})
    if ":" in env.get("name", ""):
        env["name"] = env["name"].rpartition(":")[2].rpartition(".")[2]
    settings = {key: value for key, value in (config.get("settings") or {}).items() if key not in without}
    same = {key: config.get(key) for key in ("curriculum", "seed", "threads")}
    return {"env": env, "recipe": config.get("recipe"), **same, "settings": settings}
