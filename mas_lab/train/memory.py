"""The memory of a training's parts from step to step: it is kept with each checkpoint, and never left half-changed.

A part remembers if it has `state()`, which returns plain data, and `load_state(state)`, which restores it. Leaves out:
the parts themselves (a credit, `running_mean`, a curriculum) and the files (`runs.run`).
"""

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mas_lab.recipes import Recipe


@dataclass(frozen=True)
class Memory:
    """The parts that remember, by their place in the training."""

    parts: Mapping[str, Any]

    def state(self) -> dict[str, Any]:
        """Return the state of all parts as plain data that nobody else holds; raise TypeError if one is not plain."""
        return {place: _plain(part.state(), f"train: the state() of {place}={part!r}")
                for place, part in self.parts.items()}  # fmt: skip

    def load_state(self, state: Mapping[str, Any]) -> None:
        for place, part in self.parts.items():
            part.load_state(copy.deepcopy(state[place]))

    def of_recipe(self) -> "Memory":
        return Memory({place: part for place, part in self.parts.items() if place != "curriculum"})

    @contextmanager
    def unmoved_by_errors(self) -> Iterator[None]:
        """Restore the memory if the body of the `with` block raises an error."""
        before = self.state()
        try:
            yield
        except BaseException:
            self.load_state(before)
            raise


def own_copies(recipe: Recipe, curriculum: Any) -> tuple[Recipe, Any, Memory]:
    """Return the recipe and the curriculum with fresh copies of the parts that remember, and the memory of the copies.

    One training therefore leaves nothing to the next. Parts that do not remember stay the same objects.
    """
    parts = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    parts |= {"curriculum": curriculum}
    fresh = {place: copy.deepcopy(dataclasses.replace(part) if dataclasses.is_dataclass(part) else part)
             for place, part in parts.items() if _remembers(part, place)}  # fmt: skip
    curriculum = fresh.get("curriculum", curriculum)
    own = recipe.replace(**{place: part for place, part in fresh.items() if place != "curriculum"})
    return own, curriculum, Memory(fresh | ({"recipe": own} if _remembers(own, "recipe") else {}))


def _remembers(part: Any, place: str) -> bool:
    methods = [name for name in ("state", "load_state") if callable(getattr(part, name, None))]
    if len(methods) == 1:
        raise TypeError(
            f"train: {place}={part!r} has {methods[0]}() alone; a part that remembers has both, state() and "
            "load_state(state), so that a resumed run goes on with it"
        )
    return bool(methods)


def _plain(value: Any, where: str) -> Any:
    """Return `value` in JSON types, as it will come back from a checkpoint."""
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
