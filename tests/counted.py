"""A relay that counts the steps whose tasks are drawn, and a watch that lets the first update wait for them."""

import threading
import time
from dataclasses import dataclass

import small

DRAWN = []
"""Names of the threads that drew tasks."""


@dataclass(frozen=True)
class Counted(small.Relay):
    def tasks(self, n, split, seed):
        DRAWN.append(threading.current_thread().name)
        return super().tasks(n, split, seed)


def waits(count: int):
    """A watch that lets the first update wait until the tasks of `count` steps are drawn; it notes how many are."""
    seen = []

    def watch(batch):
        end = time.monotonic() + 60
        while not seen and len(DRAWN) < count:
            assert time.monotonic() < end
            time.sleep(0.01)
        seen.append(len(DRAWN))

    return watch, seen
