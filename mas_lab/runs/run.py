"""Read a run that was kept: a folder with recipe, tables and checkpoints, or a zip without weights.

    runs/<name>/run.json                      the config: env, recipe, seed, settings, versions, threads
    runs/<name>/turns/000107.parquet          the table of step 107, with its scores; stats/ beside it
    runs/<name>/turns/000000-000099.zip       the tables of a hundred earlier steps, byte for byte
    runs/<name>/manifest.txt                  the sha256 of these files
    runs/<name>/checkpoints/000108/           the team after 108 steps: safetensors and JSON, with their sha256

Leaves out: how it is written (`recorder`), and its scores (`scores`).
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from mas_lab import recipes
from mas_lab.runs import forms
from mas_lab.runs.checkpoint import Checkpoint
from mas_lab.runs.disk import Files, RunError, read_json, read_table, read_tables
from mas_lab.runs.forms import require_form
from mas_lab.runs.manifest import MANIFEST, Manifest, Part
from mas_lab.runs.zips import Zipped, open_zip
from mas_lab.team import Team

FORMAT = 3
"""The format of a run. Format 2 had no manifest, and each step was a file of its own. In format 1, recipes also
lacked `ddof`, `eps`, `flat` and `select`, and `episode_return` took `of`."""
KEEPING = ("save_every", "workers", "step_timeout", "check", "score_every", "score_at", "score_tasks",
           "score_episodes", "score_seed")  # fmt: skip
"""Settings that a resumed run may change."""
TABLES = ("turns", "stats")
SCORES = "scores"
"""The folder of held-out scores, beside those of `TABLES`, see `scores.keep_scores`."""
TRIES = 20
Result = TypeVar("Result")
WATCH, TOKENS = "watch.json", "tokens.json"
"""Files of an exported zip that stand in for its checkpoints."""


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


class Run:
    """A run folder or an exported zip, for reading. `load_run` makes one."""

    def __init__(self, folder: Files):
        self.folder, self.manifest = folder, Manifest(folder)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.recipe_name}, {self.steps} steps)"

    @property
    def config(self) -> dict[str, Any]:
        config = read_json(self._file("run.json"))
        if config.get("format", 1) == FORMAT and not self.manifest.parts:
            raise RunError(f"{self.folder / MANIFEST} is missing; put it back, without it no file can be trusted")
        return config

    def _file(self, name: str) -> Part:
        """Return a file as it was recorded; without a manifest, as it is."""
        parts = self.manifest.parts
        if parts and name not in parts:
            raise RunError(
                f"{self.folder / name} is not recorded in {self.folder / MANIFEST}; it was put there by hand"
            )
        return parts.get(name) or Part(self.folder, name)

    @property
    def made_by(self) -> str:
        """Return the version that wrote the run, in words."""
        version = self.config.get("versions", {}).get("mas-lab", "of an unknown version")
        return f"mas-lab {version} (format {self.config.get('format', 1)})"

    @property
    def recipe(self) -> "recipes.Recipe":
        """Return the recipe, rebuilt from run.json; ValueError names a custom part, which only its own code makes."""
        try:
            return recipes.from_data(self.config["recipe"])
        except (TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{self.folder / 'run.json'}: recipe is not one of this kit ({error})") from error

    @property
    def recipe_name(self) -> str:
        """Return the name of the recipe, even if it cannot be rebuilt."""
        return str(self.config["recipe"].get("name"))

    @property
    def steps(self) -> int:
        """Return the number of training steps whose tables are in the folder."""
        return len(self.parts("stats"))

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

    def part(self, step: int) -> Part:
        """Return one step's turns as they are on disk."""
        name = f"turns/{step:06d}.parquet"
        if name not in self.manifest.parts and (self.manifest.parts or not (self.folder / name).is_file()):
            raise RunError(f"{self.folder}: there is no step {step}; the run holds {self.steps} steps, from 0")
        return self._file(name)

    def parts(self, name: str) -> list[Part]:
        """Return one table as it is on disk, a part per step; raise `RunError` naming a missing step."""
        parts = [part for held, part in self.manifest.parts.items() if held.startswith(f"{name}/")]
        if not self.manifest.parts and (self.folder / name).is_dir():
            found = (path.name for path in (self.folder / name).iterdir())
            parts = [Part(self.folder, f"{name}/{file}") for file in found if _is_part(file)]
        parts.sort(key=lambda part: part.name)
        for step, part in enumerate(parts if name in TABLES else ()):
            if part.step != step:
                missing = self.folder / name / f"{step:06d}.parquet"
                raise RunError(f"{missing} is missing; put it back, or start again in another folder")
        return parts

    def read(self, name: str, columns: list[str] | None = None) -> pd.DataFrame:
        """Return one table ("turns" or "stats") of all steps, or only some `columns`, without reading others."""
        parts = self.parts(name)
        if not parts:
            raise RunError(f"{self.folder}: the run holds no {name} yet; let train() make a step first")
        table = read_tables(parts, columns)
        missing = [column for column in columns or () if column not in table.columns]
        if missing:
            raise RunError(f"{self.folder}: its {name} have no column {missing[0]!r}; they were not written by train()")
        return table

    def watched(self) -> dict[str, Any] | None:
        """Return the state of the run's watch, from the newest checkpoint or an exported zip; `None` without one."""
        if isinstance(self.folder, Zipped):
            return read_json(self._file(WATCH)) if self._holds(WATCH) else None
        folders = self._checkpoints()
        return Checkpoint(folders[-1]).state["watch"] if folders else None

    def token_texts(self) -> dict[str, dict[str, str]]:
        """Return policy -> token id -> text for all tokens in completions, as far as tokenizers were kept."""
        if isinstance(self.folder, Zipped):
            held = read_json(self._file(TOKENS)) if self._holds(TOKENS) else {}
            return require_form(held, forms.TOKENS, self.folder / TOKENS)
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

    def _holds(self, name: str) -> bool:
        return name in self.manifest.parts or (not self.manifest.parts and (self.folder / name).is_file())

    def checkpoint(self) -> "Checkpoint":
        """Return the newest checkpoint, checked against its hashes."""
        checkpoint = Checkpoint(self._newest())
        checkpoint.verify()
        return checkpoint

    def with_checkpoint(self, use: "Callable[[Checkpoint], Result]") -> Result:
        """Return `use(checkpoint)` for the newest checkpoint, or a newer one if a training deletes that meanwhile."""
        for _ in range(TRIES):
            checkpoint = Checkpoint(self._newest())
            try:
                checkpoint.verify()
                return use(checkpoint)
            except Exception:
                if checkpoint.folder.is_dir():
                    raise
        raise RunError(f"{self.folder}: its checkpoints come and go too fast to be read; stop its training first")

    def _newest(self) -> Path:
        if isinstance(self.folder, Zipped):
            raise RunError(f"{self.folder}: an exported run holds tables, not weights; load the run's folder instead")
        folders = self._checkpoints()
        if not folders:
            raise RunError(f"{self.folder}: the run holds no checkpoint; start it again in another folder")
        return folders[-1]

    def _checkpoints(self) -> list[Path]:
        """Return the complete checkpoints, oldest first; an incomplete one has another name."""
        return sorted(path for path in (self.folder / "checkpoints").glob("*") if path.name.isdigit() and path.is_dir())

    def team(self, base: str | Sequence[str] = ()) -> Team:
        """Return the team of the newest checkpoint, rebuilt from the folder alone.

        `base` lists the hub ids of models that its adapters need. A run may come from anybody, so no other model is
        loaded (PolicyError names the one to list).
        """
        return self.with_checkpoint(lambda checkpoint: checkpoint.team(base))


def load_run(path: str | Path) -> Run:
    """Open a run from its folder or from an exported zip.

    A zip may come from anybody. It is read in place, up to 2 GiB and 20 million rows; the environment variable
    MAS_LAB_ZIP_GIB sets another number of GiB. Folders are not limited.

    Args:
        path: Folder of the run, its name under `runs_dir()`, or an exported zip.

    Returns:
        The run, with `.turns`, `.stats`, `.recipe`, and, if it is a folder, `.team()`.

    Raises:
        RunError: There is no run, a later version wrote it, or a member of the zip does not belong to a run.
        TableError: A table in the zip holds wrong values; the message names the member. It may be raised on reading.
    """
    for folder in (run_folder(path), Path(path)):
        if (folder / "run.json").is_file():
            return _readable(Run(folder))
        if folder.is_file():
            return _readable(Run(_open_zip(folder)))
    known = sorted(entry.parent.name for entry in runs_dir().glob("*/run.json"))
    raise RunError(
        f"no run at {path} or {run_folder(path)}: there is no run.json; runs in {runs_dir()}: "
        f"{', '.join(known) or 'none'}"
    )


def _readable(run: Run) -> Run:
    """Return the run after checking its description; RunError if a later version wrote it."""
    path = run.folder / "run.json"
    if require_form(run.config, forms.VERSIONS, path).get("format", 1) > FORMAT:
        raise RunError(f"{run.folder} was made by {run.made_by}; this version reads up to format {FORMAT}: update it")
    require_form(run.config, forms.CONFIG, path)
    return run


def run_folder(run: str | Path) -> Path:
    """Return the folder of a run: a bare name lies under `runs_dir()`, a name with a separator is a path."""
    return runs_dir() / run if Path(run).name == str(run) else Path(run)


def _open_zip(path: Path) -> Zipped:
    inside = open_zip(path)
    if not (inside / "run.json").is_file():
        raise RunError(f"{path} holds no run.json, so it was not made by export()")
    return inside


def _is_part(name: str) -> bool:
    """Return whether a name is a step's table, such as `000007.parquet`, and not an incomplete or other file."""
    stem, _, suffix = name.partition(".")
    return stem.isdigit() and suffix == "parquet"
