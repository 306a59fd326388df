"""Saving a run's team as a folder to share: weights, `team.json` and a model card.

Weights are in plain Hugging Face or PEFT form. Files are copied from the newest checkpoint, without optimizers and
without data about the machine. Names and texts of a run stand only in the card's JSON blocks. There they cannot act as
links, HTML or YAML. Leaves out: the form of the folder (`load_team`).
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from huggingface_hub import ModelCard, ModelCardData

from mas_lab.contrib.teams.load import CARD, FILE, FORMAT, HUB_ID, TEAM, reserved
from mas_lab.runs.disk import RunError, Unwritten, atomic, hashes, read_json, remedy, write_json
from mas_lab.runs.run import Checkpoint, Run, load_run
from mas_lab.runs.scores import run_curve, score_curve

POCKET_LICENSE = "apache-2.0"
"""License of this kit, which includes the pocket models."""
DESCRIBED = ("recipe", "env", "settings", "seed", "untold", "versions", "code", "threads", "device", "ranks",
             "continued")  # fmt: skip
"""Keys of a run's description that the card shows."""


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
        raise RunError(f"{error}; the run is as it was: {remedy(error)}, or choose another place") from error
    return target


def _write(run: Run, checkpoint: Checkpoint, folder: Path) -> None:
    team = checkpoint.state["team"]
    with atomic(folder, is_folder=True) as staged:
        policies = {name: _copy(name, number, checkpoint, staged) for number, name in enumerate(team["policies"])}
        roles = {key: team[key] for key in ("agents", "sampling", "frozen")}
        data = {"format": FORMAT, "step": checkpoint.step, **roles, "policies": policies}
        write_json(staged / TEAM, data)
        card(run, data).save(staged / CARD)


def _copy(name: str, number: int, checkpoint: Checkpoint, staged: Path) -> dict[str, Any]:
    """Copy one policy's files, and return its entry in `team.json`."""
    source = checkpoint.folder / "policies" / str(number)
    record = read_json(source / "policy.json")
    if record.get("backend") == "tinker":
        raise RunError(f"policy {name!r} lives behind a Tinker server, and the run has no weights of it; download them")
    if taken := reserved(record["template"]):
        reason = f"policy {name!r} has the template argument {taken[0]!r}, which load_team refuses"
        raise RunError(f"{reason}; set policy.tokenizer.chat_template instead, and train from there")
    called = f"policies/{number}" + (f"-{name}" if re.fullmatch(r"[A-Za-z0-9_]{1,40}", name) else "")
    folder = staged / called
    folder.mkdir(parents=True)
    for path in source.iterdir():
        if re.match(FILE, path.name):
            shutil.copyfile(path, folder / path.name)
    base = {key: value for key, value in record["source"].items() if value is not None}
    if base["kind"] in ("directory", "gguf"):
        del base["name"]  # a path on a local machine
    if (adapted := folder / "adapter_config.json").is_file():
        write_json(adapted, read_json(adapted) | {"base_model_name_or_path": base.get("name")})
    entry = {"folder": called, "kind": "adapter" if record["lora"] else "full", "base": base, "lr": record["lr"],
            "template": record["template"], "files": hashes(folder)}  # fmt: skip
    if record["lora"]:
        entry["lora"] = {**record["lora"], "alpha": record["options"].get("alpha", 2.0)}
    return entry


def card(run: Run, team: Mapping[str, Any]) -> ModelCard:
    """Return the model card: a YAML header for the hub, then text for people.

    `team` is the content of `team.json`.
    """
    config, policies, step = run.config, list(team["policies"].values()), team["step"]
    weights = [{key: one[key] for key in ("folder", "kind", "base", "lora", "lr") if key in one} for one in policies]
    header = _header([one["base"] for one in policies], any(one["kind"] == "adapter" for one in policies))
    return ModelCard(f"""---
{header.to_yaml().strip()}
---

# A team of {len(team["agents"])} agents, trained with mas_lab

```python
import mas_lab as lab

team = lab.load_team("<owner/name>", revision="<commit>")   # or a folder; base=... for adapters of other models
```

{block({key: team[key] for key in ("agents", "sampling", "frozen")} | {"weights": weights})}

Without mas_lab, transformers or PEFT load each policy from its folder, `subfolder=...`. The sha256 of every file stands
in `team.json`.

## How it was trained

{block({key: config.get(key) for key in DESCRIBED} | {"forked_after_step": config.get("forked", {}).get("step")})}

## What it came to

{block(_results(run, step))}

Scores are means over held-out tasks after that many steps; the list is empty if none were kept with the run. This is
one training with one seed: another seed may come to other numbers.

## Limits

It was trained for this task and this reward, and nothing else of it was measured: not how it answers other prompts, nor
how safe its answers are. A pocket model knows the words of its own task alone.
""")


def block(data: Any) -> str:
    """Return plain data as JSON, in a code fence that the data cannot close."""
    text = json.dumps(data, indent=1)  # escapes non-ASCII characters and line breaks
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}json\n{text}\n{fence}"


def _header(bases: Sequence[Mapping[str, Any]], peft: bool) -> ModelCardData:
    named = {base["name"] for base in bases if base["kind"] == "hub" and HUB_ID.fullmatch(base.get("name", ""))}
    return ModelCardData(
        base_model=sorted(named) or None,
        license=POCKET_LICENSE if all(base["kind"] == "pocket" for base in bases) else None,
        library_name="mas_lab",
        tags=["mas_lab", "multi-agent", "reinforcement-learning", *["peft"] * peft],
    )


def _results(run: Run, step: int) -> dict[str, Any]:
    """Return the number of sampled tokens, and the held-out scores at the first and the last scored step."""
    curve = run_curve(run) if run.steps else pd.DataFrame({"step": [], "tokens": []})
    scores = score_curve(run, curve)[["step", "success", "return"]].query("step <= @step")
    ends = pd.concat([scores.head(1), scores.tail(1)]).drop_duplicates("step").round(3)
    tokens = int(curve.loc[curve["step"] < step, "tokens"].max()) if step else 0
    return {"steps": step, "sampled_tokens": tokens, "held_out_scores": ends.to_dict("records")}
