"""Loading a shared team from a folder or from the hub, safely.

Files are checked before their content is loaded, and no code of others is run. Leaves out: the form of the folder
(`team_folder`), and where the weights are kept (`mas_lab.backends`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mas_lab.backends.loading import open_given
from mas_lab.bridges.team_folder import JSON, TEAM, listed, read_team, refuse_sizes, require_files
from mas_lab.policy import PolicyError
from mas_lab.runs.disk import RunError
from mas_lab.team import Sampling, Team


def load_team(
    where: str | Path,
    revision: str | None = None,
    base: str | Path | Sequence[str | Path] = (),
    backend: str = "torch",
    **options: Any,
) -> Team:
    """Load a team that `lab.save_team` wrote, from a folder or from the Hugging Face hub.

    From the hub, only the files that `team.json` lists are fetched: safetensors, JSON and tokenizer texts. They may
    take up to 32 GiB, or as much as the environment variable MAS_LAB_TEAM_GIB says. Optimizers start anew.

    Args:
        where: A folder ("my_team"), or a hub id ("owner/name").
        revision: For the hub, a commit, which pins the files; a tag or branch may move. `None`: nothing is fetched.
        base: Base models of adapters that may be loaded, as hub ids or folders. Pocket models of the kit are always
            allowed.
        backend: As for `load_policy`.
        **options: As for `load_policy`.

    Returns:
        The team, with its sampling settings and frozen agents.

    Raises:
        RunError: There is no team, a hub id has no `revision`, or a file is missing, unlisted, changed, too large or of
            another form.
        PolicyError: An adapter's base model is not among `base`, or `alpha` is not that of the adapters.
    """
    if (Path(where) / TEAM).is_file():
        folder = Path(where)
    else:
        folder = _fetched(str(where), revision)
    data = read_team(folder / TEAM)
    require_files(folder, data)
    bases = [base] if isinstance(base, str | Path) else list(base)
    alpha = {one["lora"]["alpha"] for one in data["policies"].values() if one["kind"] == "adapter"}
    if len(alpha | ({options["alpha"]} if "alpha" in options and alpha else set())) > 1:
        raise PolicyError(
            f"{folder / TEAM}: its adapters were trained with alpha={', '.join(map(str, sorted(alpha)))}; all are "
            "loaded with that one: leave out alpha="
        )
    if alpha:
        options["alpha"] = alpha.pop()
    policies = open_given(_given(data, folder, bases), backend=backend, **options)
    try:
        sampling = {agent: Sampling(**fields) for agent, fields in data["sampling"].items()}
        return Team({agent: policies[name] for agent, name in data["agents"].items()}, sampling, data["frozen"])
    except (TypeError, ValueError) as error:
        raise RunError(f"{folder / TEAM}: {error}; the file was edited") from error


def _fetched(where: str, revision: str | None) -> Path:
    """Fetch the allowed files of a hub repository, and return their folder."""
    if where.count("/") != 1 or where.startswith((".", "/", "~")) or Path(where).is_dir():
        raise RunError(
            f"there is no {TEAM} in {where}; give a folder that lab.save_team wrote, or a hub id (owner/name)"
        )
    if not revision:
        raise RunError(
            f'load_team({where!r}): say which revision, revision="<commit>"; the newest state of somebody\'s '
            "repository may be another one tomorrow"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError, HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    def fetch(names: list[str], most: int | None = None) -> Path:
        here = False
        try:
            told = snapshot_download(where, revision=revision, allow_patterns=names, dry_run=True)
            sizes = {one.filename: one.file_size or 0 for one in told}
            if most is not None and sum(sizes.values()) > most:
                raise RunError(f"{where}: {names[0]} has {sum(sizes.values())} bytes; at most {most} are read")
            refuse_sizes(sizes, where)
        except (DryRunError, OfflineModeIsEnabled):
            here = True  # offline: files that were fetched before are checked on disk
        return Path(snapshot_download(where, revision=revision, allow_patterns=names, local_files_only=here))

    try:
        folder = fetch([TEAM], JSON)
        if not (folder / TEAM).is_file():
            raise RunError(f"{where} at {revision} holds no {TEAM}, so it is no team that lab.save_team wrote")
        return fetch([TEAM, *listed(read_team(folder / TEAM))])
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        raise RunError(f"{where} at {revision} cannot be fetched: {error}") from error


def _given(data: dict[str, Any], folder: Path, bases: Sequence[str | Path]) -> dict[str, Any]:
    """Return the arguments for the back ends, by policy."""
    from mas_lab.backends.torch.base import Given

    given = {}
    for name, one in data["policies"].items():
        place, lr, template = folder / one["folder"], float(one["lr"]), one["template"]
        if one["kind"] == "full":
            given[name] = Given(place, lr, template)
            continue
        lora = {"adapters": one["lora"]["adapters"], "rank": one["lora"]["rank"], "seed": 0,
                "index": one["lora"]["index"]}  # fmt: skip
        if type(own := one["lora"].get("own_rank")) is int:
            lora["own_rank"] = own
        given[name] = Given(place, lr, template, lora, _base(name, one["base"], bases))
    return given


def _base(name: str, recorded: dict[str, Any], bases: Sequence[str | Path]) -> Any:
    """Return the base model of an adapter, or raise PolicyError if it may not be loaded."""
    from mas_lab.backends.torch.source import Source

    kind, digest = recorded["kind"], recorded.get("digest")
    if kind == "pocket":
        source = Source.find(recorded.get("name", ""))
        if source.kind != "pocket":
            raise PolicyError(f"policy {name!r:.80}: no pocket model is called {recorded.get('name')!r:.80}")
        return Source("pocket", source.name, digest)
    if kind == "hub":
        if recorded.get("name") not in bases:
            model = f"{recorded.get('name')!r:.120}"
            raise PolicyError(
                f"policy {name!r:.80} is an adapter of the model {model} of the hub, which is not loaded unasked; if "
                f"you want that one, ask for it: load_team(..., base={model})"
            )
        return Source("hub", recorded["name"], digest)
    for given in bases:
        if (Path(given) / "config.json").is_file():
            found = Source.find(Path(given)).pinned()
            if found.digest == digest:
                return found
    raise PolicyError(
        f"policy {name!r:.80} is an adapter of a model in a folder of whoever trained it (sha256 of its weights: "
        f"{digest}); get that model, and load_team(..., base=<its folder>)"
    )
