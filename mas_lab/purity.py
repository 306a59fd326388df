"""Tests of equality for states: two objects are equal, or one object is unchanged.

Objects are compared by equality, or by content if their class has no equality. Leaves out: the checks that use this
(`check`).
"""

import pickle
from copy import deepcopy
from typing import Any

from mas_lab.env import EnvError

UNPICKLED = (pickle.PicklingError, TypeError, AttributeError)


class Before:
    """The earlier content of an object: its pickle, which is much faster than a copy, or a copy if it has no pickle."""

    def __init__(self, value: Any):
        try:
            self.pickle, self.copy = pickle.dumps(value), None
        except UNPICKLED:
            self.pickle, self.copy = None, deepcopy(value)

    def is_still(self, value: Any) -> bool:
        if self.pickle is None:
            return same(value, self.copy)
        return pickle.dumps(value) == self.pickle or same(value, pickle.loads(self.pickle))


def same(first: Any, second: Any) -> bool:
    """Return True if two objects are equal, or have equal pickles (for classes without their own equality)."""
    try:
        if bool(first == second):
            return True
    except ValueError:  # arrays are compared element by element
        pass
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except UNPICKLED as error:
        kind = type(first).__name__
        raise EnvError(f"a {kind} has neither equality nor a pickle ({error}); use frozen dataclasses") from None
