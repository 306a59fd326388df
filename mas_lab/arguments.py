"""Check the arguments of public functions: types by the annotations, and the smallest number that has a meaning.

One line at the top of a function does it. It leaves signature, docstring and stack as they are:

    def evaluate(env: Env, team: Team, tasks: Sequence[Task], k: int = 1):
        check_arguments(evaluate, locals(), k=1)

pydantic's `validate_call` would add frames between a cell and its method, and convert values. Leaves out: tables
(`table.require`), and arguments that do not fit each other.
"""

import difflib
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sized
from math import inf
from numbers import Integral, Number, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import pandas as pd

EXAMPLES = {
    "env": "lab.make_env('plan_path')",
    "policy": "lab.load_policy(env.pocket)",
    "team": "lab.Team.shared(policy, env.agents)",
    "policies": "{'solver': policy}",
    "tasks": "env.tasks(8, 'train', seed=0)",
    "agents": "env.agents",
    "plan": "lab.episodes(8)",
    "credit": "lab.episode_return()",
    "selector": "lab.not_flat()",
    "loss": "lab.clipped(0.2)",
    "recipe": "'at_grpo'",
    "sampling": "lab.Sampling(temperature=0.7)",
    "lr": "1e-3",
    "inputs": "[[1, 2], [3, 4]]",
}
"""A good value of an argument, by its name."""
WORDS = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path", NoneType: "None"}


class ArgumentError(TypeError, ValueError):
    """Error for an argument of another type or out of range; it names the function, the argument and the remedy."""


def check_arguments(function: Callable, arguments: Mapping[str, Any], cell: str = "", **least: float) -> None:
    """Raise ArgumentError for the first argument that is not what its annotation says, or is too small.

    `arguments` has the arguments by name, such as `locals()`, and `least` the smallest values; such a number must also
    be finite. `cell` replaces the function's name in the message.
    """
    for name, hint in function.__annotations__.items():
        value, low = arguments.get(name), least.get(name)
        outside = isinstance(value, Real) and low is not None and not low <= value < inf
        if name in arguments and (not fits(value, hint) or outside):
            kind = "a class" if isinstance(value, type) else type(value).__name__
            got = f"{' '.join(repr(value).split()):.80} ({kind})"
            expected = _words(hint)
            if low is not None:
                expected += f" ({low} or more{', not infinite' * (value == inf)})"
            if isinstance(value, type):
                expected += f", an instance and not the class: {value.__name__}(...)"
            elif name in EXAMPLES and hint is not int and (name == "lr" or not fits(0.5, hint)):
                expected += f", such as {EXAMPLES[name]}"
            raise ArgumentError(f"{cell or function.__name__}: {name}={got}; give {expected}")


def fits(value: Any, hint: Any) -> bool:
    """Return True if a value is what a type hint says; True as well for a table and for a hint that says nothing."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if hint in (int, float, bool):
        of = {int: Integral, float: Real, bool: bool | np.bool_}[hint]
        return isinstance(value, of) and (hint is bool or not isinstance(value, bool)) and value == value
    if _is_callable(hint):  # a class whose instances can be called was meant to be an instance
        made = isinstance(value, type) and any("__call__" in vars(base) for base in value.__mro__)
        return callable(value) and not made
    if kind is abc.Mapping:
        return isinstance(value, Mapping) and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in value.items())
    if kind in (abc.Sequence, abc.Iterable, tuple, list):
        listed = isinstance(value, abc.Iterable) and not isinstance(value, str | Mapping)
        if kind is tuple and inner[-1] is not ...:
            return listed and len(value) == len(inner) and all(map(fits, value, inner))
        return listed and (not isinstance(value, Sized) or all(fits(one, inner[0]) for one in value))
    if getattr(hint, "_is_protocol", False):  # one's own env or policy may lack what is not used
        return not isinstance(value, str | Number | Mapping | list | tuple | type | None)
    return hint in (Any, pd.DataFrame) or not isinstance(hint, type) or isinstance(value, hint)


def _words(hint: Any) -> str:
    """Return a type hint in words."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return " or ".join(map(_words, inner))
    if kind in (abc.Sequence, abc.Iterable, tuple, list):
        return f"a list of {_words(inner[0])}"
    if kind is abc.Mapping:
        return f"a dict of {_words(inner[0])} to {_words(inner[1])}"
    return "a callable" if _is_callable(hint) else WORDS.get(hint) or getattr(hint, "__name__", str(hint))


def _is_callable(hint: Any) -> bool:
    """Return whether a type hint is `Callable[...]`, or a protocol with `__call__`, such as `Credit`."""
    return get_origin(hint) is abc.Callable or (getattr(hint, "_is_protocol", False) and "__call__" in vars(hint))


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Return "did you mean 'dr_mas'? " if one of `known` is spelled much like `name`, else an empty text."""
    like = difflib.get_close_matches(str(name), map(str, known), n=1)
    return f"did you mean {like[0]!r}? " if like else ""
