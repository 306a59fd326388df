"""What parts of a training remember from step to step: kept with each checkpoint, and never left half-changed.

A part remembers if it has `state()`, which gives plain data, and `load_state(state)`, which takes it up again.
Leaves out: what is remembered (a credit, `cells.centers`, a curriculum) and the files (`runs.checkpoint`).
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mas_lab.recipes import Recipe

PLACES = ("plan", "credit", "center", "select")
"""Parts of a recipe that may remember: where several ranks train, rank 0 alone calls them."""


@dataclass(frozen=True)
class Memory:
    """The parts that remember, by their place in the training."""

    parts: Mapping[str, Any]

    def state(self) -> dict[str, Any]:
        """What all of them remember, as plain data that nobody else holds. Raises TypeError naming what is none."""
        told = self.parts.items()
        return {place: _plain(part.state(), f"train: the state() of {place}={part!r}") for place, part in told}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for place, part in self.parts.items():
            part.load_state(copy.deepcopy(state[place]))

    def of_recipe(self) -> "Memory":
        return Memory({place: part for place, part in self.parts.items() if place in PLACES})

    @contextmanager
    def unmoved_by_errors(self) -> Iterator[None]:
        """What raises inside leaves the memory as it was before."""
        before = self.state()
        try:
            yield
        except BaseException:
            self.load_state(before)
            raise


def own_copies(recipe: Recipe, curriculum: Any) -> tuple[Recipe, Any, Memory]:
    """The recipe and the curriculum with fresh copies of all that remembers, so that one training leaves nothing to the
    next; and the memory of those copies. What does not remember stays the object that it is."""
    parts = {place: getattr(recipe, place) for place in PLACES} | {"curriculum": curriculum}
    fresh = {place: _fresh(part) for place, part in parts.items() if _remembers(part, place)}
    changes = {place: part for place, part in fresh.items() if place in PLACES}
    return recipe.replace(**changes), fresh.get("curriculum", curriculum), Memory(fresh)


def _fresh(part: Any) -> Any:
    """A dataclass is made anew from its arguments, anything else is copied as it stands."""
    return copy.deepcopy(dataclasses.replace(part) if dataclasses.is_dataclass(part) else part)


def _remembers(part: Any, place: str) -> bool:
    there = {name: callable(getattr(part, name, None)) for name in ("state", "load_state")}
    if len(set(there.values())) > 1:
        alone = "state()" if there["state"] else "load_state()"
        raise TypeError(
            f"train: {place}={part!r} has {alone} alone; a part that remembers has both, state() and "
            "load_state(state), so that a resumed run goes on with it"
        )
    return there["state"]


def _plain(value: Any, where: str) -> Any:
    """JSON types, as they come back from a checkpoint."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(inner, where) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, where) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    keys = " with keys that are no text" if isinstance(value, Mapping) else ""
    raise TypeError(
        f"{where} holds {type(value).__name__}{keys}; plain data alone is kept: numbers, text, True, False, None, and "
        "lists and dicts of them, the keys text (an array: .tolist())"
    )
