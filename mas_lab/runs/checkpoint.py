"""Write and read a checkpoint: the team after some number of steps.

It is safetensors and JSON with their sha256, without pickle. Leaves out: when one is made and which are kept
(`recorder`).
"""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from mas_lab.locks import locked
from mas_lab.runs.disk import RunError, hashes, read_json, whole, write_json
from mas_lab.team import Sampling, Team, describe_team, differences


class Checkpoint:
    """The team after some number of steps."""

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def step(self) -> int:
        return int(self.folder.name)

    @property
    def state(self) -> dict[str, Any]:
        self._refuse_changes("state.json")
        return read_json(self.folder / "state.json")

    @classmethod
    def write(cls, folder: Path, team: Team, watched: Any = None, memory: Any = None) -> "Checkpoint":
        """Write team, watch state and memory (plain data) to `folder`, as a whole or not at all."""
        state = {"step": int(folder.name), "team": describe_team(team), "watch": watched, "memory": memory or {}}
        with whole(folder, is_folder=True) as staged:
            with locked(team.policies.values()):
                for number, policy in enumerate(team.policies.values()):
                    (staged / "policies" / str(number)).mkdir(parents=True)
                    policy.save(staged / "policies" / str(number))
            write_json(staged / "state.json", state)
            write_json(staged / "hashes.json", hashes(staged))
        return cls(folder)

    def verify(self) -> None:
        """Compare every file with its recorded sha256; raise `RunError` naming the first that differs."""
        self._refuse_changes("*")
        if self.state["step"] != self.step:
            raise RunError(f"checkpoint {self.folder} was made after {self.state['step']} steps; give it back its name")

    def _refuse_changes(self, called: str) -> None:
        recorded = {
            name: sha256
            for name, sha256 in read_json(self.folder / "hashes.json").items()
            if fnmatch(Path(name).name, called)
        }
        found = hashes(self.folder, called)
        for name in sorted(set(recorded) | set(found)):
            if recorded.get(name) != found.get(name):
                what = "missing" if name not in found else "not recorded" if name not in recorded else "changed"
                raise RunError(
                    f"checkpoint {self.folder}: {name} is {what}, so it cannot be trusted; "
                    "delete this checkpoint's folder to go on from the one before it"
                )

    def load_into(self, team: Team) -> None:
        """Set the team's weights and optimizers to the saved ones; raise `RunError` if it is another team."""
        different = differences(self.state["team"], describe_team(team))
        if different:
            raise RunError(f"checkpoint {self.folder} was made by another team: {different}")
        self.give(team)

    def give(self, team: Team) -> None:
        """Load weights and optimizers into a team that is known to match."""
        with locked(team.policies.values(), training=True):
            for number, name in enumerate(team.policies):
                team.policies[name].load(self.folder / "policies" / str(number))

    def tokenizer(self, policy: str) -> Any:
        """Return the fast tokenizer kept beside a policy's weights (`tokenizers.Tokenizer`), or `None`."""
        names = list(self.state["team"]["policies"])
        path = self.folder / "policies" / str(names.index(policy)) / "tokenizer.json" if policy in names else None
        self._refuse_changes("tokenizer.json")
        if path is None or not path.is_file():
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(path))

    def team(self, base: str | Sequence[str] = ()) -> Team:
        """Return the team rebuilt from the folder; `base` allows hub models as bases of its adapters."""
        names = self.state["team"]["policies"]
        from mas_lab.backends.loading import restore_policies

        policies = restore_policies({name: self.folder / "policies" / str(i) for i, name in enumerate(names)}, base)
        data = self.state["team"]
        sampling = {agent: Sampling(**fields) for agent, fields in data["sampling"].items()}
        return Team({agent: policies[name] for agent, name in data["agents"].items()}, sampling, data["frozen"])
