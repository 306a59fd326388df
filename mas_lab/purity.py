"""Are two objects the same, and is one still what it was? By equality, or, where a class has none, by content.

Leaves out: who asks (`check`).
"""

import pickle
from copy import deepcopy
from typing import Any

from mas_lab.env import EnvError

UNPICKLED = (pickle.PicklingError, TypeError, AttributeError)


class Before:
    """What an object was: its pickle, which takes a fraction of a copy's time; a copy where it has none."""

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
    """Equal, or (for objects without an equality of their own) pickled alike."""
    try:
        if bool(first == second):
            return True
    except ValueError:  # arrays compare elementwise
        pass
    try:
        return pickle.dumps(first) == pickle.dumps(second)
    except UNPICKLED as error:
        kind = type(first).__name__
        raise EnvError(f"a {kind} has neither equality nor a pickle ({error}); use frozen dataclasses") from None
