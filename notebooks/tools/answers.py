"""Carry the answers of a notebook from its kernel to a process that judges them.

The kernel imports this file to keep what `check` was given (`keep`) and to call functions (`reply`). The grader decodes
numbers, texts, lists, arrays and tables from JSON; a function becomes one that asks the kernel. So a kernel can tell
any answer, but no verdict. A `StudentCode` answer, such as an env, is pickled, and judged in a third process
(`judged_apart`): what the notebook changed in its kernel does not reach it, but the student's own classes run in it.
The grader itself loads no pickle of a student.
"""

import base64
import copyreg
import inspect
import json
import pickle
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.course.exercises import EXERCISES, Exercise, NotebookData, StudentCode, of_notebook

GIVEN: dict[str, Any] = {}
"""In the kernel: the answer that `check` got last for each exercise, encoded; `None` if it cannot be."""
FUNCTIONS: list[FunctionType] = []
"""In the kernel: functions that were answers."""
KINDS = {"list": list, "tuple": tuple, "set": set, "dict": dict}
UNTOUCHED = re.compile(r"put your answer in place of|returned nothing; write its body|there is no answer yet")
"""What `check` says of an answer that nobody wrote."""


for lock in (threading.RLock, threading.Lock):  # a team has them; a copy has its own
    copyreg.pickle(type(lock()), lambda held, lock=lock: (lock, ()))


class NotPlainError(TypeError):
    """Error for a value that is neither plain data nor a function."""


def sorts(one: Exercise) -> list[Any]:
    """Return the annotation of each value that an exercise asks for: `NotebookData`, `StudentCode`, or none."""
    return [parameter.annotation for parameter in inspect.signature(one.judge).parameters.values()]


def keep(data: bool = False) -> None:
    """Make `check` of this process keep the answers that it is given or, with `data`, the notebook's data instead."""
    from mas_lab import course

    verdict = course.check

    def check(name: str, *answer: Any) -> None:
        try:
            of_notebook(name[:2])
            asked = sorts(EXERCISES[name])
            told = [part for part, sort in zip(answer, asked, strict=True) if (sort is NotebookData) == data]
            GIVEN[name] = pickled(told) if data or StudentCode in asked else encoded(told)
        except Exception:  # `check` says what is wrong
            GIVEN[name] = None
        verdict(name, *answer)

    course.check = check


def pickled(value: Any) -> str:
    """Return any value as text, with the classes and functions that the notebook defines."""
    import cloudpickle  # loky, which studies use, brings it along

    return base64.b64encode(cloudpickle.dumps(value)).decode()


def unpickled(told: str) -> Any:
    """Return the value of `pickled`; this may run code of whoever made it."""
    return pickle.loads(base64.b64decode(told))


def verdict(one: Exercise, answer: Sequence[Any], data: Sequence[Any]) -> bool | None:
    """Judge an answer on the notebook's data; `None` for a placeholder."""
    answer, data = iter(answer), iter(data)
    try:
        parts = [next(data if sort is NotebookData else answer) for sort in sorts(one)]
        if any(part is ... for part in parts):
            return None
        one.judge(*parts)
    except Exception as error:  # as in `check`: whatever an answer raises, it is not right
        return None if UNTOUCHED.search(str(error)) else False
    return True


def judged_apart(one: Exercise, answer: str, data: Sequence[Any], env: Mapping[str, str], limit: int) -> bool | None:
    """Judge an answer that is pickled, in a process of its own; one that ends without a verdict is wrong."""
    mark = secrets.token_hex(8)
    told = json.dumps([mark, one.name, answer, pickled(data)])
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run([sys.executable, "-P", __file__], input=told, capture_output=True, text=True,
                                  env=env, cwd=folder, timeout=limit, errors="replace")  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
    found = re.search(rf"^{mark} (true|null)$", done.stdout, re.MULTILINE)
    return json.loads(found[1]) if found else False


def reply(number: int, given: str) -> str:
    """Return a function's result as JSON: whether there is one, the result or the error, and the result's slopes."""
    try:
        asked = unpickled(given)
        found = FUNCTIONS[number](*asked)
        return json.dumps([True, encoded(found), slopes(found, asked)])
    except Exception as error:
        return json.dumps([False, f"{type(error).__name__}: {error}", []])


def slopes(found: Any, given: Sequence[Any]) -> list:
    """Return the Jacobian of a tensor, as lists, for each tensor of `given` that requires a gradient."""
    import torch

    into = _learned(given)
    if not into or not isinstance(found, torch.Tensor) or not found.requires_grad:
        return []
    rows = [torch.autograd.grad(one, into, retain_graph=True, materialize_grads=True) for one in found.flatten()]
    return [torch.stack(own).tolist() for own in zip(*rows, strict=True)]


def sloped(found: Any, told: list, given: Sequence[Any]) -> Any:
    """Return a decoded tensor with the gradients that `slopes` told; anything else as it is."""
    import torch

    for one, rows in zip(_learned(given), told, strict=False):
        nothing = torch.tensordot(torch.tensor(rows, dtype=one.dtype), one - one.detach(), dims=one.ndim)
        found = found + nothing.reshape(found.shape)
    return found


def _learned(given: Sequence[Any]) -> list:
    return [one for one in given if getattr(one, "requires_grad", False)]


def encoded(value: Any) -> Any:
    """Return a value as JSON data; raise NotPlainError if that is impossible."""
    import torch

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return encoded(value.item())
    if value is ...:
        return {"kind": "..."}
    if isinstance(value, torch.Tensor):
        return {"kind": "tensor", "dtype": str(value.dtype)[6:], "values": value.tolist(), "grad": value.requires_grad}
    if isinstance(value, np.ndarray | pd.Index):
        return {"kind": "array", "dtype": str(value.dtype), "values": encoded(value.tolist())}
    if isinstance(value, pd.Series):
        parts = [value.name, value.index, value.to_numpy()]
        return {"kind": "series", "dtype": str(value.dtype), "values": [encoded(part) for part in parts]}
    if isinstance(value, pd.DataFrame):
        return {"kind": "frame", "values": [encoded(value.index), [encoded(value[name]) for name in value]]}
    if isinstance(value, FunctionType):
        FUNCTIONS.append(value)
        return {"kind": "function", "values": len(FUNCTIONS) - 1}
    kind = next((name for name, one in KINDS.items() if type(value) is one), None)
    if kind is None:
        raise NotPlainError(f"{type(value).__name__} is neither plain data nor a function")
    held = value.items() if kind == "dict" else value
    return {"kind": kind, "values": [encoded(part) for part in held]}


def decoded(told: Any, ask: Callable[[int, Sequence[Any]], Any] | None = None) -> Any:
    """Return the value of JSON data; `ask` calls a function of the kernel by its number."""
    import torch

    if not isinstance(told, dict):
        return told
    kind, values = told["kind"], told.get("values")
    if kind in KINDS:
        return KINDS[kind](decoded(part, ask) for part in values)
    if kind == "...":
        return ...
    if kind == "tensor":
        return torch.tensor(values, dtype=getattr(torch, told["dtype"]), requires_grad=told["grad"])
    if kind == "array":
        return _array(decoded(values, ask), told["dtype"])
    if kind == "series":
        name, index, held = (decoded(part, ask) for part in values)
        return pd.Series(held, pd.Index(index), told["dtype"], name)
    if kind == "frame":
        index, columns = decoded(values[0], ask), [decoded(part, ask) for part in values[1]]
        return pd.concat(columns, axis=1) if columns else pd.DataFrame(index=index)

    return lambda *given: ask(int(values), given)


def _array(values: list, dtype: str) -> np.ndarray:
    if dtype != "object":
        return np.array(values, dtype=None if dtype in ("str", "string", "category") else dtype)
    held = np.empty(len(values), dtype=object)  # lists of one length would become a table
    held[:] = values
    return held


if __name__ == "__main__":
    mark, name, *told = json.load(sys.stdin)
    of_notebook(name[:2])
    print(f"\n{mark} {json.dumps(verdict(EXERCISES[name], *map(unpickled, told)))}", flush=True)
