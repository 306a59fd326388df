"""A run that was kept: a folder with the recipe, the tables and checkpoints, or a zip of it without weights.

    runs/<name>/run.json                      what was asked: env, recipe, seed, settings, versions, threads
    runs/<name>/turns/000107.parquet          the table of step 107, with what it scored; stats/ beside it
    runs/<name>/turns/000000-000099.zip       those of a hundred earlier steps, just as they were
    runs/<name>/manifest.txt                  the sha256 of these files
    runs/<name>/checkpoints/000108/           the team after 108 steps: safetensors and JSON, with their sha256

Leaves out: how it is written (`recorder`), and what it scored (`scores`).
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
"""Of a run. In 2, there was no manifest and each step a file of its own; in 1, recipes could not say `ddof`, `eps`,
`flat` or `select` either, and `episode_return` took `of`."""
KEEPING = ("save_every", "workers", "step_timeout", "check", "score_every", "score_at", "score_tasks",
           "score_episodes", "score_seed")  # fmt: skip
"""Settings that a resumed run may change."""
TABLES = ("turns", "stats")
SCORES = "scores"
"""The folder of held-out scores beside those of `TABLES`, see `scores.keep_scores`."""
TRIES = 20
Result = TypeVar("Result")
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
        """A file as it was recorded; of a run without a manifest, as it is."""
        parts = self.manifest.parts
        if parts and name not in parts:
            raise RunError(
                f"{self.folder / name} is not recorded in {self.folder / MANIFEST}; it was put there by hand"
            )
        return parts.get(name) or Part(self.folder, name)

    @property
    def made_by(self) -> str:
        """Which version wrote the run, in words."""
        version = self.config.get("versions", {}).get("mas-lab", "of an unknown version")
        return f"mas-lab {version} (format {self.config.get('format', 1)})"

    @property
    def recipe(self) -> "recipes.Recipe":
        """The recipe anew. `ValueError` names a part of one's own in it, which only its own code can make."""
        try:
            return recipes.from_data(self.config["recipe"])
        except (TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{self.folder / 'run.json'}: recipe is not one of this kit ({error})") from error

    @property
    def recipe_name(self) -> str:
        """What the recipe was called, whatever it was made of."""
        return str(self.config["recipe"].get("name"))

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

    def part(self, step: int) -> Part:
        """One step's turns, as they are on disk."""
        name = f"turns/{step:06d}.parquet"
        if name not in self.manifest.parts and (self.manifest.parts or not (self.folder / name).is_file()):
            raise RunError(f"{self.folder}: there is no step {step}; the run holds {self.steps} steps, from 0")
        return self._file(name)

    def parts(self, name: str) -> list[Part]:
        """One table as it is on disk, a step each, in order. Raises `RunError` naming a step that is missing."""
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
        if isinstance(self.folder, Zipped):
            return read_json(self._file(WATCH)) if self._holds(WATCH) else None
        folders = self._checkpoints()
        return Checkpoint(folders[-1]).state["watch"] if folders else None

    def token_texts(self) -> dict[str, dict[str, str]]:
        """Policy -> token id -> text, of all tokens in the run's completions, as far as tokenizers were kept."""
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
        """The newest checkpoint, checked against its hashes."""
        checkpoint = Checkpoint(self._newest())
        checkpoint.verify()
        return checkpoint

    def with_checkpoint(self, use: "Callable[[Checkpoint], Result]") -> Result:
        """What `use` makes of the newest checkpoint. A training may delete that meanwhile: then of a newer one."""
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
        """The folder of the newest checkpoint."""
        if isinstance(self.folder, Zipped):
            raise RunError(f"{self.folder}: an exported run holds tables, not weights; load the run's folder instead")
        folders = self._checkpoints()
        if not folders:
            raise RunError(f"{self.folder}: the run holds no checkpoint; start it again in another folder")
        return folders[-1]

    def _checkpoints(self) -> list[Path]:
        """Whole checkpoints, oldest first; what a kill left half-written has another name."""
        return sorted(path for path in (self.folder / "checkpoints").glob("*") if path.name.isdigit() and path.is_dir())

    def team(self, base: str | Sequence[str] = ()) -> Team:
        """The team of the newest checkpoint, rebuilt from the folder alone. `base`: the hub ids of models that its
        adapters stand on; a run may come from anybody, so none is loaded unasked (PolicyError says which to ask for).
        """
        return self.with_checkpoint(lambda checkpoint: checkpoint.team(base))


def load_run(path: str | Path) -> Run:
    """A run by its folder, by its name under `runs_dir()`, or from an exported zip: `.turns`, `.stats`, `.recipe`,
    and, where the folder is there, `.team()`.

    A zip may be anybody's: it is read where it lies, up to 2 GiB and 20 million rows unless MAS_LAB_ZIP_GIB says more,
    and RunError or TableError names the member that is none of a run's. Folders are not limited.
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
    """Runs of earlier versions open; of a later one nobody here knows what its files mean."""
    path = run.folder / "run.json"
    if require_form(run.config, forms.VERSIONS, path).get("format", 1) > FORMAT:
        raise RunError(f"{run.folder} was made by {run.made_by}; this version reads up to format {FORMAT}: update it")
    require_form(run.config, forms.CONFIG, path)
    return run


def run_folder(run: str | Path) -> Path:
    """Where a run is kept: a bare name goes under `runs_dir()`, anything with a separator is a path."""
    return runs_dir() / run if Path(run).name == str(run) else Path(run)


def _open_zip(path: Path) -> Zipped:
    inside = open_zip(path)
    if not (inside / "run.json").is_file():
        raise RunError(f"{path} holds no run.json, so it was not made by export()")
    return inside


def _is_part(name: str) -> bool:
    """`000007.parquet`, and nothing that was left half-written or put there by hand."""
    stem, _, suffix = name.partition(".")
    return stem.isdigit() and suffix == "parquet"
