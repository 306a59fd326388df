"""Read a run that was kept: a folder with recipe, tables and checkpoints, or a zip without weights.

    runs/<name>/run.json                                the config: env, recipe, seed, settings, versions, threads
    runs/<name>/turns/000107-1f2e3d4c5b6a7988.parquet   the table of step 107, with the beginning of its sha256
    runs/<name>/stats/                                  what `update` returned, in the same way
    runs/<name>/scores/                                 scores on held-out tasks, by the number of steps before them
    runs/<name>/checkpoints/000108/                     the team after 108 steps: safetensors and JSON
    runs/<name>/training.lock                           locked by the process that trains here
    runs/<name>.tmp/                                    a folder that a start has not finished

JSON files hold their own sha256, and the `state.json` of a checkpoint those of its other files. A step counts once its
turns are in place; they are written after its stats. A zip holds run.json and the tables, and `exported.json`: their
names, and what stands in for the checkpoints. Leaves out: how a run is written (`recorder`), and its scores (`scores`).
"""

import os
import zipfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from mas_lab import recipes
from mas_lab.arguments import check_arguments
from mas_lab.describe import differences
from mas_lab.locks import locked
from mas_lab.paths import digest_of
from mas_lab.runs.disk import (
    TABLE,
    Files,
    RunError,
    atomic,
    read_hashed,
    read_table,
    read_tables,
    write_hashed,
)
from mas_lab.team import Team, describe_team

FORMAT = 5
"""The format of a run, which run.json records."""
MACHINE = ("save_every", "workers", "check")
"""Settings that change neither a training nor its scores."""
KEEPING = (*MACHINE, "score_every", "score_at", "score_tasks", "score_episodes")
"""Settings that a resumed run may change."""
Result = TypeVar("Result")
TABLES, SCORES = ("turns", "stats"), "scores"
"""Folders of the tables of training steps, and of held-out scores, see `scores.keep_scores`."""
EXPORTED = "exported.json"


def runs_dir() -> Path:
    """Return the folder in which runs are kept.

    Returns:
        The environment variable MAS_LAB_RUNS if it is set. Otherwise `mas_lab_runs` on a mounted Drive on Colab, `runs`
        in the working folder on Kaggle, or `runs/`.
    """
    if "MAS_LAB_RUNS" in os.environ:
        return Path(os.environ["MAS_LAB_RUNS"])
    drive, kaggle = Path("/content/drive/MyDrive"), Path("/kaggle/working")
    if drive.is_dir():
        return drive / "mas_lab_runs"
    return kaggle / "runs" if kaggle.is_dir() else Path("runs")


class Checkpoint:
    """The team after some number of steps."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def step(self) -> int:
        return int(self.folder.name)

    @property
    def state(self) -> dict[str, Any]:
        return read_hashed(self.folder / "state.json")

    @classmethod
    def write(cls, folder: Path, team: Team, watched: Any = None, memory: Any = None) -> "Checkpoint":
        """Write team, watch state and memory (plain data) to `folder`, as a whole or not at all."""
        with atomic(folder, is_folder=True) as staged:
            with locked(team.policies.values()):
                for number, policy in enumerate(team.policies.values()):
                    (staged / "policies" / str(number)).mkdir(parents=True)
                    policy.save(staged / "policies" / str(number))
            files = {path.relative_to(staged).as_posix(): digest_of(path)
                     for path in sorted(staged.rglob("*")) if path.is_file()}  # fmt: skip
            state = {"step": int(folder.name), "team": describe_team(team), "watch": watched, "memory": memory or {},
                     "files": files}  # fmt: skip
            write_hashed(staged / "state.json", state)
        return cls(folder)

    def verify(self, *names: str) -> None:
        """Compare all files, or those of `names`, with their recorded sha256; `RunError` names one that differs."""
        files = self.state["files"]
        for name in names or files:
            path = self.folder / name
            if not path.is_file() or digest_of(path) != files[name]:
                raise RunError(
                    f"checkpoint {self.folder}: {name} is missing or changed; delete its folder to go on from the one "
                    "before it"
                )

    def load_into(self, team: Team) -> None:
        """Set the team's weights and optimizers to the saved ones; raise `RunError` if it is another team."""
        if different := differences(self.state["team"], describe_team(team)):
            raise RunError(f"checkpoint {self.folder} was made by another team: {different}")
        self.give(team)

    def give(self, team: Team) -> None:
        """Load weights and optimizers into a team that is known to match."""
        with locked(team.policies.values(), training=True):
            for number, name in enumerate(team.policies):
                team.policies[name].load(self.folder / "policies" / str(number))

    def tokenizer(self, policy: str) -> Any:
        """Return the fast tokenizer kept beside a policy's weights (`tokenizers.Tokenizer`), or `None`."""
        state = self.state
        places = {name: f"policies/{number}/tokenizer.json" for number, name in enumerate(state["team"]["policies"])}
        if (place := places.get(policy)) not in state["files"]:
            return None
        self.verify(place)
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.folder / place))

    def team(self, base: str | Sequence[str] = ()) -> Team:
        """Return the team rebuilt from the folder; `base` allows hub models as bases of its adapters."""
        described = self.state["team"]
        places = {name: self.folder / "policies" / str(i) for i, name in enumerate(described["policies"])}
        return Team.restored(described, places, base)


class Run:
    """A run folder or an exported zip, for reading. `load_run` makes one."""

    def __init__(self, folder: Files):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.recipe_name}, {self.steps} steps)"

    @property
    def is_exported(self) -> bool:
        """Return whether this is a zip, which holds no weights."""
        return not isinstance(self.folder, Path)

    @property
    def config(self) -> dict[str, Any]:
        """Return the content of run.json. `continued` says from which steps on other code, versions or devices ran."""
        return read_hashed(self.folder / "run.json")

    @cached_property
    def exported(self) -> dict[str, Any]:
        """Return what a zip holds beside its tables: their names (`files`), `watch` and `tokens`."""
        return read_hashed(self.folder / EXPORTED)

    @property
    def recipe(self) -> "recipes.Recipe":
        """Return the recipe, rebuilt from run.json; ValueError names a custom part, which only its own code makes."""
        return recipes.from_data(self.config["recipe"])

    @property
    def recipe_name(self) -> str:
        """Return the name of the recipe, even if it cannot be rebuilt."""
        return str(self.config["recipe"].get("name"))

    @property
    def steps(self) -> int:
        """Return the number of training steps whose tables are in the folder."""
        return len(self.parts("turns"))

    @property
    def turns(self) -> pd.DataFrame:
        """Return all turns of the run, see `mas_lab.table.SCHEMA`."""
        return self.read("turns")

    @property
    def stats(self) -> pd.DataFrame:
        """Return what `update` returned at each step, with the column `step`."""
        return self.read("stats")

    def step_turns(self, step: int, columns: list[str] | None = None) -> pd.DataFrame:
        """Return the turns of one training step (from 0), or only some `columns`, without reading others."""
        return read_table(self.part(step), columns)

    def part(self, step: int) -> Files:
        """Return the file of one step's turns."""
        if step in (turns := self._by_step("turns")):
            return turns[step]
        raise RunError(f"{self.folder}: there is no step {step}; the run holds {self.steps} steps, from 0")

    def parts(self, name: str) -> list[Files]:
        """Return the files of one table ("turns", "stats" or "scores"), in the order of their steps.

        Raises:
            RunError: A file of a step is missing, before the newest one or the newest checkpoint.
        """
        least = 0 if self.is_exported or not (saved := self._checkpoints()) else int(saved[-1].name)
        turns = self._by_step("turns")
        files = turns if name == "turns" else self._by_step(name)
        if name not in TABLES:  # after a kill, those beyond the newest step do not count
            return [files[step] for step in sorted(files) if step <= len(turns)]
        made = max([least, *(step + 1 for step in turns)])
        if missing := [step for step in range(made) if step not in files]:
            path = self.folder / name / f"{missing[0]:06d}-"
            raise RunError(f"{path}*.parquet is missing; put it back, or start again in another folder")
        return [files[step] for step in range(made)]

    def _by_step(self, name: str) -> dict[int, Files]:
        """Return the files of one table by their steps."""
        if self.is_exported:
            paths = [self.folder / one for one in self.exported["files"] if one.startswith(f"{name}/")]
        else:
            paths = (self.folder / name).glob("*.parquet")
        return {int(found[1]): path for path in paths if (found := TABLE.fullmatch(path.name))}

    def read(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Return one table ("turns" or "stats") of all steps, or only some `columns`, without reading others."""
        parts = self.parts(name)
        if not parts:
            raise RunError(f"{self.folder}: the run holds no {name} yet; let train() make a step first")
        return read_tables(parts, columns)

    def watched(self) -> dict[str, Any] | None:
        """Return the state of the run's watch, from the newest checkpoint or an exported zip; `None` without one."""
        if self.is_exported:
            return self.exported["watch"]
        folders = self._checkpoints()
        return Checkpoint(folders[-1]).state["watch"] if folders else None

    def token_texts(self) -> dict[str, dict[str, str]]:
        """Return policy -> token id -> text for all tokens in completions, as far as tokenizers were kept."""
        if self.is_exported:
            return self.exported["tokens"]
        if not self._checkpoints() or not self.steps:
            return {}
        checkpoint = Checkpoint(self._checkpoints()[-1])
        sampled = self.read("turns", ["policy", "completion_ids"]).explode("completion_ids").dropna()
        texts = {}
        for policy, ids in sampled.groupby("policy")["completion_ids"]:
            tokenizer = checkpoint.tokenizer(policy)
            if tokenizer is not None:
                known = sorted(map(int, ids.unique()))
                texts[policy] = {str(one): tokenizer.decode([one], skip_special_tokens=False) for one in known}
        return texts

    def checkpoint(self) -> Checkpoint:
        """Return the newest checkpoint, checked against its hashes."""
        return self.with_checkpoint(lambda checkpoint: checkpoint)

    def with_checkpoint(self, use: Callable[[Checkpoint], Result]) -> Result:
        """Return `use(checkpoint)` for the newest checkpoint, or a newer one if a training deletes that meanwhile."""
        if self.is_exported:
            raise RunError(f"{self.folder}: an exported run holds tables, not weights; load the run's folder instead")
        while True:
            if not (folders := self._checkpoints()):
                raise RunError(f"{self.folder}: the run holds no checkpoint; start it again in another folder")
            checkpoint = Checkpoint(folders[-1])
            try:
                checkpoint.verify()
                return use(checkpoint)
            except Exception:
                if checkpoint.folder.is_dir():
                    raise

    def _checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, oldest first; an incomplete one has another name."""
        return sorted(path for path in (self.folder / "checkpoints").glob("*") if path.name.isdigit() and path.is_dir())

    def team(self, base: str | Sequence[str] = ()) -> Team:
        """Return the team of the newest checkpoint, rebuilt from the folder alone.

        `base` lists the hub ids of models that its adapters need; no other model is fetched (PolicyError names the one
        to list).
        """
        return self.with_checkpoint(lambda checkpoint: checkpoint.team(base))


def load_run(path: str | Path) -> Run:
    """Open a run from its folder or from an exported zip.

    A run is JSON, safetensors and parquet, which run no code.

    Args:
        path: Folder of the run, its name under `runs_dir()`, or an exported zip.

    Returns:
        The run, with `.turns`, `.stats`, `.recipe`, and, if it is a folder, `.team()`.

    Raises:
        RunError: There is no run, or a zip is damaged.
    """
    check_arguments(load_run, locals())
    for folder in (run_folder(path), Path(path)):
        if folder.is_file() or (folder / "run.json").is_file():
            return Run(open_zip(folder) if folder.is_file() else folder)
    known = sorted(entry.parent.name for entry in runs_dir().glob("*/run.json"))
    raise RunError(
        f"no run at {path} or {run_folder(path)}: there is no run.json; runs in {runs_dir()}: "
        f"{', '.join(known) or 'none'}"
    )


def open_zip(path: Path) -> zipfile.Path:
    """Return the top of an exported run's zip."""
    try:
        archive = zipfile.ZipFile(path)
        archive.getinfo("run.json")
    except Exception as error:  # damaged bytes may raise anything
        raise RunError(f"{path} is neither a run's folder nor a zip made by export() ({error})") from None
    return zipfile.Path(archive)


def spread(steps: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the steps, evenly spread, with the first and the last among them."""
    places = np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int)
    return [steps[place] for place in np.unique(places)]


def run_folder(run: str | Path) -> Path:
    """Return the folder of a run: a bare name lies under `runs_dir()`, a name with a separator is a path."""
    return runs_dir() / run if Path(run).name == str(run) else Path(run)
