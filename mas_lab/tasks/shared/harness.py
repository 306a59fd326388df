"""Add calls to a program for the sandbox, and read its answers and errors; text and rules are the same for every tier.

The calls are written after the program, with their arguments as literals. Each answer comes out as JSON of plain data,
and only this process takes it apart. So no object of the program is ever compared with anything. Running the text is in
`sandbox` and `child`.
"""

import builtins
import importlib
import json
import math
import re
import sys
import types
from collections.abc import Sequence
from typing import Any

from mas_lab.child import RESULT
from mas_lab.env import unwritable

HALF_THERE = {
    "asyncio", "base64", "binascii", "bisect", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
    "functools", "hashlib", "itertools", "json", "math", "os", "pathlib", "random", "re", "signal", "sys", "time",
    "typing", "unicodedata",
}  # fmt: skip
"""Modules that a sandbox has only in part. The program writes the text of its errors, so this text must not choose what
is imported."""
TYPES = {**vars(builtins), "function": types.FunctionType, "generator": types.GeneratorType}

HARNESS = """
import json as _mas_lab_json
def _mas_lab_plain(v, n=200, most=10 ** 4300):
    t = type(v)
    if n == 0 or t is int and not -most < v < most:
        raise NotImplementedError("a result this deep or this long is not supported in this environment")
    if v is None or t is bool or t is int or t is float or t is str:
        return v
    if t is list:
        return ["list", [_mas_lab_plain(p, n - 1) for p in v]]
    if isinstance(v, tuple):
        return ["tuple", [_mas_lab_plain(p, n - 1) for p in v]]
    if t is set or t is frozenset:
        return ["set", [_mas_lab_plain(p, n - 1) for p in v]]
    if isinstance(v, dict):
        return ["dict", [[_mas_lab_plain(k, n - 1), _mas_lab_plain(v[k], n - 1)] for k in v]]
    raise TypeError("returned a " + t.__name__ + ", which is no plain data")
def _mas_lab_call(f, a):
    try:
        return _mas_lab_json.dumps([_mas_lab_plain(f(*a)), None])
    except BaseException as e:
        return _mas_lab_json.dumps([None, type(e).__name__ + ": " + str(e)])
"""
MAIN = re.compile(r"""(['"])__main__\1""")
"""The name of a script, with which `__name__` is compared."""
CONTAINERS = {"list": list, "tuple": tuple, "set": set}
FORGED = (ValueError, TypeError, KeyError, RecursionError)
"""Errors of reading an answer that the harness did not write."""
MOST_BITS = 14_000
"""Most bits of an int: Python writes and reads 4300 digits."""


def program(source: str, entry: str | None, inputs: Sequence[Sequence[Any]], mark: str) -> str:
    """Return `source` followed by the calls of `entry`; its last expression is `mark` and their answers.

    The mark is a secret of the run. So a program that returns early from its module (which monty allows) gives no
    answer. What stands under `if __name__ == "__main__":` does not run before calls, as in a module that is imported.
    """
    source = MAIN.sub(r"\1_mas_lab_main\1", source) if entry else source
    literals = [literal(list(arguments), f"inputs[{i}]") for i, arguments in enumerate(inputs)]
    calls = ", ".join(f"_mas_lab_call({entry}, {arguments})" for arguments in literals)
    return f"{source}\n{HARNESS}\n{RESULT} = '{mark}[' + ', '.join([{calls}]) + ']'\n{RESULT}"


def steady(source: str) -> str:
    """Return `source` after a line that makes random numbers and sleep the same in every run, if it uses them."""
    chance = "import random as _mas_lab_r; _mas_lab_r.seed(0)\n" if "random" in source else ""
    sleep = "import time as _mas_lab_t; _mas_lab_t.sleep = lambda seconds: None\n" if "sleep" in source else ""
    return after(chance + sleep, source)


FUTURE = re.compile(r"(?m)^from __future__ import .*\n")


def after(before: str, source: str) -> str:
    """Return `source` after the lines `before`; imports from `__future__` must come first."""
    return f"{''.join(FUTURE.findall(source))}{before}{FUTURE.sub('', source)}" if before else source


def unreadable(source: str) -> str:
    """Return a syntax error as one line if no Python can read `source`, else an empty text."""
    problem = unwritable(source) or ("source code cannot contain null bytes" if "\0" in source else "")
    return problem and f"SyntaxError: {problem}"


def literal(value: Any, name: str) -> str:
    """Return `value` as a Python literal; raise ValueError with its place if it is not plain data."""
    kind = type(value)
    if kind is int and value.bit_length() > MOST_BITS:
        raise ValueError(f"sandbox.run: {name} has {value.bit_length()} bits; give at most {MOST_BITS}")
    if value is None or kind in (bool, int, str):
        return repr(value)
    if kind is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if kind is dict:
        pairs = (f"{literal(k, f'{name}, a key')}: {literal(v, f'{name}[{k!r}]')}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if kind not in (list, tuple, set):
        plain = "None, numbers, text, and lists, tuples, sets, dicts of them"
        raise ValueError(f"sandbox.run: {name} is {value!r:.80} ({kind.__name__}); give {plain}")
    parts = [literal(part, f"{name}[{i}]") for i, part in enumerate(value)]
    if kind is list:
        return f"[{', '.join(parts)}]"
    if kind is tuple:
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return f"{{{', '.join(parts)}}}" if parts else "set()"


def answers(text: str, count: int, begin: str) -> list[tuple[Any, str | None]]:
    """Return the answers of `count` calls, (value, None) or (None, error); raise one of `FORGED` for any other text."""
    if not text.startswith(begin):
        raise ValueError("the program gave one of its own")
    results = [(_plain(value), error) for value, error in json.loads(text.removeprefix(begin))]
    if len(results) != count or not all(error is None or isinstance(error, str) for _, error in results):
        raise ValueError(f"{len(results)} parts for {count} calls")
    return results


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        raise TypeError("the harness writes no objects")
    if not isinstance(value, list):
        return value
    kind, parts = value
    return {_plain(k): _plain(v) for k, v in parts} if kind == "dict" else CONTAINERS[kind](map(_plain, parts))


def status_of(error: str) -> str:
    """Return the status of an error from its last line, `Name: text`."""
    name = error.split(":")[0]
    if name == "MemoryError":
        return "memory"
    if name == "PermissionError" or "not-permitted" in error or "wasi does not support processes" in error:
        return "refused"
    return "unsupported" if is_lacking(error) else "error"


def is_lacking(error: str) -> bool:
    """Return whether CPython has what a sandbox lacks by this error: syntax, a standard module, a name, or a size."""
    matches = ((re.match(pattern, error), exists) for pattern, exists in EXISTS.items())
    return bool(LACKING.match(error)) or any(exists(*found.groups()) for found, exists in matches if found)


def _has(module: str, name: str) -> bool:
    return module in HALF_THERE and hasattr(importlib.import_module(module), name)


LACKING = re.compile(
    r"(?s)(NotImplementedError|RuntimeError).*monty|.*is not supported in this environment"
    r"|RuntimeError: can't start new thread$|AttributeError: 'module' object"
    r"|(Syntax|Pattern)Error: .*(too (deeply nested|large|many (?!st|nested p))|more than 255|NFA|executing regex)"
    r"|OverflowError: Python int too large to convert to C ssize_t|ValueError: pow\(\) 2nd argument cannot be negative"
)
"""Errors that CPython does not raise in such a place: what monty leaves out, and its limits for code and patterns."""
EXISTS = {
    r"ModuleNotFoundError: No module named '(\w+)": lambda module: module in sys.stdlib_module_names,
    r"NameError: name '(\w+)' is not defined": lambda name: hasattr(builtins, name),
    r"ImportError: cannot import name '(\w+)' from '(\w+)": lambda name, module: _has(module, name),
    r"AttributeError: module '(\w+)' has no attribute '(\w+)'": _has,
    r"AttributeError: (?:type object )?'(\w+)' (?:object )?has no attribute '(\w+)'": lambda kind, name: hasattr(
        TYPES.get(kind), name
    ),
    r"TypeError: cannot create '(\w+)' instances": lambda name: hasattr(builtins, name),
}
"""Pattern of an error -> whether CPython has what the error says is missing."""
