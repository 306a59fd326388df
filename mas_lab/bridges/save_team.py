"""Saving a run's team as a folder to share: weights, `team.json` and a model card.

Weights are in plain Hugging Face or PEFT form. Files are copied from the newest checkpoint, without optimizers and
without data about the machine. Leaves out: the form of the folder (`load_team`), and the text of the card (`card`).
"""

import re
import shutil
from pathlib import Path
from typing import Any

from mas_lab.bridges.card import card
from mas_lab.bridges.load_team import CARD, FILE, FORMAT, TEAM
from mas_lab.runs.checkpoint import Checkpoint
from mas_lab.runs.disk import RunError, Unwritten, hashes, read_json, whole, write_json
from mas_lab.runs.run import Run, load_run


def save_team(run: Run | str | Path, folder: str | Path) -> Path:
    """Write the team of a run's newest checkpoint as a folder to share or to upload.

    Each policy gets its own subfolder. transformers loads full weights from it, and PEFT loads an adapter. `team.json`
    maps agents to policies. `README.md` is a model card for the Hugging Face hub; its numbers come from the run alone.
    Base models of adapters are named, not copied. `lab.load_team(folder)` loads the team.

    Args:
        run: A `Run`, or the path of a run's folder.
        folder: The folder to write. It must be new or empty.

    Returns:
        The path of the folder.

    Raises:
        RunError: The run has no weights, such as an exported zip; `folder` has files; or the disk cannot be written.
    """
    run, target = run if isinstance(run, Run) else load_run(run), Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} is there already; name a folder that is new or empty")
    try:
        run.with_checkpoint(lambda checkpoint: _write(run, checkpoint, target))
    except Unwritten as error:
        raise RunError(f"{error}; the run is as it was: free space, or choose another place") from error
    return target


def _write(run: Run, checkpoint: Checkpoint, folder: Path) -> None:
    team = checkpoint.state["team"]
    with whole(folder, is_folder=True) as staged:
        policies = {name: _copy(name, number, checkpoint, staged) for number, name in enumerate(team["policies"])}
        kept = {key: team[key] for key in ("agents", "sampling", "frozen")}
        data = {"format": FORMAT, "step": checkpoint.step, **kept, "policies": policies}
        write_json(staged / TEAM, data)
        card(run, data).save(staged / CARD)


def _copy(name: str, number: int, checkpoint: Checkpoint, staged: Path) -> dict[str, Any]:
    """Copy one policy's files, and return its entry in `team.json`."""
    source = checkpoint.folder / "policies" / str(number)
    record = read_json(source / "policy.json")
    if record.get("backend") == "tinker":
        raise RunError(
            f"policy {name!r} lives behind a Tinker server, and the run holds no weights of it; download them"
        )
    called = f"policies/{number}" + (f"-{name}" if re.fullmatch(r"[A-Za-z0-9_]{1,40}", name) else "")
    folder = staged / called
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if re.match(FILE, path.name):
            shutil.copyfile(path, folder / path.name)
    base = {key: value for key, value in record["source"].items() if value is not None}
    if base["kind"] == "directory":
        del base["name"]  # a path on a local machine
    if (adapted := folder / "adapter_config.json").is_file():
        write_json(adapted, read_json(adapted) | {"base_model_name_or_path": base.get("name")})
    told = {"folder": called, "kind": "adapter" if record["lora"] else "full", "base": base, "lr": record["lr"],
            "template": record["template"], "files": hashes(folder)}  # fmt: skip
    if record["lora"]:
        told["lora"] = {**record["lora"], "alpha": record["options"].get("alpha", 2.0)}
    return told
