"""Keep a run while it is trained, so that a stopped or killed training can continue bit for bit.

Everything is written beside its place, flushed to disk, and renamed into it, also the folder of a new run. So a run
that is killed at any moment holds only complete files. A step counts once the manifest names its tables. One process at
a time writes. A run continues only if it asks for the same training. Leaves out: the content of the folder (`run`), and
the steps (`train`).
"""

import errno
import json
import re
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.describe import differences
from mas_lab.recipes import completed
from mas_lab.runs.disk import RunError, Unwritten, atomic, dumps, is_litter, patiently, remedy, write_bytes, write_table
from mas_lab.runs.manifest import TABLES, Manifest, Part, digest
from mas_lab.runs.run import KEEPING, UPHILL, Checkpoint, Run
from mas_lab.runs.trust import mark_own, refuse_untrusted
from mas_lab.team import Team

if TYPE_CHECKING:
    import pyarrow

CHECKPOINTS_PER_RUN = 2
JOINED_STEPS, JOINED_BYTES = 100, 16 * 2**20
"""A file of joined tables is full when it holds so many steps, or when the next step would make it larger than that."""
LOCK = "training.lock"
"""Locked by the process that trains in the folder; on a drive without locks, its existence is the lock."""
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)
OURS = re.compile(r"\d+(-\d+)?\.parquet|.*\.tmp")
"""Names of table files. Other files were put there by hand and stay."""

RUNS_ON = ("ranks", "device", "code", "sources", "versions")
"""Entries that may change when a run continues, although its results may change with them."""


class Recorder(Run):
    """The run folder of a training in progress."""

    _writers: ClassVar[dict[Path, "Recorder"]] = {}
    _lock: Any = None
    _remembered: Any = None
    _goes_on_with: Mapping[str, Any] | None = None
    """The config with which an existing run continues, until its next step is kept."""

    def __init__(self, folder: Path):
        super().__init__(folder.absolute())  # the training may change the working folder

    def begin(
        self, config: Mapping[str, Any], team: Team, watch: Any = None, states: Mapping[str, Any] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Create the folder or continue in it; return the number of steps done and the `states` after those steps.

        `states` has the state of each part that learns, by its place in the training. Team and `watch` are set to their
        state after those steps. Until `end()`, no other process may train here. A later training in this process takes
        the folder over. Raises `RunError`, which names the difference if the folder belongs to another run, or the file
        that cannot be written.
        """
        config = json.loads(dumps(config, self.folder / "run.json"))
        with self._saying_what_is_safe():
            if is_there := self._was_started():
                refuse_untrusted(self.folder)
                if different := differences(decisive(self.config), decisive(config)):
                    raise RunError(
                        f"{self.folder}: cannot resume, {different}; ask for what the run has, or choose another folder"
                    )
            try:
                if is_there:
                    self._goes_on_with = config
                    return self._resume(team, watch, states or {})
                return self._create(config, team, watch, states or {})
            except BaseException:
                self.end()
                raise

    def recorded_threads(self) -> int | None:
        """Return the number of threads of the existing run, or `None` if there is none."""
        return self.config.get("threads") if (self.folder / "run.json").is_file() else None

    def _claim(self) -> None:
        place = self.folder.resolve()
        former = self._writers.get(place)
        self._lock = former._lock if former else _locked(place)
        self._writers[place] = self

    def end(self) -> None:
        """Stop writing, so that others may train here."""
        if not self.is_superseded():
            with suppress(RunError, OSError):
                self._sweep()
            self._lock.release(force=True)
            del self._writers[self.folder.resolve()]

    def _was_started(self) -> bool:
        if (self.folder / "run.json").exists():
            return True
        found = [entry.name for entry in self.folder.iterdir()] if self.folder.exists() else []
        if any(name != LOCK and not is_litter(name) for name in found):
            raise RunError(f"{self.folder} is not empty and holds no run.json; choose another folder")
        return False

    def _create(self, config: Mapping[str, Any], team: Team, watch: Any, states: Mapping[str, Any]) -> tuple:
        """Make the folder with a checkpoint of its first step, as a whole or not at all."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        for left in (*self.folder.glob("*"), *self.folder.parent.glob(f"{self.folder.name}.*.tmp")):
            if left.name == LOCK or is_litter(left.name):  # a killed start or a system left it
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        with atomic(self.folder, is_folder=True) as staged:
            new = Run(staged)
            for name in TABLES:
                (staged / name).mkdir()
            step, config, files, states = self._take_over(staged, config, team, states)
            described = dumps(config, self.folder / "run.json").encode()
            write_bytes(staged / "run.json", described)
            new.manifest.add({"run.json": digest(described), **files})
            self._remind(watch, new)
            self._write(staged, step, team, watch, states)
        self._claim()
        mark_own(self.folder)
        return step, states

    def _take_over(self, staged: Path, config: Mapping[str, Any], team: Team, states: Mapping[str, Any]) -> tuple:
        """Return the first step, the content of run.json, the sha256 of files from another run, and the states."""
        return 0, config, {}, states

    def _resume(self, team: Team, watch: Any, states: Mapping[str, Any]) -> tuple:
        self._claim()
        checkpoint = self.checkpoint()
        refuse_gaps(self, checkpoint.step)
        recorded = checkpoint.state.get("memory", {})
        refuse_other_learners(self, recorded, states)
        checkpoint.load_into(team)
        self._forget_after(checkpoint.step)
        self._tidy()
        mark_own(self.folder)
        self._remembered = checkpoint.state["watch"]
        self._remind(watch, self)
        return checkpoint.step, recorded

    def _remind(self, watch: Any, run: Run) -> None:
        """Restore the state of an earlier watch; every watch counts all steps, even if it joins late."""
        if hasattr(watch, "load_state") and self._remembered is not None:
            watch.load_state(self._remembered)
        if hasattr(watch, "join") and run.steps:
            watch.join(run.stats)

    def _forget_after(self, step: int) -> None:
        """Drop tables beyond the checkpoint, which are made again bit for bit, and files never recorded."""
        beyond = [part.name for name in TABLES for part in self.parts(name) if part.step >= step]
        self.manifest.add({}, beyond, [one for one in self.manifest.continued if one["step"] < step])
        self._sweep()
        for path in (self.folder / "checkpoints").glob("*.tmp"):
            shutil.rmtree(path)

    def _sweep(self) -> None:
        """Delete the tables that do not count: those beyond a checkpoint, and those that were joined with others."""
        recorded = self.manifest.files
        for name in TABLES if recorded else ():
            for path in (self.folder / name).iterdir():
                if OURS.fullmatch(path.name) and f"{name}/{path.name}" not in recorded:
                    patiently(path.unlink)

    def is_superseded(self) -> bool:
        """Return whether this training has ended or lost its folder to a later one, and must not write."""
        return self._writers.get(self.folder.resolve()) is not self

    def keep_uphill(self, found: pd.DataFrame) -> None:
        """Write the table of `lab.uphill`."""
        with self._saying_what_is_safe():
            rows = found.astype(object).where(found.notna(), None).to_dict("records")
            data = dumps({"rows": rows}, self.folder / UPHILL).encode()
            write_bytes(self.folder / UPHILL, data)
            self.manifest.add({UPHILL: digest(data)})

    def tables(self, step: int, turns: pd.DataFrame, stats: pd.DataFrame) -> None:
        """Write the tables of one step."""
        with self._saying_what_is_safe():
            digests = {}
            for name, table in (("turns", in_lists(turns)), ("stats", stats)):
                file = f"{name}/{step:06d}.parquet"
                digests[file] = digest(write_table(self.folder / file, table))
            self.manifest.add(digests, continued=self._continued(step))
            self._goes_on_with = None

    def _continued(self, step: int) -> list[dict[str, Any]]:
        """Return from which steps on the run uses other code, sources, versions or devices than run.json names."""
        earlier = self.manifest.continued
        if self._goes_on_with is None:
            return earlier
        before = {name: value for one in (self.config, *earlier) for name, value in runs_on(one).items()}
        other = {name: value for name, value in runs_on(self._goes_on_with).items() if value != before.get(name, {})}
        return [*earlier, {"step": step, **other}] if other else earlier

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
        """Delete all but the newest checkpoints, and join the tables of the steps that both include."""
        for old in self._checkpoints()[:-CHECKPOINTS_PER_RUN]:
            gone = old.with_suffix(".tmp")
            patiently(partial(old.rename, gone))
            patiently(partial(shutil.rmtree, gone))
        merge(self.manifest, until=int(self._checkpoints()[0].name), sweep=self._sweep)

    @contextmanager
    def _saying_what_is_safe(self) -> Iterator[None]:
        """Add to an error of writing which part of the run is safe."""
        try:
            yield
        except (Unwritten, OSError) as error:
            checkpoints = self._checkpoints()
            safe = f"nothing was kept: {remedy(error)}, or choose another folder"
            if checkpoints:
                step = int(checkpoints[-1].name)
                safe = f"the run is whole up to step {step}: {remedy(error)}, and the same command goes on from there"
            raise RunError(f"{self.folder}: cannot keep the run ({error}); {safe}") from error


def _locked(folder: Path) -> Any:
    """Return a lock on the folder; raise RunError if another process has it."""
    from filelock import FileLock, SoftFileLock, Timeout

    for kind in (FileLock, SoftFileLock):  # the second for a drive without locks
        try:
            with warnings.catch_warnings(action="ignore"):  # newer releases fall back by themselves, and warn of it
                return kind(folder / LOCK, timeout=0, thread_local=False).acquire().lock
        except Timeout:
            break
        except (NotImplementedError, OSError) as error:
            if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
                raise
    raise RunError(
        f"{folder}: another process is training in this folder; end it first, or choose another folder. On a drive "
        f"without locks, {LOCK} stays if a process or its machine dies: then delete it"
    )


def in_lists(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a list in every row's `advantage` if any row has one: a column of a file has one type."""
    if "advantage" not in turns.columns or is_numeric_dtype(turns["advantage"]):
        return turns
    pairs = zip(turns["advantage"], turns["completion_ids"], strict=True)
    lists = [np.broadcast_to(np.asarray(one, float), len(ids)).tolist() for one, ids in pairs]
    return turns.assign(advantage=pd.Series(lists, turns.index, dtype=object))


def refuse_gaps(run: Run, step: int) -> None:
    """Raise RunError if a table of the first `step` steps is missing, since a checkpoint needs all of them."""
    for name in TABLES:
        parts = run.parts(name)
        missing = [part.path for part in parts if part.step < step and not part.path.is_file()]
        made = parts[-1].steps.stop if parts else 0
        if missing or made < step:
            lost = missing[0] if missing else run.folder / name / f"{made:06d}.parquet"
            raise RunError(f"{lost} is missing; put it back, or start again in another folder")


def refuse_other_learners(run: Run, recorded: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Raise RunError unless the same parts of the training have a state in the run and in this call."""
    for place in sorted(recorded.keys() ^ states.keys()):
        one, other = ("the run", "this call") if place in recorded else ("this call", "the run")
        raise RunError(
            f"{run.folder}: cannot resume, the {place} of {one} learns (it has a state) and that of {other} does not; "
            "pass the one that the run was made with, or choose another folder"
        )


def runs_on(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the device, code, sources and versions of a run or its continuation, if run.json records them."""
    return {name: config[name] for name in RUNS_ON if name in config}


def decisive(config: Mapping[str, Any], without: Collection[str] = KEEPING) -> dict[str, Any]:
    """Return the part of a config that decides the results, without how it is kept and what it runs on.

    `without` lists the settings that are left out. A custom env is identified by class and options, since it may move
    from a notebook to a file. Arguments that a plan, credit or loss has gained since then have their defaults.
    """
    env = dict(config.get("env") or {})
    if ":" in env.get("name", ""):
        env["name"] = env["name"].rpartition(":")[2].rpartition(".")[2]
    recorded = {"staleness": 0} | (config.get("settings") or {})  # earlier versions do not record it
    settings = {key: value for key, value in recorded.items() if key not in without}
    same = {key: config.get(key) for key in ("curriculum", "seed", "threads")}
    return {"env": env, "recipe": completed(config.get("recipe")), **same, "settings": settings}


def merge(manifest: Manifest, until: int, sweep: Callable[[], None]) -> None:
    """Join the tables of steps before `until`, as far as they fill a file.

    The files that were joined stay until the next time, when `sweep` deletes them: somebody may be reading them.
    """
    blocks = []
    for folder in TABLES:
        blocks += _full([part for part in manifest.parts(folder) if len(part.steps) == 1 and part.step < until])
    if blocks:
        sweep()
    for block in blocks:
        if (table := _joined(block)) is not None:
            name = block[0].name.replace(".parquet", f"-{block[-1].step:06d}.parquet")
            sha256 = digest(write_table(manifest.root / name, table))
            manifest.add({name: sha256}, drop=[part.name for part in block])


def _full(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield lists of neighbours that fill a file; always the same ones, as only the newest parts fill none."""
    block, block_size = [], 0
    for part in parts:
        size = part.path.stat().st_size
        if block and (block_size + size > JOINED_BYTES or part.step != block[-1].step + 1):
            yield block
            block, block_size = [], 0
        block, block_size = [*block, part], block_size + size
        if len(block) == JOINED_STEPS:
            yield block
            block, block_size = [], 0


def _joined(block: Sequence[Part]) -> "pyarrow.Table | None":
    """Return one table; None for a single part, a damaged one, or a column of lists here and of numbers there."""
    import pyarrow
    from pyarrow import parquet

    try:
        tables = [parquet.read_table(pyarrow.BufferReader(part.read_bytes()), use_threads=False) for part in block]
        return pyarrow.concat_tables(tables, promote_options="default").combine_chunks() if len(block) > 1 else None
    except (RunError, pyarrow.ArrowException):
        return None
