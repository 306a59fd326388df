"""Loading a shared team from a folder or from the hub, safely; and the form of such a folder.

    team.json                 agents -> policies, sampling, frozen agents; each policy's folder, base, files with sha256
    policies/0-solver/        weights and tokenizer in Hugging Face form, or one adapter in PEFT form
    README.md                 the model card, for people

Allowed are safetensors, JSON and two plain texts of a tokenizer: no pickle and no code. Files are checked before their
content is loaded. Leaves out: writing a folder (`save_team`), and where the weights are kept
(`mas_lab.backends`).
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mas_lab.backends.loading import open_weights
from mas_lab.contrib.foreign.child import refuse_chats, refuse_large
from mas_lab.contrib.foreign.forms import first_problem
from mas_lab.policy import PolicyError
from mas_lab.runs.disk import RunError, changed_file, hashes, read_json
from mas_lab.team import Sampling, Team
from mas_lab.tool_calls import forget_patterns

TEAM, CARD = "team.json", "README.md"
FORMAT = 1
LIMIT = ("MAS_LAB_TEAM_GIB", 32.0)
"""Environment variable with the size limit of a team in GiB, and the default limit."""
FILE = (
    r"^((config|generation_config|adapter_config|tokenizer_config|special_tokens_map|added_tokens|tokenizer|vocab"
    r"|model\.safetensors\.index)\.json"
    r"|merges\.txt|chat_template\.jinja|(model(-[0-9]{5}-of-[0-9]{5})?|adapter_model)\.safetensors)$"
)
HUB_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}")
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,95})?$"
File, Sha256 = Annotated[str, Field(pattern=FILE)], Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
FETCHED = [TEAM, "policies/*.safetensors", "policies/*.json", "policies/*/merges.txt", "policies/*/chat_template.jinja"]
"""Files of a hub repository that are fetched: none of them can hold code."""


class Base(BaseModel):
    """The model that a policy began with."""

    kind: Literal["pocket", "directory", "hub", "listed", "gguf"]
    name: str | None = Field(None, pattern=NAME)
    digest: str | None = Field(None, pattern="^([0-9a-f]{40}|[0-9a-f]{64})$")


class Lora(BaseModel):
    """An adapter: the number `index` of `adapters` over one copy of a base."""

    adapters: int = Field(le=64)
    index: int = Field(ge=0)
    rank: int = Field(ge=1, le=1024)
    own_rank: int | None = None
    alpha: float


class PolicyEntry(BaseModel):
    """The weights of one policy; `lora` is `None` for full weights."""

    folder: str = Field(pattern="^policies/[0-9]{1,2}(-[A-Za-z0-9_]{1,40})?$")
    kind: Literal["full", "adapter"]
    base: Base
    lr: float = Field(gt=0, lt=1)
    template: dict[str, bool | int | float | str]
    files: dict[File, Sha256]
    lora: Lora | None = None

    @model_validator(mode="after")
    def _agrees(self):
        if (self.kind == "adapter") != (self.lora is not None) or (self.lora and self.lora.index >= self.lora.adapters):
            raise ValueError("an adapter has lora with an index below adapters, and full weights have no lora")
        if taken := reserved(self.template):
            raise ValueError(f"template has {taken[0]!r}, which is no variable of a chat template; remove it")
        return self


def reserved(template: Mapping[str, Any]) -> list[str]:
    """Return the keys that replace a chat template or control the tokenizer, which a shared team may not do."""
    from transformers import PreTrainedTokenizerBase

    return [key for key in inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters if key in template]


class TeamFile(BaseModel):
    """The content of `team.json`."""

    model_config = ConfigDict(extra="forbid")

    format: int = Field(le=FORMAT)
    step: int
    agents: dict[str, str]
    sampling: dict[str, Sampling]
    frozen: list[str]
    policies: dict[str, PolicyEntry] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _agrees(self):
        if set(self.agents.values()) != set(self.policies) or not {*self.sampling, *self.frozen} <= set(self.agents):
            raise ValueError("agents, policies, sampling and frozen do not name one another")
        return self


def read_team(folder: Path) -> TeamFile:
    """Read `team.json`, and check its form and all files that it lists.

    Raises RunError with the file and the field.
    """
    path = folder / TEAM
    refuse_large(folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()), *LIMIT)
    try:
        team = TeamFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise RunError(f"{path}: {first_problem(error)}; it was edited, or a later version wrote it") from None
    for one in team.policies.values():
        _require_files(folder / one.folder, one.files)
    return team


def _require_files(folder: Path, listed: dict[str, str]) -> None:
    """Raise RunError unless the files of a policy are exactly those of `team.json`, each with its sha256."""
    if wrong := changed_file(listed, hashes(folder)):
        raise RunError(f"{folder}: {wrong} in {TEAM}; fetch the whole team again")
    if "config.json" in listed:
        _refuse_huge(folder / "config.json")


def _refuse_huge(path: Path) -> None:
    """Refuse a config with huge sizes: the model would be built before its weights are compared."""
    parts = [read_json(path)]
    while parts:
        for key, value in parts.pop().items():
            if type(value) is int and value > (1024 if "layer" in key else 2**24):
                raise RunError(f"{path}: {key}={value!r:.20} describes no model that could be loaded")
            if isinstance(value, dict):
                parts.append(value)


def load_team(
    where: str | Path,
    revision: str | None = None,
    base: str | Path | Sequence[str | Path] = (),
    backend: str = "torch",
    **options: Any,
) -> Team:
    """Load a team that `lab.save_team` wrote, from a folder or from the Hugging Face hub.

    From the hub, only `team.json` and the policies' safetensors, JSON and tokenizer texts are fetched. They may take up
    to 32 GiB, or as much as the environment variable MAS_LAB_TEAM_GIB says. Optimizers start anew. The chat templates
    and tokenizers of full weights are first tried in a child process, for up to a minute of computing and, on Linux, in
    2 GiB (MAS_LAB_ZIP_GIB). A response template other than Qwen3's is not taken over.

    Args:
        where: A folder ("my_team"), or a hub id ("owner/name").
        revision: For the hub, a commit, which pins the files; a tag or branch may move. `None`: nothing is fetched.
        base: Base models of adapters that may be loaded, as hub ids, folders or GGUF files. Pocket models of the kit
            and models of listed packages are always allowed.
        backend: As for `load_policy`.
        **options: As for `load_policy`, without `alpha`: adapters keep their own.

    Returns:
        The team, with its sampling settings and frozen agents.

    Raises:
        RunError: There is no team, a hub id has no `revision`, or a file is missing, unlisted, changed, too large or of
            another form, or a chat cannot be written and encoded within the limits.
        PolicyError: An adapter's base model is not among `base`, the adapters differ in `alpha`, or weights, config or
            tokenizer cannot be read.
    """
    folder = Path(where) if (Path(where) / TEAM).is_file() else _fetched(str(where), revision)
    team = read_team(folder)
    bases = [base] if isinstance(base, str | Path) else list(base)
    alphas = {one.lora.alpha for one in team.policies.values() if one.lora}
    if len(alphas) > 1:
        raise PolicyError(f"{folder / TEAM}: its adapters have several values of alpha, and one load takes one")
    own = {"alpha": alphas.pop()} if alphas else {}
    weights = {name: _weights(name, one, folder, bases) for name, one in team.policies.items()}
    refuse_chats([(str(one.folder), one.template) for one in weights.values() if one.lora is None])
    policies = open_weights(weights, backend=backend, **own, **options)
    for name, one in weights.items():
        if one.lora is None:
            forget_patterns(policies[name].tokenizer)
    return Team({agent: policies[name] for agent, name in team.agents.items()}, team.sampling, team.frozen)


def _fetched(where: str, revision: str | None) -> Path:
    """Fetch the allowed files of a hub repository, and return their folder."""
    if where.count("/") != 1 or where.startswith((".", "/", "~")) or Path(where).is_dir():
        raise RunError(f"no {TEAM} in {where}; give a folder that lab.save_team wrote, or a hub id, owner/name")
    if not revision:
        raise RunError(f'load_team({where!r}): say which revision, revision="<commit>"; the newest one may change')
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError, OfflineModeIsEnabled

    try:
        with suppress(DryRunError, OfflineModeIsEnabled):  # offline: what was fetched before is checked on disk
            listed = snapshot_download(where, revision=revision, allow_patterns=FETCHED, dry_run=True)
            refuse_large(where, sum(one.file_size or 0 for one in listed), *LIMIT)
        folder = Path(snapshot_download(where, revision=revision, allow_patterns=FETCHED))
    except (OSError, ValueError) as error:  # the hub's own errors are of these kinds
        raise RunError(f"{where} at {revision} cannot be fetched: {error}") from error
    if not (folder / TEAM).is_file():
        raise RunError(f"{where} at {revision} holds no {TEAM}, so it is no team that lab.save_team wrote")
    return folder


def _weights(name: str, one: PolicyEntry, folder: Path, bases: Sequence[str | Path]) -> Any:
    """Return the arguments for the back end; raise PolicyError if an adapter's base model may not be loaded."""
    from mas_lab.backends.torch.base import SavedWeights
    from mas_lab.backends.torch.source import Source

    if one.lora is None:
        return SavedWeights(folder / one.folder, one.lr, one.template)
    base, found = one.base, []
    if base.kind in ("pocket", "listed") or (base.kind == "hub" and base.name in bases):
        found = [Source(**base.model_dump())]
    elif base.kind in ("directory", "gguf"):
        local = [path for path in map(Path, bases) if (path / "config.json").is_file() or path.is_file()]
        known = [Source.find(path).pinned() for path in local]
        found = [source for source in known if source.digest == base.digest]
    if not found:
        theirs = f"a model on the machine of whoever trained it (sha256 of its weights: {base.digest})"
        message = f"the model {base.name!r} of the hub" if base.kind == "hub" else theirs
        raise PolicyError(
            f"policy {name!r:.80} is an adapter of {message}, which is only loaded on request; if you want it, get "
            "that model, and load_team(..., base=<its id, folder or file>)"
        )
    lora = one.lora.model_dump(exclude={"alpha"}, exclude_none=True) | {"seed": 0}
    return SavedWeights(folder / one.folder, one.lr, one.template, lora, found[0])
