"""Keep a run while it is trained, so that a stopped or killed training can continue bit for bit.

Everything is written beside its place, flushed to disk, and renamed into it. So a run that is killed at any moment
holds only complete files. A step counts from the line of the manifest that names its tables. One process at a time
writes. Leaves out: the content of the folder (`run`), whether a run may continue (`resuming`), and the steps (`train`).
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.runs.checkpoint import Checkpoint
from mas_lab.runs.claim import HOLDER, LOCK, Claim
from mas_lab.runs.disk import RunError, Unwritten, dumps, is_litter, patiently, write_table, writing
from mas_lab.runs.manifest import MANIFEST, Part, digest
from mas_lab.runs.merging import merge
from mas_lab.runs.resuming import refuse_another, refuse_gaps, refuse_other_memory, runs_on, say_what_is_untold
from mas_lab.runs.run import FORMAT, SCORES, TABLES, Run
from mas_lab.team import Team

KEPT_CHECKPOINTS = 2
STARTED = (LOCK, HOLDER, MANIFEST, f"{MANIFEST}.tmp", "run.json.tmp")
"""Files left by a start that was killed before run.json was written."""
FORKING = "forking.tmp"
"""Exists while another run is copied into the folder (`forking`). Until run.json exists, all else is litter."""
OWN = re.compile(r"\d+\.parquet|\d+-\d+\.zip|.*\.tmp")
"""Names of table files. Other files were put there by hand and stay."""


class Memory(Protocol):
    """The state of the parts of a training, by the place of each in `parts`."""

    parts: Mapping[str, Any]

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: Mapping[str, Any]) -> None: ...


class Recorder(Run):
    """The run folder of a training in progress."""

    _writers: ClassVar[dict[Path, "Recorder"]] = {}
    _held: Claim | None = None
    _remembered: Any = None
    _goes_on_with: Mapping[str, Any] | None = None
    """The config with which an existing run continues, until its next step is kept."""

    def begin(self, config: Mapping[str, Any], team: Team, watch: Any = None, memory: Memory | None = None) -> int:
        """Create the folder or continue in it, and return the number of steps that are done.

        The team, `watch` and `memory` (the parts of the training) are set to their state after those steps. Until
        `end()`, no other process may train here. A later training in this process takes the folder over. Raises
        `RunError`, which names the difference if the folder belongs to another run, or the file that cannot be written.
        """
        config = json.loads(dumps(config, self.folder / "run.json"))
        with _naming(self.folder), self._saying_what_is_safe():
            if is_there := self._was_started():
                refuse_another(self, config)
            say_what_is_untold(self, config, is_there)
            try:
                if is_there and self._was_kept():
                    self._goes_on_with = config
                    return self._resume(team, watch, memory)
                return self._create(config, team, watch, memory)
            except BaseException:
                self.end()
                raise

    def recorded_threads(self) -> int | None:
        """Return the number of threads of the existing run, or `None` if there is none."""
        threads = self.config.get("threads") if (self.folder / "run.json").is_file() else None
        return threads if type(threads) is int and threads > 0 else None

    def _claim(self) -> None:
        place = self.folder.resolve()
        former = self._writers.get(place)
        self._held = former._held if former else Claim.of(place)
        self._writers[place] = self

    def end(self) -> None:
        """Stop writing, so that others may train here."""
        if not self.is_superseded():
            self._held.release()
            del self._writers[self.folder.resolve()]

    def _was_started(self) -> bool:
        if (self.folder / "run.json").exists():
            return True
        found = [entry.name for entry in self.folder.iterdir()] if self.folder.exists() else []
        if FORKING not in found and any(name not in STARTED and not is_litter(name) for name in found):
            raise RunError(f"{self.folder} is not empty and holds no run.json; choose another folder")
        return False

    def _was_kept(self) -> bool:
        """Return whether the run can continue; a start killed before its first checkpoint left nothing."""
        return bool(self._checkpoints() or any(self.parts(name) for name in TABLES))

    def _create(self, config: Mapping[str, Any], team: Team, watch: Any, memory: Memory | None) -> int:
        existed = self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claim()
        try:
            if (self.folder / FORKING).exists():
                self._clear()
            return self._first(config, team, watch, memory)
        except BaseException:
            self._clear()
            self.end()
            for name in STARTED:
                (self.folder / name).unlink(missing_ok=True)
            if not existed:
                self.folder.rmdir()
            raise

    def _first(self, config: Mapping[str, Any], team: Team, watch: Any, memory: Memory | None) -> int:
        """Write the beginning of a new run, and return its number of steps."""
        self._describe(config)
        for name in (*TABLES, "checkpoints"):
            (self.folder / name).mkdir(exist_ok=True)
        self._save(0, team, watch, memory)
        return 0

    def _clear(self) -> None:
        """Delete what a failed start or a killed fork left; the file that marks it as litter goes last."""
        for name in (*TABLES, SCORES, "checkpoints"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("run.json", MANIFEST, FORKING):
            (self.folder / name).unlink(missing_ok=True)

    def _describe(self, config: Mapping[str, Any]) -> None:
        """Write run.json; it is recorded first, so that the manifest always knows it."""
        there = Part(self.folder, "run.json")
        before = [digest(there.read_bytes())] if there.path.is_file() else []
        self.manifest.replace("run.json", dumps(config, there.path).encode(), before)

    def _resume(self, team: Team, watch: Any, memory: Memory | None) -> int:
        self._claim()
        (self.folder / FORKING).unlink(missing_ok=True)
        checkpoint = self.checkpoint()
        refuse_gaps(self, checkpoint.step)
        kept = checkpoint.state.get("memory", {})
        refuse_other_memory(self, kept, memory.parts if memory else {})
        checkpoint.load_into(team)
        if memory:
            memory.load_state(kept)
        if self.config["format"] != FORMAT:
            self._raise_format()
        self._forget_after(checkpoint.step)
        self._remembered = checkpoint.state["watch"]
        self._remind(watch)
        return checkpoint.step

    def _raise_format(self) -> None:
        """Record the files of a run of format 2, which were not checked until now."""
        parts = [part for name in (*TABLES, SCORES) for part in self.parts(name)]
        config = self.config | {"format": FORMAT}
        sha256 = {part.name: [digest(part.read_bytes())] for part in (*parts, self._file("run.json"))}
        self.manifest.add(sha256)
        self._describe(config)

    def _remind(self, watch: Any) -> None:
        """Restore the state of an earlier watch; every watch counts all steps, even if it joins late."""
        if hasattr(watch, "load_state") and self._remembered is not None:
            watch.load_state(self._remembered)
        if hasattr(watch, "join") and self.steps:
            watch.join(self.stats)

    def _forget_after(self, step: int) -> None:
        """Drop tables beyond the checkpoint, which are made again bit for bit, and files never recorded."""
        beyond = {part.name for name in TABLES for part in self.parts(name)[step:]}
        parts = {name: part for name, part in self.manifest.parts.items() if name not in beyond}
        self.manifest.write_anew(parts)
        kept = {part.path for part in parts.values()}
        for name in TABLES:
            for path in (self.folder / name).iterdir():
                if OWN.fullmatch(path.name) and path not in kept:
                    path.unlink()
        for path in (self.folder / "checkpoints").glob("*.tmp"):
            shutil.rmtree(path)

    def is_superseded(self) -> bool:
        """Return whether this training has ended or lost its folder to a later one, and must not write."""
        return self._writers.get(self.folder.resolve()) is not self

    def tables(self, step: int, turns: pd.DataFrame, stats: pd.DataFrame, notes: Mapping[str, Any] | None = None):
        """Write the tables of one step, with `notes` about its turns in their file."""
        digests = {}
        with self._saying_what_is_safe():
            if self._goes_on_with:
                self._tell_on_what(self._goes_on_with, step)
                self._goes_on_with = None
            for name, table, told in (("turns", in_lists(turns), notes), ("stats", stats, None)):
                file = f"{name}/{step:06d}.parquet"
                digests[file] = [digest(write_table(self.folder / file, table, told))]
            self.manifest.add(digests)

    def _tell_on_what(self, config: Mapping[str, Any], step: int) -> None:
        """Record in run.json from which step on a run uses other code, versions or devices than before."""
        told, now = self.config, runs_on(config)
        earlier = [one for one in told.get("continued", []) if one["step"] < step]
        before = {**runs_on(told), **{name: value for one in earlier for name, value in runs_on(one).items()}}
        other = {name: value for name, value in now.items() if value != before.get(name)}
        continued = [*earlier, {"step": step, **other}] if other else earlier
        if continued != told.get("continued", []):
            self._describe(told | {"continued": continued})

    def save(self, step: int, team: Team, watch: Any = None, memory: Memory | None = None) -> None:
        """Write a checkpoint after `step` steps, keep the two newest, and merge the tables that both include."""
        with self._saying_what_is_safe():
            self._save(step, team, watch, memory)

    def _save(self, step: int, team: Team, watch: Any, memory: Memory | None) -> None:
        folder = self.folder / "checkpoints" / f"{step:06d}"
        if folder.exists():
            return
        watched = watch.state() if hasattr(watch, "state") else self._remembered
        Checkpoint.write(folder, team, watched, memory.state() if memory else None)
        with writing(folder.parent):
            for old in self._checkpoints()[:-KEPT_CHECKPOINTS]:
                gone = old.with_suffix(".tmp")
                patiently(partial(old.rename, gone))
                patiently(partial(shutil.rmtree, gone))
        merge(self.manifest, TABLES, until=int(self._checkpoints()[0].name))

    @contextmanager
    def _saying_what_is_safe(self) -> Iterator[None]:
        """Add to an error of writing which part of the run is safe."""
        try:
            yield
        except Unwritten as error:
            checkpoints = self._checkpoints()
            safe = "nothing was kept: free space, or choose another folder"
            if checkpoints:
                step = int(checkpoints[-1].name)
                safe = f"the run is whole up to step {step}: free space, and the same command goes on from there"
            raise RunError(f"{error}; {safe}") from error


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into RunError with the folder of the run."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{folder}: cannot keep a run here ({error}); choose another folder") from error


def in_lists(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a list in every row's `advantage` if any row has one: a column of a file has one type."""
    if "advantage" not in turns.columns or is_numeric_dtype(turns["advantage"]):
        return turns
    pairs = zip(turns["advantage"], turns["completion_ids"], strict=True)
    lists = [np.broadcast_to(np.asarray(one, float), len(ids)).tolist() for one, ids in pairs]
    return turns.assign(advantage=pd.Series(lists, turns.index, dtype=object))
