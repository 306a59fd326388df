"""Contents of your own parts as plain data: arguments of a partial, variables of a closure, attributes of an object.

Two runs whose parts hold different things are different runs. Contents that cannot be described are listed by name, so
that nobody believes they were compared. Leaves out: dataclasses, whose fields are their options (`env.spec`,
`recipes.to_data`), code, and the comparison of runs (`runs.recorder`).
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import cached_property, partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

Tell = Callable[[Any], Any]
"""Describes anything as plain data."""
LONGEST = 1000
"""Most characters of JSON for one option; anything longer is loaded data and no option."""
DEEPEST = 3
UNTOLD = object()
_within: ContextVar[tuple[int, ...]] = ContextVar("what is being described", default=())


def fingerprint(part: Any, tell: Tell) -> dict[str, Any]:
    """Return `{"holds": ...}`, or an empty dict if `part` holds nothing.

    `tell` describes the values. `holds` has names and plain data under `args`, `keywords`, `captured`, `defaults` and
    `attributes`. The function behind a partial or a method is under `of`. `repr` is used if there is nothing else, and
    `untold` lists the names of everything that could not be described.
    """
    outer = _within.get()
    if id(part) in outer or len(outer) == DEEPEST:
        return {"holds": {"untold": ["what it holds"]}}
    token = _within.set((*outer, id(part)))
    try:
        held = _held(part, tell)
    finally:
        _within.reset(token)
    return {"holds": held} if held else {}


def _held(part: Any, tell: Tell) -> dict[str, Any]:
    if isinstance(part, type | BuiltinFunctionType):
        return {}
    if isinstance(part, partial):
        args = {str(place): value for place, value in enumerate(part.args)}
        return {"of": tell(part.func), **_told(tell, args=args, keywords=part.keywords)}
    if isinstance(part, MethodType):
        return {"of": tell(part.__self__)}
    if isinstance(part, FunctionType):
        defaults = {}
        if "<" in part.__qualname__:  # made at run time; other functions' defaults are part of their code
            parameters = inspect.signature(part, follow_wrapped=False).parameters
            defaults = {name: one.default for name, one in parameters.items() if one.default is not one.empty}
        held = _told(tell, captured=inspect.getclosurevars(part).nonlocals, defaults=defaults)
        return _and_untold(held, ["its code"] if part.__name__ == "<lambda>" else [])
    own = getattr(part, "__dict__", None)
    if own is None:
        text = own_repr(part)
        cut = text is None or "..." in text or len(text) > LONGEST
        return {"untold": ["its value"]} if cut else {"repr": text}
    if "__wrapped__" in own:  # functools.cache
        return {"of": tell(own["__wrapped__"])}
    if is_dataclass(part) and _made_by_dataclass(type(part)):
        return {}
    if all(callable(getattr(part, name, None)) for name in ("state", "load_state")):
        return {"untold": ["its attributes, since it remembers"]}
    derived = [*getattr(type(part), "__dataclass_fields__", ()),  # fields are described elsewhere
               *(name for name in own if isinstance(getattr(type(part), name, None), cached_property))]  # fmt: skip
    own = {name: value for name, value in own.items() if name not in derived}
    public = {name: value for name, value in own.items() if not name.startswith("_")}
    return _and_untold(_told(tell, attributes=public), [name for name in own if name not in public])


def own_repr(part: Any) -> str | None:
    """Return `repr(part)` if its class defines one without a memory address, else None."""
    text = "" if type(part).__repr__ is object.__repr__ else repr(part)
    return None if not text or " at 0x" in text else text


def _told(tell: Tell, **groups: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    untold: list[str] = []
    for group, values in groups.items():
        for name, value in values.items():
            if (data := _option(value, tell)) is UNTOLD:
                untold.append(name)
            else:
                told.setdefault(group, {})[name] = data
    return _and_untold(told, untold)


def _option(value: Any, tell: Tell) -> Any:
    """Return a value as plain data, or UNTOLD if it is loaded data or `tell` fails."""
    if isinstance(value, set | frozenset):
        value = sorted(map(repr, value))
    try:
        data = tell(value)
        return data if len(json.dumps(data)) <= LONGEST else UNTOLD
    except Exception:  # a foreign object may fail in any way
        return UNTOLD


def _and_untold(told: dict[str, Any], names: list[str]) -> dict[str, Any]:
    every = [*told.pop("untold", ()), *names]
    return told | ({"untold": every} if every else {})


def _made_by_dataclass(kind: type) -> bool:
    """Return True if the class uses the dataclass's `__init__`; a subclass may have one of its own."""
    owner = next(one for one in kind.__mro__ if "__init__" in vars(one))
    return "__dataclass_params__" in vars(owner) and owner.__dataclass_params__.init


def holders(data: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield `place (part)` and its contents for each part of the data that holds anything."""
    if isinstance(data, Mapping):
        if "holds" in data:
            yield f"{place} ({data.get('is') or data.get('name')})", data["holds"]
        for key, value in data.items():
            yield from holders(value, place if key == "holds" else f"{place}.{key}" if place else key)
    if isinstance(data, list):
        for number, value in enumerate(data):
            yield from holders(value, f"{place}[{number}]")


def untold(data: Any) -> list[str]:
    """Return the places in the data that could not be described, with the names there."""
    return [f"{place}: {', '.join(held['untold'])}" for place, held in holders(data) if "untold" in held]


def comparable(there: Any, here: Any) -> tuple[Any, Any]:
    """Return two descriptions without the things that cannot be compared.

    These are names that either side could not describe, and attributes that one side did not have yet.
    """
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [comparable(*pair) for pair in zip(there, here, strict=True)]
        return [one for one, _ in pairs], [other for _, other in pairs]
    if not isinstance(there, dict) or not isinstance(here, dict):
        return there, here
    first, second = dict(there), dict(here)
    if "holds" in there or "holds" in here:
        first["holds"], second["holds"] = _compared(there.get("holds") or {}, here.get("holds") or {})
    for key in first.keys() & second.keys():
        first[key], second[key] = comparable(first[key], second[key])
    return first, second


def _compared(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    hidden = {*there.get("untold", ()), *here.get("untold", ())}
    sides = []
    for own, other in ((there, here), (here, there)):
        side = {key: value for key, value in own.items() if key != "untold"}
        for group in ("args", "keywords", "captured", "defaults", "attributes"):
            known = other.get(group, {}) if group == "attributes" else own.get(group, {})
            side[group] = {name: value for name, value in own.get(group, {}).items()
                           if name in known and name not in hidden}  # fmt: skip
        sides.append(side)
    return sides[0], sides[1]
