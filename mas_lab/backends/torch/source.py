"""The source of a model's weights, the digest that identifies them, and the record of a saved policy.

It imports no heavy library. Leaves out: reading the weights (`model`), writing the record (`state`).
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from mas_lab.backends.torch.gguf import is_gguf, listed_models, unpacked
from mas_lab.paths import data_dir, digest_of
from mas_lab.policy import PolicyError

PROVENANCE = "provenance.json"
"""The file that makes a folder a pocket model: how it was made, and its learning rates."""
LARGE_LR = {"full": 1e-6, "lora": 2e-5}
"""Learning rates of models without a rate of their own."""
RECORD = "policy.json"
FILES = ("config.json", "generation_config.json", "tokenizer*.json", "tokenizer.model", "special_tokens_map.json",
         "added_tokens.json", "vocab.*", "merges.txt", "chat_template.*")  # fmt: skip
"""Files of a model beside its weights that decide what it reads and says."""
COMMIT = (*FILES, "*.safetensors", "*.safetensors.index.json", "pytorch_model*")
"""Files of a hub model that are needed to load it again."""
Options = TypeVar("Options")


def options_of(cls: type[Options], options: Mapping[str, Any]) -> Options:
    """Return the options of a back end from a mapping; raise PolicyError if a name is unknown."""
    known = [field.name for field in fields(cls)]
    if unknown := [name for name in options if name not in known]:
        raise PolicyError(f"this back end has no option {unknown[0]!r}; it has: {', '.join(known)}")
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


@contextmanager
def reading(where: str | Path, files: str) -> Iterator[None]:
    """Raise PolicyError, with the files and the remedy, for any error of a library that reads `files` of a model."""
    try:
        yield
    except PolicyError:
        raise
    except Exception as error:  # transformers, safetensors and tokenizers raise errors of many types
        if "trust_remote_code" in str(error):
            raise PolicyError(
                f"the model {str(where)!r} wants code of its own to be run, which is not done here; take one of an "
                "architecture that transformers knows"
            ) from error
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PolicyError(
            f"{where}: {files} cannot be read ({reason:.300}); fetch the model again, or take another one"
        ) from error


def model_config(where: str | Path) -> Any:
    """Return the transformers config of a directory or hub id.

    Code that comes with a model is never run, and the user is never asked. Raises PolicyError if the model needs it, or
    if a JSON file of the directory is broken; transformers reads on without some.
    """
    from transformers import AutoConfig
    from transformers.utils import find_adapter_config_file

    for path in sorted(Path(where).glob("[!.]*.json")):
        with reading(where, path.name):
            json.loads(path.read_bytes())
    with reading(where, "config.json"):
        if find_adapter_config_file(str(where)):
            raise ValueError("adapter_config.json makes it an adapter of another model: load that one with lora=")
        return AutoConfig.from_pretrained(where, trust_remote_code=False)


def read_tokenizer(where: str | Path) -> Any:
    """Return the tokenizer of a directory or hub id; raise PolicyError if there is none, or if it is broken."""
    from transformers import AutoTokenizer

    with reading(where, "tokenizer.json or tokenizer_config.json"):
        tokenizer = AutoTokenizer.from_pretrained(where, trust_remote_code=False)
        if tokenizer.get_vocab().keys() <= tokenizer.added_tokens_encoder.keys():  # made without a file
            raise ValueError("it has no vocabulary")
    return tokenizer


def shape(config: Any, name: str) -> Any:
    """Return the attribute `name` of a transformers config of text, or `None`; the largest if layers differ in it."""
    text = config.get_text_config()
    try:
        return getattr(text, name, None)
    except RuntimeError:  # transformers raises it, and not AttributeError, if layers differ
        return max(filter(None, (getattr(layer, name, None) for layer in text.per_layer_config)), default=None)


def head_size(config: Any) -> int:
    """Return the number of dimensions of an attention head, by a transformers config."""
    return shape(config, "head_dim") or shape(config, "hidden_size") // shape(config, "num_attention_heads")


def context_of(config: Any) -> int:
    """Return the longest prompt plus completion in tokens, by a transformers config."""
    return shape(config, "max_position_embeddings") or 2**20


def rotations_of(config: Any) -> list[dict[str, Any]]:
    """Return the parameters of a model's rotary embeddings, which may differ by kind of layer."""
    rope = shape(config, "rope_parameters") or {}
    return [rope] if "rope_type" in rope else [one for one in rope.values() if isinstance(one, dict)]


def rotary_switch(config: Any) -> int | None:
    """Return the length above which a model turns its heads by other factors (LongRoPE, arXiv 2402.13753), if any."""
    found = [one for one in rotations_of(config) if one.get("rope_type") == "longrope"]
    return min((one["original_max_position_embeddings"] for one in found), default=None)


def eos_ids(tokenizer, config: Any) -> frozenset[int]:
    """Return the ids that end a completion, from the tokenizer and a config, which may be `None`."""
    listed = getattr(config, "eos_token_id", None)
    listed = listed if isinstance(listed, (list, tuple)) else [listed]
    return frozenset(i for i in (*listed, tokenizer.eos_token_id) if i is not None)


@dataclass(frozen=True)
class Source:
    """The source of weights, with a digest.

    Its `kind` is "directory", "pocket" (a pocket family), "listed" (a name in `data/models.toml`), "gguf" (a file), or
    "hub" (a hub id).
    """

    kind: str
    name: str
    digest: str | None = None
    """sha256 over weights and `FILES` of a pocket model or directory, or of a GGUF file; the commit of a hub model."""

    @classmethod
    def find(cls, name: str | Path) -> "Source":
        with reading(name, "config.json"):
            if (Path(name) / "config.json").is_file():
                return cls("directory", str(Path(name).resolve()))
        families = _families()
        if str(name) in families:
            return cls("pocket", str(name))
        if str(name) in (listed := listed_models()):
            return cls("listed", str(name), listed[str(name)]["sha256"])
        if is_gguf(path := Path(name)):
            return cls("gguf", str(path.resolve()), digest_of(path))
        if path.suffix.lower() == ".gguf":
            raise PolicyError(f"{path} is no file here, or does not begin with the letters GGUF")
        if str(name).count("/") == 1 and not str(name).startswith((".", "/", "~")):
            return cls("hub", str(name))
        raise PolicyError(
            f"no model {str(name)!r}: neither a directory with a config.json, nor a .gguf file, nor a hub id "
            f"(owner/name), nor a model of a package ({', '.join(listed)}), nor a pocket model; pocket models: "
            f"{', '.join(families) or 'none here'}; lab.make_pocket(env, out) makes one"
        )

    def default_lr(self, lora: bool) -> float:
        """Return the learning rate in `provenance.json` or `models.toml`, or the usual rate of large models.

        A pocket model has one rate for all weights and one for an adapter. Weights that `policy.save` wrote keep the
        rate that they had.
        """
        which = "lora" if lora else "full"
        if self.kind in ("listed", "gguf"):
            return (LARGE_LR | listed_models().get(self.name, {}).get("learning_rate", {}))[which]
        path = Path(self.location()) / PROVENANCE
        if self.kind == "directory" and path.with_name(RECORD).is_file():
            record = read_record(path.parent)
            return Source(**record["source"]).default_lr(lora) if lora else record["lr"]
        if self.kind == "hub" or not path.is_file():
            return LARGE_LR[which]
        return json.loads(path.read_text(encoding="utf-8"))["learning_rate"][which]

    def location(self) -> str:
        """Return the folder or the hub id; raise PolicyError for a pocket model that the kit does not ship.

        A record may come from anybody, and the name in it may be a path. A GGUF file is unpacked at its first use.
        """
        if self.kind in ("listed", "gguf"):
            with reading(self.name, "its GGUF file (the package gguf reads it), or the folder MAS_LAB_MODELS,"):
                return unpacked(self.name, self.digest)
        if self.kind == "pocket" and self.name not in _families():
            raise PolicyError(f"the kit ships no pocket model {self.name!r:.80}; it ships {', '.join(_families())}")
        return str(data_dir() / "pocket" / self.name) if self.kind == "pocket" else self.name

    def pinned(self) -> "Source":
        """Return the source with its digest."""
        if self.digest is not None:
            return self
        if self.kind == "hub":
            from transformers.utils.hub import cached_file, extract_commit_hash

            with reading(self.name, "config.json"):
                return Source(self.kind, self.name, extract_commit_hash(cached_file(self.name, "config.json"), None))
        sha, folder = hashlib.sha256(), Path(self.location())
        for path in sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin")):
            with reading(self.name, path.name):
                sha.update(bytes.fromhex(digest_of(path)))
        for path in sorted({path for name in FILES for path in folder.glob(name) if path.is_file()}):
            with reading(self.name, path.name):
                sha.update(path.name.encode() + path.read_bytes().replace(b"\r\n", b"\n"))
        return Source(self.kind, self.name, sha.hexdigest())

    def check(self) -> str:
        """Return the location of the recorded model, which is the folder of the recorded commit of a hub model.

        Raises PolicyError if the model is missing or has changed.
        """
        if self.kind == "hub" and self.digest is not None:
            return self._commit()
        if self.kind in ("hub", "listed", "gguf"):
            return self.location()
        found = Source(self.kind, self.name).pinned().digest
        if self.digest != found:
            raise PolicyError(
                f"the weights, config, tokenizer or chat template of the base model at {self.location()} have changed "
                f"or are no longer there (sha256 {found}, not {self.digest}); put the files back as they were"
            )
        return self.location()

    def _commit(self) -> str:
        """Return the folder of the recorded commit of a hub model; files that are not here are downloaded."""
        from huggingface_hub import is_offline_mode, snapshot_download

        if not re.fullmatch("[0-9a-f]{40}", str(self.digest)):  # a record may come from anybody
            raise PolicyError(f"the base {self.name!r:.80} is recorded with {self.digest!r:.80}, which is no commit")
        with reading(f"{self.name} at commit {self.digest}", "the files"):
            return snapshot_download(
                self.name, revision=self.digest, allow_patterns=COMMIT,
                local_files_only=is_offline_mode(),  # huggingface_hub 1.33 asks the hub for the list of files otherwise
            )  # fmt: skip


def _families() -> list[str]:
    return sorted(path.parent.name for path in (data_dir() / "pocket").glob("*/config.json"))


def read_record(directory: Path) -> dict[str, Any]:
    """Return the record in `directory`; raise PolicyError if it is missing or was not written by `policy.save`."""
    path = directory / RECORD
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        Source(**found["source"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(f"{path} was not written by `policy.save`, or was changed since ({error!r})") from None
    return found
