"""Fork a run: take over its first steps, weights, optimizer and memory, then continue by its own config.

The other run is only read, and may go on meanwhile. Leaves out: how a run is kept (`recorder`), and how it is trained.
"""

from collections.abc import Mapping
from os.path import relpath
from pathlib import Path
from typing import Any

from mas_lab.describe import differences, differing
from mas_lab.recipes import typed
from mas_lab.runs.disk import RunError, write_bytes
from mas_lab.runs.manifest import SCORES, TABLES, Part
from mas_lab.runs.recorder import Recorder, decisive, refuse_gaps
from mas_lab.runs.run import KEEPING, Checkpoint, Run, load_run, run_folder
from mas_lab.team import Team

SCORING = tuple(name for name in KEEPING if name.startswith("score_"))
"""Settings that do not change a training, but are listed among the changes of a fork."""
OF_THE_TEAM = ("sampling", "frozen")
"""Parts of a team that a fork may change, beside the learning rates of its policies."""


class Fork(Recorder):
    """The run folder of a training that begins as the run `of` after its newest checkpoint."""

    def __init__(self, folder: Path, of: str | Path):
        super().__init__(folder)
        self.of = of

    def begin(self, config: Mapping[str, Any], team: Team, watch: Any = None, memory: Any = None) -> int:
        """Begin or continue the fork; an existing one keeps its own description, even if the source is gone."""
        origin = origin_of(self) if (there := (self.folder / "run.json").is_file()) else None
        if there and (origin is None or origin.resolve() != run_folder(self.of).resolve()):
            told = f"was forked from {origin}" if origin else "was not forked from any run"
            raise RunError(
                f"{self.folder} is there already and {told}, and this call forks {run_folder(self.of)}; choose another "
                "folder for the fork, or leave fork= out to go on with the run that is there"
            )
        return super().begin(config, team, watch, memory)

    def recorded_threads(self) -> int | None:
        return super().recorded_threads() if (self.folder / "run.json").is_file() else self._source().recorded_threads()

    def _source(self) -> Recorder:
        """Return the other run, which is only read."""
        found = load_run(self.of)
        if found.is_exported:
            raise RunError(f"{found.folder}: an exported run holds tables, not weights; fork the run's folder instead")
        return Recorder(found.folder)

    def _take_over(self, staged: Path, config: Mapping[str, Any], team: Team, memory: Any) -> tuple:
        """Set team, watch and memory to the newest checkpoint of the other run, and copy its tables until then."""
        source = self._source()
        self._refuse_another_world(source, config)
        rates = {name: policy.lr for name, policy in team.policies.items()}

        def take(checkpoint: Checkpoint) -> tuple[dict[str, Any], list[Part]]:
            state = checkpoint.state
            checkpoint.give(team)
            refuse_gaps(source, checkpoint.step)
            return state, [part for name in TABLES for part in source.parts(name) if part.step < checkpoint.step]

        state, parts = source.with_checkpoint(take)
        for name, policy in team.policies.items():
            policy.lr = rates[name]
        step = state["step"]
        told = changes(source.config, config) + self._remember(memory, state.get("memory", {}), source.config, config)
        self._remembered = state["watch"]
        files: dict[str, str] = {}
        for part in (*parts, *(part for part in source.parts(SCORES) if part.step <= step)):
            path = staged / part.name
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, part.read_bytes())
            files[part.name] = part.sha256
        origin = Path(relpath(source.folder.resolve(), self.folder.resolve().parent)).as_posix()
        return step, {**config, "forked": {"from": origin, "step": step, "changed": told}}, files

    def _refuse_another_world(self, source: Run, config: Mapping[str, Any]) -> None:
        both = ({"env": decisive(one)["env"], "team": _made_of(one["team"])} for one in (source.config, config))
        if different := differences(*both):
            raise RunError(
                f"{self.folder}: cannot fork {source.folder}, {different}; a fork plays the same env with the same "
                "agents and models, see load_run(...).team(): leave fork= out to train others from the start"
            )

    def _remember(self, memory: Any, kept: Mapping[str, Any], *configs: Mapping[str, Any]) -> list[str]:
        """Restore the memory of parts that did not change, and return sentences about the others."""
        there, here = ({**one["recipe"], "curriculum": one.get("curriculum")} for one in map(decisive, configs))
        parts = memory.parts if memory else {}
        same = [place for place in parts if place in kept
                and there.get(place) == here.get(place)]  # fmt: skip
        if memory:
            memory.load_state({**memory.state(), **{place: kept[place] for place in same}})
        anew = [f"{place} remembers from here on" for place in parts if place not in same]
        return anew + [f"what {place} remembered is left" for place in kept if place not in parts]


def origin_of(run: Run) -> Path | None:
    """Return the folder of the run that `run` was forked from (if it was not moved), or `None` if it is no fork."""
    forked = run.config.get("forked")
    return None if not forked else (Path(str(run.folder)).resolve().parent / forked["from"]).resolve()


def changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return the differences between two contents of run.json, as `name: old -> new`."""
    return [f"{name.removeprefix('settings.')}: {typed(old)} -> {typed(new)}"
            for name, old, new in differing(_changeable(there), _changeable(here))]  # fmt: skip


def _changeable(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that a fork may change, and the settings of its scores."""
    team, settings = config.get("team") or {}, config.get("settings") or {}
    rates = {f"lr of {name}": policy.get("lr") for name, policy in team.get("policies", {}).items()}
    of_team = rates | {key: team.get(key) for key in OF_THE_TEAM}
    return {**decisive(config), **{name: settings.get(name) for name in SCORING}, **of_team}


def _made_of(team: Mapping[str, Any]) -> dict[str, Any]:
    """Return a described team without the parts that a fork may change."""
    policies = {name: {key: value for key, value in policy.items() if key != "lr"}
                for name, policy in team["policies"].items()}  # fmt: skip
    return {key: value for key, value in team.items() if key not in OF_THE_TEAM} | {"policies": policies}
