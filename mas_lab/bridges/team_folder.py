"""Form of a team's folder: the content of `team.json`, the allowed files and their sizes.

    team.json                 agents -> policies, sampling, frozen agents; each policy's folder, base, files with sha256
    policies/0-solver/        weights and tokenizer in Hugging Face form, or one adapter in PEFT form
    README.md                 the model card, for people

Allowed are safetensors, JSON and two plain texts of a tokenizer: no pickle and no code. Leaves out: writing a folder
(`giving`), its card (`card`), and loading it (`taking`).
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from mas_lab.runs.disk import RunError, hashes, is_litter
from mas_lab.runs.forms import NUMBER, require_form

TEAM, CARD = "team.json", "README.md"
FORMAT = 1
LIMIT, USUAL = "MAS_LAB_TEAM_GIB", 32.0
"""Environment variable with the size limit of a team in GiB, and the default limit."""
JSON, TEXT = 2**22, 2**26
"""Maximal sizes in bytes: of a JSON file, and of a tokenizer's file."""
POLICIES = 64
FOLDER = re.compile(r"policies/[0-9]{1,2}(-[A-Za-z0-9_]{1,40})?")
FILE = re.compile(
    r"(config|generation_config|adapter_config|tokenizer_config|special_tokens_map|added_tokens|tokenizer|vocab"
    r"|model\.safetensors\.index)\.json"
    r"|merges\.txt|chat_template\.jinja|(model(-[0-9]{5}-of-[0-9]{5})?|adapter_model)\.safetensors"
)
HELD = {
    "full": {"config.json", "tokenizer.json", "tokenizer_config.json"},
    "adapter": {"adapter_config.json", "adapter_model.safetensors"},
}
"""Files that a policy's folder must have."""
SHA256 = re.compile(r"[0-9a-f]{64}")
BASE = {
    "kind": re.compile("pocket|directory|hub"),
    "name?": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?"),
    "digest?": re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}"),
}
FORM = {
    "format": int,
    "agents": {str: str},
    "sampling": {str: {"temperature": NUMBER, "stop": [str], "top_p": NUMBER}},
    "frozen": [str],
    "policies": {
        str: {
            "folder": FOLDER,
            "kind": re.compile("full|adapter"),
            "base": BASE,
            "lr": NUMBER,
            "template": {re.compile(r"[a-z_]{1,40}"): None},
            "files": {FILE: SHA256},
        }
    },
}
LORA = {"adapters": int, "rank": int, "index": int, "alpha": NUMBER}


def read_team(path: Path) -> dict[str, Any]:
    """Read `team.json` and check its form; raise RunError with the file and the field."""
    _refuse_large(path, path.stat().st_size, JSON)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path} is no JSON that lab.save_team wrote ({error})") from None
    if isinstance(data, dict) and isinstance(data.get("format"), int) and data["format"] > FORMAT:
        raise RunError(f"{path} is of format {data['format']}; this version reads up to {FORMAT}: update it")
    require_form(data, FORM, path)
    _require_sense(data, path)
    return data


def _require_sense(data: dict[str, Any], path: Path) -> None:
    """Check the rules that `FORM` cannot express."""
    policies = data["policies"]
    if not 1 <= len(policies) <= POLICIES:
        raise RunError(f"{path}: it has {len(policies)} policies; a team has 1 to {POLICIES}")
    if set(data["agents"].values()) != set(policies) or not set(data["agents"]) >= {*data["sampling"], *data["frozen"]}:
        raise RunError(f"{path}: agents, policies, sampling and frozen do not name one another; it was edited")
    if len({one["folder"].casefold() for one in policies.values()}) < len(policies):
        raise RunError(f"{path}: two policies have one folder")
    for name, one in policies.items():
        if not 0 < one["lr"] < 1:
            raise RunError(f"{path}: policy {name!r:.80} has the learning rate {one['lr']!r}")
        if odd := [value for value in one["template"].values() if not isinstance(value, bool | int | float | str)]:
            raise RunError(f"{path}: policy {name!r:.80} has {odd[0]!r:.80} in its template, which is no plain value")
        if missing := sorted(HELD[one["kind"]] - set(one["files"])):
            raise RunError(f"{path}: policy {name!r:.80} lists no {missing[0]}")
        if one["kind"] == "adapter":
            require_form(one.get("lora"), LORA, path)
            lora = one["lora"]
            if not (0 <= lora["index"] < lora["adapters"] <= POLICIES and 1 <= lora["rank"] <= 1024):
                raise RunError(f"{path}: policy {name!r:.80} is adapter {lora['index']} of {lora['adapters']}, "
                               f"rank {lora['rank']}; it was edited")  # fmt: skip


def listed(data: dict[str, Any]) -> dict[str, str]:
    """Return the sha256 of every file of every policy, by its path in the folder."""
    return {f"{one['folder']}/{name}": sha for one in data["policies"].values() for name, sha in one["files"].items()}


def refuse_sizes(sizes: dict[str, int], where: Any) -> None:
    """Raise RunError if a file is too large, or all files together are."""
    limit = float(os.environ.get(LIMIT, USUAL)) * 2**30
    for name, size in sizes.items():
        if not name.endswith(".safetensors"):
            is_text = name.endswith(("tokenizer.json", "vocab.json", ".txt"))
            _refuse_large(f"{where}: {name}", size, TEXT if is_text else JSON)
    if sum(sizes.values()) > limit:
        raise RunError(
            f"{where}: its files take {sum(sizes.values()) / 2**30:.1f} GiB, and at most {limit / 2**30:g} are read; "
            f"set {LIMIT} if you trust them"
        )


def _refuse_large(where: Any, size: int, most: int) -> None:
    if size > most:
        raise RunError(f"{where} has {size} bytes; at most {most} are read")


def require_files(folder: Path, data: dict[str, Any]) -> None:
    """Raise RunError unless the files are exactly those of `team.json`, each with its sha256."""
    wanted = listed(data)
    found = {}
    for one in data["policies"].values():
        for path in (folder / one["folder"]).rglob("*"):
            name = path.relative_to(folder).as_posix()
            if path.is_dir() or is_litter(name):
                continue
            if not _stays_within(path, folder):
                raise RunError(f"{path} is a link that leads elsewhere; it is not read")
            found[name] = path
    if missing := sorted(set(wanted) - set(found)):
        raise RunError(f"{folder / missing[0]} is missing; fetch the whole team again")
    if more := sorted(set(found) - set(wanted)):
        raise RunError(f"{folder / more[0]} is not listed in {TEAM}, and is not read; remove it")
    refuse_sizes({name: path.stat().st_size for name, path in found.items()}, folder)
    for one in data["policies"].values():
        for name, sha256 in hashes(folder / one["folder"]).items():
            if sha256 != one["files"][name]:
                raise RunError(
                    f"{folder / one['folder'] / name} is not what {TEAM} says (sha256 {sha256}); fetch it again"
                )
        if one["kind"] == "full":
            _require_modest(folder / one["folder"] / "config.json")


def _stays_within(path: Path, folder: Path) -> bool:
    """Return whether a file lies in the folder, or in the `blobs` to which the hub's cache links a snapshot."""
    real, home = path.resolve(), folder.resolve()
    return real.is_relative_to(home) or (home.parent.name == "snapshots" and real.parent == home.parents[1] / "blobs")


def _require_modest(path: Path) -> None:
    """Refuse a config with huge sizes: the model would be built before its weights are compared."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        layers, sizes = text["num_hidden_layers"], [text["vocab_size"], text["hidden_size"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is no config of a language model ({type(error).__name__}: {error})") from None
    sizes += [value for value in text.values() if type(value) is int]
    if not (type(layers) is int and 0 < layers <= 1024 and all(type(one) is int and one < 2**24 for one in sizes)):
        raise RunError(
            f"{path} describes no model that could be loaded: {layers!r:.20} layers, sizes up to {max(sizes)!r:.20}"
        )
