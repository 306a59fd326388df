"""Fork a run: take over its first steps, weights, optimizer and states of parts, then continue by its own config.

The other run is only read, and may go on meanwhile. Leaves out: how a run is kept (`recorder`), and how it is trained.
"""

from collections.abc import Mapping
from os.path import relpath
from pathlib import Path
from typing import Any

from mas_lab.describe import differing, in_sentence
from mas_lab.recipes import typed
from mas_lab.runs.disk import RunError, read_bytes, step_of
from mas_lab.runs.recorder import Recorder, decisive
from mas_lab.runs.run import MACHINE, SCORES, TABLES, Checkpoint, Run, load_run, run_folder
from mas_lab.team import Team

OF_THE_TEAM = ("sampling", "frozen")
"""Parts of a team that a fork may change, beside the learning rates of its policies."""


class Fork(Recorder):
    """The run folder of a training that begins as the run `of` after its newest checkpoint."""

    def __init__(self, folder: Path, of: str | Path):
        super().__init__(folder)
        self.of = of

    def begin(
        self, config: Mapping[str, Any], team: Team, watch: Any = None, states: Mapping[str, Any] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Begin or continue the fork; an existing one keeps its own description, even if the source is gone."""
        if (self.folder / "run.json").is_file() and (origin := origin_of(self)) != run_folder(self.of).resolve():
            raise RunError(
                f"{self.folder} is there already and was forked from {origin or 'no run'}, and this call forks "
                f"{run_folder(self.of)}; choose another folder, or leave fork= out to go on with the run that is there"
            )
        return super().begin(config, team, watch, states)

    def recorded_threads(self) -> int | None:
        return super().recorded_threads() or load_run(self.of).config.get("threads")

    def _take_over(self, staged: Path, config: Mapping[str, Any], team: Team, states: Mapping[str, Any]) -> tuple:
        """Set team and watch to the newest checkpoint of the other run, and copy its tables until then."""
        source = load_run(self.of)
        both = ({**decisive(one, MACHINE), "team": one.get("team"), "sources": one.get("sources", {})}
                for one in (source.config, config))  # fmt: skip
        changed = list(differing(*both))
        if refused := [change for change in changed if not _may_change(change[0])]:
            raise RunError(
                f"{self.folder}: cannot fork {source.folder}, {in_sentence(refused)}; a fork plays the same env with "
                "the same agents and models, see load_run(...).team(): leave fork= out to train others from the start"
            )
        rates = {name: policy.lr for name, policy in team.policies.items()}

        def take(checkpoint: Checkpoint) -> dict[str, Any]:
            checkpoint.give(team)
            return checkpoint.state

        state = source.with_checkpoint(take)
        for name, policy in team.policies.items():
            policy.lr = rates[name]
        step = state["step"]
        states, restarted = _restored(states, state["memory"], source.config, config)
        self._remembered = state["watch"]
        scores = [part for part in source.parts(SCORES) if step_of(part) <= step]
        for part in (*scores, *(part for name in TABLES for part in source.parts(name)[:step])):
            (staged / part.relative_to(source.folder)).write_bytes(read_bytes(part))
        origin = Path(relpath(source.folder.resolve(), self.folder.resolve().parent)).as_posix()
        lines = [*(_in_words(*change) for change in changed), *restarted]
        return step, {**config, "forked": {"from": origin, "step": step, "changed": lines}}, states


def _restored(states: Mapping[str, Any], recorded: Mapping[str, Any], *configs: Mapping[str, Any]) -> tuple:
    """Return the states, with the recorded ones of parts that did not change, and sentences about the others."""
    both = map(decisive, configs)
    there, here = ({**one["recipe"], "curriculum": one["curriculum"]} for one in both)
    same = [place for place in states if place in recorded and there.get(place) == here.get(place)]
    changed = [f"{place} learns from here on" for place in states if place not in same]
    changed += [f"the state of {place} is left" for place in recorded if place not in states]
    return {**states, **{place: recorded[place] for place in same}}, changed


def origin_of(run: Run) -> Path | None:
    """Return the folder of the run that `run` was forked from (if it was not moved), or `None` if it is no fork."""
    forked = run.config.get("forked")
    return None if not forked else (Path(str(run.folder)).resolve().parent / forked["from"]).resolve()


def _may_change(name: str) -> bool:
    """Return whether a fork may change an option: all but the env and the structure of the team."""
    _, _, of_team = name.partition("team.")
    is_rate = of_team.startswith("policies.") and of_team.endswith(".lr")
    return is_rate or of_team.startswith(OF_THE_TEAM) or not name.startswith(("env", "team"))


def _in_words(name: str, old: Any, new: Any) -> str:
    name = name.removeprefix("settings.").removeprefix("team.")
    if name.startswith("policies."):
        name = f"lr of {name.removeprefix('policies.').removesuffix('.lr')}"
    return f"{name}: {typed(old)} -> {typed(new)}"
