"""Keeping a run: a folder with the recipe, the tables and checkpoints, from which training goes on bit for bit.

    runs/<name>/run.json                      what was asked: env, recipe, seed, settings, versions, threads
    runs/<name>/turns/000007.parquet          the table of step 7, and stats/ beside it
    runs/<name>/checkpoints/000008/           the team after 8 steps: safetensors and JSON, with their sha256

Everything is written beside its place, flushed to disk, and renamed into it, so that a run killed at any moment holds
only whole files. Leaves out: what a step is (`train`).
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab import recipes
from mas_lab.policy import Policy
from mas_lab.team import Sampling, Team

TABLES = ("turns", "stats")
KEPT_CHECKPOINTS = 2


class RunError(RuntimeError):
    """A run folder that cannot be read or resumed: names the file and what to do."""


def runs_dir() -> Path:
    """Where runs are kept: a mounted Drive on Colab, the working folder on Kaggle, else `runs/` (or MAS_LAB_RUNS)."""
    if "MAS_LAB_RUNS" in os.environ:
        return Path(os.environ["MAS_LAB_RUNS"])
    drive, kaggle = Path("/content/drive/MyDrive"), Path("/kaggle/working")
    if drive.is_dir():
        return drive / "mas_lab_runs"
    return kaggle / "runs" if kaggle.is_dir() else Path("runs")


class Run:
    """A run folder, for reading. `load_run` makes one."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.config['recipe'].get('name')}, {self.steps} steps)"

    @property
    def config(self) -> dict[str, Any]:
        return _read_json(self.folder / "run.json")

    @property
    def recipe(self) -> "recipes.Recipe":
        return recipes.from_data(self.config["recipe"])

    @property
    def steps(self) -> int:
        """Training steps whose tables are in the folder."""
        return len(list((self.folder / "stats").glob("*.parquet")))

    @property
    def turns(self) -> pd.DataFrame:
        """All turns of the run, `mas_lab.table.SCHEMA`."""
        return self._table("turns")

    @property
    def stats(self) -> pd.DataFrame:
        """What `update` returned at each step, with the column `step`."""
        return self._table("stats")

    def _table(self, name: str) -> pd.DataFrame:
        parts = [pd.read_parquet(path) for path in sorted((self.folder / name).glob("*.parquet"))]
        if not parts:
            raise RunError(f"{self.folder}: the run holds no {name} yet; let train() make a step first")
        table = pd.concat(parts, ignore_index=True)
        for column in ("prompt_ids", "completion_ids", "logprobs"):
            if column in table.columns:
                table[column] = [values.tolist() for values in table[column]]
        return table

    def checkpoint(self) -> "Checkpoint":
        """The newest checkpoint, checked against its hashes."""
        folders = sorted(path for path in (self.folder / "checkpoints").glob("[0-9]*") if path.is_dir())
        if not folders:
            raise RunError(f"{self.folder}: the run holds no checkpoint; start it again in another folder")
        checkpoint = Checkpoint(folders[-1])
        checkpoint.verify()
        return checkpoint

    def team(self) -> Team:
        """The team of the newest checkpoint, rebuilt from the folder alone."""
        return self.checkpoint().team()


class Checkpoint:
    """The team after some number of steps."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def step(self) -> int:
        return int(self.folder.name)

    @property
    def state(self) -> dict[str, Any]:
        return _read_json(self.folder / "state.json")

    def verify(self) -> None:
        """Compare every file with its recorded sha256. Raises `RunError` naming the first that differs."""
        recorded = _read_json(self.folder / "hashes.json")
        found = _hashes(self.folder)
        for name in sorted(set(recorded) | set(found)):
            if recorded.get(name) != found.get(name):
                what = "missing" if name not in found else "not recorded" if name not in recorded else "changed"
                raise RunError(
                    f"checkpoint {self.folder}: {name} is {what}, so it cannot be trusted; "
                    "delete this checkpoint's folder to go on from the one before it"
                )

    def load_into(self, team: Team) -> None:
        described = describe_team(team)
        if described != self.state["team"]:
            raise RunError(
                f"checkpoint {self.folder} was made by another team; it holds {_pretty(self.state['team'])}, "
                f"the team passed in is {_pretty(described)}"
            )
        for number, name in enumerate(team.policies):
            team.policies[name].load(self.folder / "policies" / str(number))

    def team(self) -> Team:
        from mas_lab.backends import restore_policies

        names = self.state["team"]["policies"]
        policies = restore_policies({name: self.folder / "policies" / str(i) for i, name in enumerate(names)})
        data = self.state["team"]
        sampling = {agent: Sampling(**fields) for agent, fields in data["sampling"].items()}
        return Team({agent: policies[name] for agent, name in data["agents"].items()}, sampling, data["frozen"])


class Recorder(Run):
    """The run folder of a training in progress."""

    def begin(self, config: Mapping[str, Any], team: Team, watch: Any = None) -> int:
        """Create the folder, or go on in it: returns the number of steps done, with the team as it was after them.

        Raises `RunError` naming what differs if the folder belongs to another run.
        """
        path = self.folder / "run.json"
        if not path.exists():
            if self.folder.exists() and any(entry.name != "run.json.tmp" for entry in self.folder.iterdir()):
                raise RunError(f"{self.folder} is not empty and holds no run.json; choose another folder")
            for name in (*TABLES, "checkpoints"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
            self.save(0, team, watch)
            _write_json(path, config)
            return 0
        self._refuse_another(config)
        checkpoint = self.checkpoint()
        checkpoint.load_into(team)
        if hasattr(watch, "load_state"):
            watch.load_state(checkpoint.state["watch"])
        self._forget_after(checkpoint.step)
        return checkpoint.step

    def _refuse_another(self, config: Mapping[str, Any]) -> None:
        there, here = dict(self.config), json.loads(json.dumps(config))
        for key in ("env", "recipe", "seed", "settings", "threads"):
            if there.get(key) != here.get(key):
                raise RunError(
                    f"{self.folder}: cannot resume, {key} differs: the run has {_pretty(there.get(key))}, "
                    f"asked is {_pretty(here.get(key))}; ask for the same, or choose another folder"
                )

    def _forget_after(self, step: int) -> None:
        """Tables beyond the checkpoint are made again, bit for bit."""
        for name in TABLES:
            for path in (self.folder / name).iterdir():
                if path.suffix != ".parquet" or int(path.stem) >= step:
                    path.unlink()
        for path in (self.folder / "checkpoints").glob("*.tmp"):
            shutil.rmtree(path)

    def tables(self, step: int, turns: pd.DataFrame, stats: pd.DataFrame) -> None:
        for name, table in (("turns", turns), ("stats", stats)):
            path = self.folder / name / f"{step:06d}.parquet"
            staged = path.with_suffix(".tmp")
            table.to_parquet(staged, index=False)
            _flush(staged)
            staged.replace(path)
            _flush(path.parent)

    def save(self, step: int, team: Team, watch: Any = None) -> None:
        """A checkpoint after `step` steps; the two newest are kept."""
        folder = self.folder / "checkpoints" / f"{step:06d}"
        if folder.exists():
            return
        staged = folder.with_suffix(".tmp")
        shutil.rmtree(staged, ignore_errors=True)
        for number, policy in enumerate(team.policies.values()):
            (staged / "policies" / str(number)).mkdir(parents=True)
            policy.save(staged / "policies" / str(number))
        watching = watch.state() if hasattr(watch, "state") else None
        _write_json(staged / "state.json", {"step": step, "team": describe_team(team), "watch": watching})
        _write_json(staged / "hashes.json", _hashes(staged))
        for path in sorted(staged.rglob("*"), reverse=True):
            _flush(path)
        staged.rename(folder)
        _flush(folder.parent)
        for old in sorted((self.folder / "checkpoints").glob("[0-9]*"))[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)


def load_run(path: str | Path) -> Run:
    """A run by its folder, or by its name under `runs_dir()`: `.turns`, `.stats`, `.recipe`, `.team()`."""
    for folder in (Path(path), runs_dir() / str(path)):
        if (folder / "run.json").is_file():
            return Run(folder)
    raise RunError(f"no run at {path} or {runs_dir() / str(path)}: there is no run.json")


def export(run: Run | str | Path, path: str | Path) -> Path:
    """One zip with the run's tables and description, without weights: what a student hands in."""
    run = run if isinstance(run, Run) else load_run(run)
    target = Path(path)
    staged = target.with_suffix(".tmp")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(run.folder / "run.json", "run.json")
        for name in TABLES:
            for part in sorted((run.folder / name).glob("*.parquet")):
                archive.write(part, f"{name}/{part.name}")
    staged.replace(target)
    return target


def describe_team(team: Team) -> dict[str, Any]:
    """A team as plain data."""
    return {
        "agents": {agent: team.name_of(agent) for agent in team},
        "policies": {name: describe_policy(policy) for name, policy in team.policies.items()},
        "sampling": {agent: asdict(sampling) for agent, sampling in team.sampling.items()},
        "frozen": list(team.frozen),
    }


def describe_policy(policy: Policy) -> dict[str, Any]:
    """What a checkpoint must agree on before a policy loads it."""
    return json.loads(json.dumps(policy.describe()))


def _hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "hashes.json"]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise RunError(f"{path} is missing; the folder is not a whole run") from None
    except ValueError as error:
        raise RunError(f"{path} is not JSON ({error}); the file was damaged or edited") from None


def _write_json(path: Path, data: Any) -> None:
    staged = path.with_name(path.name + ".tmp")
    staged.write_text(json.dumps(data, indent=2) + "\n")
    _flush(staged)
    staged.replace(path)
    _flush(path.parent)


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return  # a directory cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _pretty(data: Any) -> str:
    return json.dumps(data, sort_keys=True)
