"""Compute the gradients of policies on different devices at the same time.

Leaves out: what is computed (`cells.update`).
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from mas_lab.policy import Policy


@contextmanager
def parallel_devices(policies: Iterable[Policy]) -> Iterator[Callable[[Callable, Iterable[Any]], Iterable[None]]]:
    """Yield `map` if all policies are on one device, else a map that uses a thread per device.

    The steps of one device are done one after the other. A step is anything with a `policy`.
    """
    devices = {policy.capabilities.device for policy in policies}
    if len(devices) < 2:
        yield map
        return
    with ThreadPoolExecutor(len(devices)) as pool:

        def each(function: Callable[[Any], None], steps: Iterable[Any]) -> Iterable[None]:
            by_device: dict[str, list[Any]] = {}
            for step in steps:
                by_device.setdefault(step.policy.capabilities.device, []).append(step)
            futures = [pool.submit(lambda own: list(map(function, own)), own) for own in by_device.values()]
            return [future.result() for future in futures]

        yield each
