"""Fork a run: take over its first steps, weights, optimizer and memory, then continue by its own config.

The copies are in the new folder before its run.json is written, so a fork is complete or absent. The other run is only
read, and may go on meanwhile. Leaves out: how a run is kept (`recorder`), and how it is trained.
"""

import json
from collections.abc import Mapping, Sequence
from os.path import relpath
from pathlib import Path
from typing import Any

from mas_lab.fingerprint import comparable
from mas_lab.recipes import typed
from mas_lab.runs.checkpoint import Checkpoint
from mas_lab.runs.disk import RunError, dumps, write_bytes
from mas_lab.runs.manifest import Part, digest
from mas_lab.runs.recorder import FORKING, Memory, Recorder
from mas_lab.runs.resuming import RESUMES, decisive, refuse_gaps
from mas_lab.runs.run import KEEPING, SCORES, TABLES, Run, load_run, run_folder
from mas_lab.team import Team, describe_team, differences

SCORING = tuple(name for name in KEEPING if name.startswith("score_"))
"""Settings that do not change a training, but are listed among the changes of a fork."""
OF_THE_TEAM = ("sampling", "frozen")
"""Parts of a team that a fork may change, beside the learning rates of its policies."""


class Fork(Recorder):
    """The run folder of a training that begins as the run `of` after its newest checkpoint."""

    def __init__(self, folder: Path, of: str | Path):
        super().__init__(folder)
        self.of = of

    def begin(self, config: Mapping[str, Any], team: Team, watch: Any = None, memory: Memory | None = None) -> int:
        """Begin or continue the fork; an existing one keeps its own description, even if the source is gone."""
        if (self.folder / "run.json").is_file():
            self._refuse_another_origin()
        return super().begin(config, team, watch, memory)

    def recorded_threads(self) -> int | None:
        return super().recorded_threads() if (self.folder / "run.json").is_file() else self._source().recorded_threads()

    def _refuse_another_origin(self) -> None:
        origin = origin_of(self)
        if origin is None or origin.resolve() != run_folder(self.of).resolve():
            told = f"was forked from {origin}" if origin else "was not forked from any run"
            raise RunError(
                f"{self.folder} is there already and {told}, asked is a fork of {run_folder(self.of)}; choose another "
                "folder for the fork, or leave fork= out to go on with the run that is there"
            )

    def _source(self) -> Recorder:
        """Return the other run, which is only read."""
        found = load_run(self.of)
        if not isinstance(found.folder, Path):
            raise RunError(f"{found.folder}: an exported run holds tables, not weights; fork the run's folder instead")
        return Recorder(found.folder)

    def _first(self, config: Mapping[str, Any], team: Team, watch: Any, memory: Memory | None) -> int:
        source = self._source()
        self._refuse_another_world(source, config)
        (self.folder / FORKING).touch()
        before, checkpoint = self._take_over(source, team)
        step, told = checkpoint["step"], changes(source.config, config) + _changes_of_team(checkpoint["team"], before)
        told += self._remember(memory, checkpoint.get("memory", {}), source.config, config)
        origin = Path(relpath(source.folder.resolve(), self.folder.resolve().parent)).as_posix()
        described = dumps({**config, "forked": {"from": origin, "step": step, "changed": told}}, self.folder).encode()
        parts = self._copied(source, step)
        self.manifest.write_anew({"run.json": Part(self.folder, "run.json", (digest(described),)), **parts})
        self._remembered = checkpoint["watch"]
        self._remind(watch)
        self._save(step, team, watch, memory)
        write_bytes(self.folder / "run.json", described)  # from here on the run exists
        (self.folder / FORKING).unlink()
        return step

    def _refuse_another_world(self, source: Run, config: Mapping[str, Any]) -> None:
        if source.config.get("format", 1) not in RESUMES:
            raise RunError(
                f"{self.folder}: cannot fork {source.folder}, it was made by {source.made_by}, and this version trains "
                f"on in formats {' and '.join(map(str, RESUMES))} alone"
            )
        there, here = ({"env": decisive(one)["env"]} for one in (source.config, config))
        if different := differences(*comparable(there, here, "untold" not in source.config)):
            raise RunError(
                f"{self.folder}: cannot fork {source.folder}, {different}; a fork plays the same env with the same "
                "agents: leave fork= out to train in another one from the start"
            )

    def _take_over(self, source: Run, team: Team) -> tuple[dict[str, Any], dict[str, Any]]:
        """Set the team to the newest checkpoint at its own rates; return its description and the checkpoint's state."""
        asked, rates = describe_team(team), {name: policy.lr for name, policy in team.policies.items()}

        def take(checkpoint: Checkpoint) -> dict[str, Any]:
            state = checkpoint.state
            if different := differences(_make(state["team"]), _make(asked)):
                raise RunError(
                    f"{self.folder}: cannot fork {source.folder}, which was made by another team: {different}; "
                    "load_run(...).team() of that run is such a team"
                )
            checkpoint.give(team)
            return state

        state = source.with_checkpoint(take)
        for name, policy in team.policies.items():
            policy.lr = rates[name]
        return asked, state

    def _remember(self, memory: Memory | None, kept: Mapping[str, Any], *configs: Mapping[str, Any]) -> list[str]:
        """Restore the memory of parts that did not change, and return sentences about the others."""
        there, here = ({**one["recipe"], "curriculum": one.get("curriculum")} for one in map(decisive, configs))
        parts = memory.parts if memory else {}
        same = [place for place in parts if place in kept
                and not differences(*comparable(there.get(place), here.get(place)), place)]  # fmt: skip
        if memory:
            memory.load_state({**memory.state(), **{place: kept[place] for place in same}})
        anew = [place for place in parts if place not in same]
        gone = [place for place in kept if place not in parts]
        return [f"{place} remembers from here on" for place in anew] + [
            f"what {place} remembered is left" for place in gone
        ]

    def _copied(self, source: Recorder, step: int) -> dict[str, Part]:
        """Copy the tables of the first `step` steps and the scores until then; merged files stay merged if they can."""
        refuse_gaps(source, step)
        wanted = [part for name in TABLES for part in source.parts(name)[:step]]
        wanted += [part for part in source.parts(SCORES) if part.step <= step]
        beyond = {part.file for name in TABLES for part in source.parts(name)[step:]}
        for name in (*TABLES, SCORES):
            (self.folder / name).mkdir(exist_ok=True)
        parts, whole = {}, set()
        for part in wanted:
            if part.file and part.file not in beyond:
                if part.file not in whole:
                    write_bytes(self.folder / part.file, part.path.read_bytes())
                    whole.add(part.file)
                parts[part.name] = Part(self.folder, part.name, part.sha256, part.file, part.start, part.size)
                parts[part.name].read_bytes()  # raises if it is damaged
            else:
                data = part.read_bytes()
                write_bytes(self.folder / part.name, data)
                parts[part.name] = Part(self.folder, part.name, (digest(data),))
        return parts


def origin_of(run: Run) -> Path | None:
    """Return the folder of the run that `run` was forked from (if it was not moved), or `None` if it is no fork."""
    forked = run.config.get("forked")
    return None if not forked else (Path(str(run.folder)).resolve().parent / forked["from"]).resolve()


def changes(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return how two descriptions of a training differ, as `name: old -> new`."""
    sides = [{**decisive(one), **_scoring(one)} for one in (there, here)]
    return list(_changes(*comparable(*sides, "untold" not in there)))


def _scoring(config: Mapping[str, Any]) -> dict[str, Any]:
    settings = config.get("settings") or {}
    return {name: settings.get(name) for name in SCORING}


def _changes(there: Any, here: Any, name: str = "") -> Sequence[str]:
    if there == here:
        return []
    alike = isinstance(there, dict) and isinstance(here, dict) and there.get("is") == here.get("is")
    if not alike:
        return [f"{name}: {typed(there)} -> {typed(here)}"]
    inner = [_changes(there.get(key), here.get(key), key if name in ("", "settings") else f"{name}.{key}")
             for key in dict.fromkeys([*there, *here])]  # fmt: skip
    return [told for one in inner for told in one]


def _make(team: Mapping[str, Any]) -> dict[str, Any]:
    """Return a described team without the parts that a fork may change."""
    policies = {name: {key: value for key, value in policy.items() if key != "lr"}
                for name, policy in team["policies"].items()}  # fmt: skip
    return {key: value for key, value in team.items() if key not in OF_THE_TEAM} | {"policies": policies}


def _changes_of_team(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    rates = [{name: policy.get("lr") for name, policy in team["policies"].items()} for team in (there, here)]
    told = [f"lr of {name}: {typed(old)} -> {typed(rates[1][name])}" for name, old in rates[0].items()
            if old != rates[1][name]]  # fmt: skip
    rest = [{key: team[key] for key in OF_THE_TEAM} for team in (there, here)]
    return told + list(_changes(*json.loads(json.dumps(rest))))
