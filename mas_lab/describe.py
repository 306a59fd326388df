"""Describe the parts of a training as plain data, and find the differences between two descriptions.

run.json and studies record parts in this form. Two trainings are the same if their descriptions are equal. Leaves out:
making a part from its description (`recipes.from_data`).
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from hashlib import sha256
from types import MethodType
from typing import Any

import numpy as np

PARTS: dict[str, Any] = {}
"""The parts of a recipe that can be made again from data, by name; `recipes` enters them."""


def describe(part: Any, place: str = "part", separator: str = ".") -> Any:
    """Return a part of a training as plain data (JSON types).

    A dataclass is `{"is": name, **fields}`, a function `{"is": name}`. A part that the kit can make again
    (`recipes.from_data`) is named by its class alone, any other part as `module.name`. Values without options, such as
    a path, are described by their repr.

    Args:
        part: Recipe, plan, credit, curriculum, or any value in one of them.
        place: Name of the part, for the error.
        separator: ":" for the options of an env. Names are then `module:name`, as in a config, and a function is its
            name alone.

    Raises:
        TypeError: Two such parts may differ although their descriptions are equal: lambdas, functions that are defined
            in a function, and objects with attributes whose class is no dataclass.
    """
    if isinstance(part, np.generic | np.ndarray):
        part = part.tolist()
    if part is None or isinstance(part, str | int | float | bool):
        return part
    if isinstance(part, Mapping):
        return {key: describe(value, f"{place}.{key}", separator) for key, value in part.items()}
    if isinstance(part, set | frozenset):
        part = sorted(part, key=repr)
    if isinstance(part, list | tuple):
        return [describe(value, f"{place}[{number}]", separator) for number, value in enumerate(part)]
    name = part_name(part, separator)
    if isinstance(part, partial | MethodType):
        return {"is": name, "holds": describe(_bound(part), place, separator)}
    if is_dataclass(part) and not isinstance(part, type):
        return {"is": name, **describe_options(part, place, separator)}
    if not (callable(part) or type(part).__repr__ is object.__repr__ or " at 0x" in repr(part)):
        return repr(part)
    if not hasattr(part, "__qualname__"):
        describe_options(part, place, separator)
    elif not isinstance(part, type) and "<" in part.__qualname__:
        raise _undescribed(part, place)
    return name if separator == ":" else {"is": name}


def describe_options(part: Any, place: str, separator: str) -> dict[str, Any]:
    """Return the fields of a dataclass; an object without attributes has none.

    Fields with `init=False` are not options, and neither is the field `state` of a part that learns (with `after`). A
    field with `younger` in its metadata is left out at its default, because older runs do not record it.
    """
    if is_dataclass(part) and _has_generated_init(type(part)):
        options = [f for f in fields(part) if f.init and not (f.name == "state" and learns(part))]
        options = [f for f in options if not ("younger" in f.metadata and getattr(part, f.name) == f.default)]
        return {f.name: describe(getattr(part, f.name), f"{place}.{f.name}", separator) for f in options}
    if getattr(part, "__dict__", None) == {}:
        return {}
    raise _undescribed(part, place)


def learns(part: Any) -> bool:
    """Return whether a part learns from step to step: it has a method `after`."""
    return callable(getattr(part, "after", None))


def part_name(part: Any, separator: str = ".") -> str:
    """Return the name of a function or class, or of an object's class: the short name of a recipe's part of the kit."""
    named = part if hasattr(part, "__qualname__") else type(part)
    if separator == "." and PARTS.get(named.__name__) is named:
        return named.__name__
    return f"{named.__module__}{separator}{named.__qualname__}"


def _bound(part: partial | MethodType) -> dict[str, Any]:
    if isinstance(part, MethodType):
        return {"of": part.__self__}
    arguments = {"args": {str(place): value for place, value in enumerate(part.args)}, "keywords": part.keywords}
    return {"of": part.func, **{kind: values for kind, values in arguments.items() if values}}


def _has_generated_init(kind: type) -> bool:
    """Return False if a subclass of a dataclass has its own `__init__`, which may set anything."""
    owner = next(one for one in kind.__mro__ if "__init__" in vars(one))
    return "__dataclass_params__" in vars(owner) and owner.__dataclass_params__.init


def _undescribed(part: Any, place: str) -> TypeError:
    return TypeError(
        f"{place} ({part_name(part)}) has content that run.json cannot record; with run=, write a function of a module "
        "(def), or a frozen dataclass, whose fields are its options"
    )


def source_of(part: Any) -> Any:
    """Return the source of a function, or of a class's functions with its other attributes."""
    if isinstance(part, type):
        return {name: source_of(one) for name, one in vars(part).items()
                if inspect.isfunction(one) or not name.startswith("__")}  # fmt: skip
    try:
        return inspect.getsource(part) if inspect.isfunction(part) else re.sub(r" at 0x\w+", "", repr(part))
    except OSError:  # no source: a dataclass has generated it
        return None


def sources(recipe: Any) -> dict[str, str]:
    """Return a digest of the source of each part of a recipe that is not the kit's, by its described name.

    The source is that of the function, or of the class and its bases of the same module, without what they call. A part
    whose source is not known, as after `exec`, is left out.
    """
    found = {}
    for part in vars(recipe).values():
        named = part if hasattr(part, "__qualname__") else type(part)
        if inspect.isbuiltin(named) or part_name(part) in PARTS:
            continue
        kinds = getattr(named, "__mro__", (named,))
        own = [kind for kind in kinds if kind.__module__ == named.__module__]
        code = [source_of(kind) if isinstance(kind, type) else {"__call__": source_of(kind)} for kind in own]
        if any(one.get("__call__") for one in code):
            told = [[name, str(text).strip()] for one in code for name, text in one.items()]
            told.append([kind.__qualname__ for kind in kinds])
            found[part_name(part)] = sha256(json.dumps(told).encode()).hexdigest()[:6]
    return found


def without_modules(recipe: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return a recipe's description in which its source, and not its module, names each part that `sources` knows."""
    names = {name: f"{name.rpartition('.')[2]}@{source}" for name, source in known.items()}
    return {key: {**part, "is": names[part["is"]]} if isinstance(part, dict) and part.get("is") in names else part
            for key, part in recipe.items()}  # fmt: skip


def differing(there: Any, here: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted name and both values of each option in which two descriptions differ."""
    if isinstance(there, dict) and isinstance(here, dict) and there.get("is") == here.get("is"):
        for key in dict.fromkeys([*there, *here]):
            yield from differing(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif there != here:
        yield name, there, here


def differences(there: Any, here: Any) -> str:
    """Return a sentence on the differences between the description of a run and that of a call; empty if equal."""
    return in_sentence(differing(there, here))


def in_sentence(found: Iterable[tuple[str, Any, Any]]) -> str:
    """Return the results of `differing` as one sentence."""
    return "; ".join(
        f"{name} differs: the run has {json.dumps(one)}, this call has {json.dumps(other)}"
        for name, one, other in found
    )
