"""Loading a shared team from a folder or from the hub, safely.

Files are checked before their content is loaded, and no code of others is run. Leaves out: the form of the folder
(`team_folder`), and where the weights are kept (`mas_lab.backends`).
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from mas_lab.backends.loading import open_given
from mas_lab.bridges.team_folder import TEAM, PolicyEntry, read_team, refuse_sizes
from mas_lab.policy import PolicyError
from mas_lab.runs.disk import RunError
from mas_lab.team import Team

FETCHED = [TEAM, "policies/*.safetensors", "policies/*.json", "policies/*/merges.txt", "policies/*/chat_template.jinja"]
"""Files of a hub repository that are fetched: none of them can hold code."""


def load_team(
    where: str | Path,
    revision: str | None = None,
    base: str | Path | Sequence[str | Path] = (),
    backend: str = "torch",
    **options: Any,
) -> Team:
    """Load a team that `lab.save_team` wrote, from a folder or from the Hugging Face hub.

    From the hub, only `team.json` and the policies' safetensors, JSON and tokenizer texts are fetched. They may take up
    to 32 GiB, or as much as the environment variable MAS_LAB_TEAM_GIB says. Optimizers start anew.

    Args:
        where: A folder ("my_team"), or a hub id ("owner/name").
        revision: For the hub, a commit, which pins the files; a tag or branch may move. `None`: nothing is fetched.
        base: Base models of adapters that may be loaded, as hub ids or folders. Pocket models of the kit are always
            allowed.
        backend: As for `load_policy`.
        **options: As for `load_policy`, without `alpha`: adapters keep their own.

    Returns:
        The team, with its sampling settings and frozen agents.

    Raises:
        RunError: There is no team, a hub id has no `revision`, or a file is missing, unlisted, changed, too large or of
            another form.
        PolicyError: An adapter's base model is not among `base`, or the adapters differ in `alpha`.
    """
    folder = Path(where) if (Path(where) / TEAM).is_file() else _fetched(str(where), revision)
    team = read_team(folder)
    bases = [base] if isinstance(base, str | Path) else list(base)
    alphas = {one.lora.alpha for one in team.policies.values() if one.lora}
    if len(alphas) > 1:
        raise PolicyError(f"{folder / TEAM}: its adapters have several values of alpha, and one load takes one")
    own = {"alpha": alphas.pop()} if alphas else {}
    given = {name: _given(name, one, folder, bases) for name, one in team.policies.items()}
    policies = open_given(given, backend=backend, **own, **options)
    return Team({agent: policies[name] for agent, name in team.agents.items()}, team.sampling, team.frozen)


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
    from huggingface_hub.errors import DryRunError, OfflineModeIsEnabled

    try:
        with suppress(DryRunError, OfflineModeIsEnabled):  # offline: what was fetched before is checked on disk
            listed = snapshot_download(where, revision=revision, allow_patterns=FETCHED, dry_run=True)
            refuse_sizes({one.filename: one.file_size or 0 for one in listed}, where)
        folder = Path(snapshot_download(where, revision=revision, allow_patterns=FETCHED))
    except (OSError, ValueError) as error:  # the hub's own errors are of these kinds
        raise RunError(f"{where} at {revision} cannot be fetched: {error}") from error
    if not (folder / TEAM).is_file():
        raise RunError(f"{where} at {revision} holds no {TEAM}, so it is no team that lab.save_team wrote")
    return folder


def _given(name: str, one: PolicyEntry, folder: Path, bases: Sequence[str | Path]) -> Any:
    """Return the arguments for the back end; raise PolicyError if an adapter's base model may not be loaded."""
    from mas_lab.backends.torch.base import Given
    from mas_lab.backends.torch.source import Source

    if one.lora is None:
        return Given(folder / one.folder, one.lr, one.template)
    base = one.base
    if base.kind == "pocket" or (base.kind == "hub" and base.name in bases):
        source = Source(**base.model_dump())
    elif base.kind == "hub":
        raise PolicyError(
            f"policy {name!r:.80} is an adapter of the model {base.name!r} of the hub, which is not loaded unasked; if "
            f"you want that one, ask for it: load_team(..., base={base.name!r})"
        )
    else:
        found = (Source.find(Path(given)).pinned() for given in bases if (Path(given) / "config.json").is_file())
        source = next((one for one in found if one.digest == base.digest), None)
    if source is None:
        raise PolicyError(
            f"policy {name!r:.80} is an adapter of a model in a folder of whoever trained it (sha256 of its weights: "
            f"{base.digest}); get that model, and load_team(..., base=<its folder>)"
        )
    lora = one.lora.model_dump(exclude={"alpha"}, exclude_none=True) | {"seed": 0}
    return Given(folder / one.folder, one.lr, one.template, lora, source)
