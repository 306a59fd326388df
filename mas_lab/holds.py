"""What a part of one's own holds beside its name, as plain data: the arguments of a partial, what a closure captured,
the attributes of an object. Two runs whose parts hold different things are two runs.

What cannot be told is named, so that nobody takes it for compared. Leaves out: dataclasses, whose fields are their
options (`env.spec`, `recipes.to_data`), code, and who compares (`runs.recorder`).
"""

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
"""Characters of JSON: what is longer is data that was loaded, not an option."""
DEEPEST = 3
UNTOLD = object()
_within: ContextVar[tuple[int, ...]] = ContextVar("what is being described", default=())


def holding(part: Any, tell: Tell) -> dict[str, Any]:
    """`{"holds": ...}`, or nothing where `part` holds nothing; `tell` describes what stands in it.

    `holds` has names and plain data under `args`, `keywords`, `captured`, `defaults`, `attributes`, the function behind
    a partial or a method under `of`, a `repr` where that is all there is, and under `untold` the names of the rest.
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
        made = "<" in part.__qualname__  # while a program runs: the defaults of others are code
        held = _told(tell, captured=_captured(part), defaults=_defaults(part) if made else {})
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
    own = {name: value for name, value in own.items() if not _is_derived(type(part), name)}
    public = {name: value for name, value in own.items() if not name.startswith("_")}
    return _and_untold(_told(tell, attributes=public), [name for name in own if name not in public])


def own_repr(part: Any) -> str | None:
    """How `part` prints, if it does so in its own way and not as an address in memory."""
    text = "" if type(part).__repr__ is object.__repr__ else repr(part)
    return None if not text or " at 0x" in text else text


def _told(tell: Tell, **groups: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    untold: list[str] = []
    for group, values in groups.items():
        for name, value in values.items():
            data = value if value is UNTOLD else _option(value, tell)
            if data is UNTOLD:
                untold.append(name)
            else:
                told.setdefault(group, {})[name] = data
    return _and_untold(told, untold)


def _option(value: Any, tell: Tell) -> Any:
    """A value as plain data, or UNTOLD: loaded data, and what `tell` makes nothing of."""
    if isinstance(value, set | frozenset):
        value = sorted(map(repr, value))
    try:
        data = tell(value)
        return data if len(json.dumps(data)) <= LONGEST else UNTOLD
    except Exception:  # an object of somebody else's, which need not be fit for this
        return UNTOLD


def _and_untold(told: dict[str, Any], names: list[str]) -> dict[str, Any]:
    every = [*told.pop("untold", ()), *names]
    return told | ({"untold": every} if every else {})


def _captured(function: FunctionType) -> dict[str, Any]:
    names = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: _content(cell) for name, cell in names}


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNTOLD


def _defaults(function: FunctionType) -> dict[str, Any]:
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
    return dict(zip(names, values, strict=True)) | (function.__kwdefaults__ or {})


def _made_by_dataclass(kind: type) -> bool:
    """Are its fields all that it was made of? Not where a subclass has an `__init__` of its own."""
    owner = next(one for one in kind.__mro__ if "__init__" in vars(one))
    return "__dataclass_params__" in vars(owner) and owner.__dataclass_params__.init


def _is_derived(kind: type, name: str) -> bool:
    """Is it a field of a dataclass, which is told as such, or a property that was worked out once?"""
    return name in getattr(kind, "__dataclass_fields__", ()) or isinstance(getattr(kind, name, None), cached_property)


def holders(data: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """`place (part)`, and what it holds, of each part in the data that holds anything."""
    if isinstance(data, Mapping):
        if "holds" in data:
            yield f"{place} ({data.get('is') or data.get('name')})", data["holds"]
        for key, value in data.items():
            yield from holders(value, place if key == "holds" else f"{place}.{key}" if place else key)
    if isinstance(data, list):
        for number, value in enumerate(data):
            yield from holders(value, f"{place}[{number}]")


def untold(data: Any) -> list[str]:
    """What could not be told in the data, by its place."""
    return [f"{place}: {', '.join(held['untold'])}" for place, held in holders(data) if "untold" in held]


def comparable(there: Any, here: Any, earlier: bool = False) -> tuple[Any, Any]:
    """Two descriptions without what cannot be compared: what either could not tell, attributes that one of them did not
    have yet, and, where `earlier`, what an earlier version did not record of the first."""
    if earlier and isinstance(there, str) and isinstance(here, dict):
        return there, here.get("is", here)
    if isinstance(there, list) and isinstance(here, list) and len(there) == len(here):
        pairs = [comparable(*pair, earlier) for pair in zip(there, here, strict=True)]
        return [one for one, _ in pairs], [other for _, other in pairs]
    if not isinstance(there, dict) or not isinstance(here, dict):
        return there, here
    first, second = dict(there), dict(here)
    if "holds" in there or "holds" in here:
        first["holds"], second["holds"] = _compared(there.get("holds") or {}, here.get("holds") or {})
        if earlier and "holds" not in there:
            del first["holds"], second["holds"]
    for key in first.keys() & second.keys():
        first[key], second[key] = comparable(first[key], second[key], earlier)
    return first, second


def _compared(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    hidden = {*there.get("untold", ()), *here.get("untold", ())}
    sides = []
    for own, other in ((there, here), (here, there)):
        side = {key: value for key, value in own.items() if key != "untold"}
        for group in ("args", "keywords", "captured", "defaults", "attributes"):
            named = {name: value for name, value in own.get(group, {}).items() if name not in hidden}
            if group == "attributes":
                named = {name: value for name, value in named.items() if name in other.get(group, {})}
            side[group] = named
        sides.append(side)
    return sides[0], sides[1]
